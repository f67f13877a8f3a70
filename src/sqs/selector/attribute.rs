//! A message attribute's value as a token.

use aws_lambda_events::event::sqs::SqsMessage;
use data_encoding::BASE64;

pub(super) fn find(message: &SqsMessage, name: &str) -> Option<String> {
    let attribute = message.message_attributes.get(name)?;
    match (&attribute.string_value, &attribute.binary_value) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(bytes)) => Some(BASE64.encode(&bytes.0)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(attribute: &serde_json::Value) -> Option<String> {
        let message = json!({ "messageAttributes": { "id": attribute } });
        find(&serde_json::from_value(message).unwrap(), "id")
    }

    #[test]
    fn text_is_taken_as_it_is_and_bytes_as_base64() {
        let text = json!({ "stringValue": "p-1", "dataType": "String" });
        assert_eq!(found(&text).as_deref(), Some("p-1"));
        let bytes = json!({ "binaryValue": "AP8=", "dataType": "Binary" });
        assert_eq!(found(&bytes).as_deref(), Some("AP8="));
    }

    #[test]
    fn an_attribute_that_is_not_there_gives_nothing() {
        assert_eq!(found(&json!({ "dataType": "String" })), None);
        assert_eq!(find(&SqsMessage::default(), "id"), None);
    }
}
