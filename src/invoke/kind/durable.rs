//! Tells the invocation of a durable execution from other events.

use serde_json::Value;

/// The members of the envelope that the durable service sends and nothing else does. The token is
/// another in each invocation of an execution.
const MEMBERS: [&str; 2] = ["DurableExecutionArn", "CheckpointToken"];

/// Tells whether an event invokes a durable function. The answer to it says how far the execution
/// is, so that it holds for this one invocation alone.
pub(in crate::invoke) fn is_envelope(event: &str) -> bool {
    // Events that are none are not parsed once more.
    if !MEMBERS.iter().all(|member| event.contains(member)) {
        return false;
    }
    let event: Value = serde_json::from_str(event).unwrap_or_default();
    let is_text = |member| event.get(member).is_some_and(Value::is_string);
    MEMBERS.into_iter().all(is_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_has_both_members_at_the_top_as_texts() {
        let envelope = r#"{"CheckpointToken": "t", "DurableExecutionArn": "arn:…", "x": [1]}"#;
        assert!(is_envelope(envelope));
        for other in [
            r#"{"DurableExecutionArn": "arn:…"}"#,
            r#"{"CheckpointToken": "t"}"#,
            r#"{"CheckpointToken": "t", "DurableExecutionArn": null}"#,
            r#"{"CheckpointToken": 1, "DurableExecutionArn": "arn:…"}"#,
            r#"{"detail": {"CheckpointToken": "t", "DurableExecutionArn": "arn:…"}}"#,
            r#"["CheckpointToken", "DurableExecutionArn"]"#,
            r#""CheckpointToken DurableExecutionArn""#,
            r#"{"CheckpointToken": "t", "DurableExecutionArn": "arn:…""#,
            "",
        ] {
            assert!(!is_envelope(other), "{other}");
        }
    }
}
