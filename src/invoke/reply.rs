//! Makes the reply to an S3 Batch Operations job. Pure.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::error::InvokeError;
use crate::engine::error::ErrorKind;
use crate::protocol::record::error_text;

/// Holds the ids that a reply repeats from its event.
#[derive(Debug)]
pub(super) struct Reply {
    schema_version: String,
    invocation_id: String,
    task_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    invocation_schema_version: String,
    invocation_id: String,
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    task_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    invocation_schema_version: &'a str,
    /// The code of a task without a result. A reply has a result for its one task.
    treat_missing_keys_as: ResultCode,
    invocation_id: &'a str,
    results: [TaskResult<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskResult<'a> {
    task_id: &'a str,
    result_code: ResultCode,
    result_string: &'a str,
}

/// The codes that AWS documents for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum ResultCode {
    Succeeded,
    TemporaryFailure,
    PermanentFailure,
}

impl Reply {
    /// Makes the reply to an event; `None` where the event has not the ids of one task.
    pub(super) fn to(event: &str) -> Option<Self> {
        let event: Event = serde_json::from_str(event).ok()?;
        let [Task { task_id }] = <[Task; 1]>::try_from(event.tasks).ok()?;
        Some(Self {
            schema_version: event.invocation_schema_version,
            invocation_id: event.invocation_id,
            task_id,
        })
    }

    /// Reports a task that is done, with this answer: a text as it is, `null` as the empty text,
    /// and other JSON as JSON.
    pub(super) fn succeeded(&self, answer: &RawValue) -> Box<RawValue> {
        let text = match serde_json::from_str::<Option<String>>(answer.get()) {
            Ok(text) => text.unwrap_or_default(),
            Err(_) => answer.get().to_owned(),
        };
        self.result(ResultCode::Succeeded, &text)
    }

    /// Reports a task that has no answer.
    pub(super) fn failed<E: Display + 'static>(
        &self,
        error: &InvokeError<E>,
        is_rejected: bool,
    ) -> Box<RawValue> {
        let code = if is_rejected {
            ResultCode::PermanentFailure
        } else {
            code(error)
        };
        let text = match (error, error.error_type()) {
            (InvokeError::Handler(error), _) => error_text(error),
            (error, word) => format!("{}: {error}", word.unwrap_or_default()),
        };
        self.result(code, &text)
    }

    fn result(&self, result_code: ResultCode, result_string: &str) -> Box<RawValue> {
        let wire = Wire {
            invocation_schema_version: &self.schema_version,
            treat_missing_keys_as: ResultCode::TemporaryFailure,
            invocation_id: &self.invocation_id,
            results: [TaskResult {
                task_id: &self.task_id,
                result_code,
                result_string,
            }],
        };
        // Texts can always be written as JSON.
        to_raw_value(&wire).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

/// Judges an error that is no rejection.
fn code<E>(error: &InvokeError<E>) -> ResultCode {
    let InvokeError::Obstacle(obstacle) = error else {
        return ResultCode::TemporaryFailure;
    };
    match obstacle.kind() {
        // The work is done; its answer alone is missing.
        ErrorKind::OutcomeOmitted => ResultCode::Succeeded,
        // The job ends before an operator has looked.
        ErrorKind::Interrupted
        | ErrorKind::Exhausted
        | ErrorKind::Unreadable
        | ErrorKind::ConditionFailed => ResultCode::PermanentFailure,
        _ => ResultCode::TemporaryFailure,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use serde_json::Value;

    use super::*;
    use crate::engine::error::{Error, Obstacle};
    use crate::protocol::record::Omission;
    use crate::store::transaction::Refusal;

    const EVENT: &str = include_str!("../../tests/fixtures/s3-batch-v1.json");

    fn reply() -> Reply {
        Reply::to(EVENT).unwrap()
    }

    fn parsed(json: &RawValue) -> Value {
        serde_json::from_str(json.get()).unwrap()
    }

    fn failed(obstacle: Obstacle, is_rejected: bool) -> (String, String) {
        let error = InvokeError::<&str>::Obstacle(obstacle);
        let reply = parsed(&reply().failed(&error, is_rejected));
        let result = &reply["results"][0];
        let text = |name: &str| result[name].as_str().unwrap().to_owned();
        (text("resultCode"), text("resultString"))
    }

    #[test]
    fn the_reply_has_the_form_that_aws_documents() {
        let expected = include_str!("../../tests/fixtures/s3-batch-reply.json");
        let answer = RawValue::from_string(r#"["Mary Major","John Stiles"]"#.into()).unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(parsed(&reply().succeeded(&answer)), expected);
    }

    #[test]
    fn a_text_is_its_own_result_and_null_none() {
        for (answer, expected) in [
            (r#""caf\u00e9""#, "café"),
            ("null", ""),
            ("7.0", "7.0"),
            (r#"{"a": [1]}"#, r#"{"a": [1]}"#),
        ] {
            let answer = RawValue::from_string(answer.into()).unwrap();
            let reply = parsed(&reply().succeeded(&answer));
            assert_eq!(reply["results"][0]["resultString"], expected);
        }
    }

    #[test]
    fn what_no_try_of_the_job_mends_is_permanent() {
        let omitted = Error::OutcomeOmitted {
            reason: Omission::TooLarge,
            completed_at: None,
        };
        for (obstacle, is_rejected, code, word) in [
            (
                Error::LeaseLost,
                false,
                "TemporaryFailure",
                "Idempotency.LeaseLost: ",
            ),
            (
                Error::TooLate,
                false,
                "TemporaryFailure",
                "Idempotency.TooLate: ",
            ),
            (
                Error::Mismatch,
                true,
                "PermanentFailure",
                "Idempotency.Mismatch: ",
            ),
            (
                Error::Unreadable("it".into()),
                false,
                "PermanentFailure",
                "Idempotency.Unreadable: ",
            ),
            (
                Error::Refused(Refusal::new(0, None)),
                false,
                "PermanentFailure",
                "Idempotency.ConditionFailed: ",
            ),
            (omitted, false, "Succeeded", "Idempotency.OutcomeOmitted: "),
        ] {
            let (found, text) = failed(obstacle, is_rejected);
            assert_eq!(found, code, "{text}");
            assert!(text.starts_with(word), "{text}");
        }
    }

    #[test]
    fn the_text_of_a_handlers_error_is_its_own_even_where_it_panics() {
        struct Panics;
        impl fmt::Display for Panics {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic!("in `Display`")
            }
        }
        let text = |reply: Box<RawValue>| parsed(&reply)["results"][0]["resultString"].clone();
        let busy = InvokeError::Handler("busy");
        assert_eq!(text(reply().failed(&busy, false)), "busy");
        let panics = text(reply().failed(&InvokeError::Handler(Panics), false));
        assert!(panics.as_str().unwrap().ends_with("Panics"), "{panics}");
    }

    #[test]
    fn an_event_of_another_source_gets_no_reply() {
        for event in ["{}", "null", "[]", r#"{"Records": []}"#] {
            assert!(Reply::to(event).is_none(), "{event}");
        }
        let two = EVENT.replace("\"tasks\": [", "\"tasks\": [{\"taskId\": \"t-0\"},");
        assert!(Reply::to(&two).is_none());
    }
}
