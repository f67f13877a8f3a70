//! The answers that refuse an event, and those that only say that the target can't be reached as it is named.

use serde_json::json;

use super::{Path, Put};
use crate::support::Fault;
use crate::support::lambda::{Reply, text};

const TOPIC: &str = "sns:arn:aws:sns:eu-central-1:123456789012:orders";
const BUS: &str = "eventbridge:orders";
const QUEUE: &str = "sqs:http://sqs.invalid/1/payments";

macro_rules! of_topic {
    ($code:literal, $message:literal) => {
        Fault::Refuse(concat!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>",
            $code,
            "</Code><Message>",
            $message,
            "</Message></Error><RequestId>1</RequestId></ErrorResponse>"
        ))
    };
}

macro_rules! of_json {
    ($code:literal, $message:literal) => {
        Fault::Refuse(concat!(
            r#"{"__type":"com.amazonaws#"#,
            $code,
            r#"","message":""#,
            $message,
            r#""}"#
        ))
    };
}

/// Sweeps once, with this answer of the target to each attempt, and tells whether the event is parked then.
async fn is_parked(path: &Path, target: &str, operation: &str, answer: &Fault) -> bool {
    Put::default().into(path).await;
    let relay = path.relay.target(target).with("PARK_AFTER_REFUSALS", "1");
    let mut relay = relay.start().await;
    // As often as the SDK tries.
    path.queue_wire.repeat(operation, answer.clone(), 3);
    let swept = relay.invoke(json!({})).await;
    assert_matches!(swept, Reply::Failed(_), "{answer:?}");
    path.queue_wire.forget();
    let event = path.relay.effects().await.remove(0);
    assert!(!event.contains_key("refusals"), "{answer:?}");
    assert_ne!(
        event.contains_key("parked_at"),
        event.contains_key("pending")
    );
    assert_eq!(text(&event, "id"), "0-1");
    event.contains_key("parked_at")
}

#[tokio::test]
async fn a_target_that_is_named_wrongly_denies_access_or_is_down_parks_nothing() {
    let path = Path::new().await;
    for (target, operation, answer) in [
        (
            TOPIC,
            "?",
            of_topic!("InvalidParameter", "Invalid parameter: TopicArn"),
        ),
        (
            TOPIC,
            "?",
            of_topic!(
                "InvalidParameterValue",
                "Invalid parameter: TopicArn Reason: no valid message topic"
            ),
        ),
        (TOPIC, "?", of_topic!("NotFound", "Topic does not exist")),
        (
            TOPIC,
            "?",
            of_topic!(
                "AuthorizationError",
                "not authorized to perform: SNS:Publish on the message"
            ),
        ),
        (
            TOPIC,
            "?",
            of_topic!("KMSAccessDenied", "the message can't be encrypted"),
        ),
        (
            BUS,
            "PutEvents",
            of_json!(
                "ResourceNotFoundException",
                "Event bus orders does not exist."
            ),
        ),
        (
            BUS,
            "PutEvents",
            of_json!(
                "ValidationException",
                "Value 'a b' at 'entries.1.member.eventBusName' failed"
            ),
        ),
        (
            BUS,
            "PutEvents",
            Fault::Reply(r#"{"FailedEntryCount": 1, "Entries": [{}]}"#),
        ),
        (BUS, "PutEvents", Fault::Reply(r#"{"FailedEntryCount": 1}"#)),
        (
            BUS,
            "PutEvents",
            Fault::Reply(
                r#"{"FailedEntryCount": 1, "Entries": [{"ErrorCode": "NotAuthorizedForSource"}]}"#,
            ),
        ),
        (
            QUEUE,
            "SendMessage",
            of_json!(
                "InvalidAddress",
                "The address is not valid for this endpoint"
            ),
        ),
        (
            QUEUE,
            "SendMessage",
            of_json!(
                "MissingParameter",
                "The request must contain the parameter MessageGroupId."
            ),
        ),
        (
            QUEUE,
            "SendMessage",
            of_json!("QueueDoesNotExist", "The specified queue does not exist."),
        ),
        (
            QUEUE,
            "SendMessage",
            of_json!("KmsDisabled", "The key of the message is disabled"),
        ),
        (QUEUE, "SendMessage", Fault::THROTTLE),
        (QUEUE, "SendMessage", Fault::DENY),
        (QUEUE, "SendMessage", Fault::LoseRequest),
    ] {
        assert!(
            !is_parked(&path, target, operation, &answer).await,
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_target_that_names_the_message_parks_the_event() {
    let path = Path::new().await;
    for (target, operation, answer) in [
        (
            TOPIC,
            "?",
            of_topic!("InvalidParameter", "Invalid parameter: Message too long"),
        ),
        (
            BUS,
            "PutEvents",
            of_json!(
                "ValidationException",
                "Total size of the entries in the request is over the limit."
            ),
        ),
        (
            BUS,
            "PutEvents",
            Fault::Reply(
                r#"{"FailedEntryCount": 1, "Entries": [{"ErrorCode": "MalformedDetail"}]}"#,
            ),
        ),
        (QUEUE, "SendMessage", of_json!("InvalidMessageContents", "")),
        (
            QUEUE,
            "SendMessage",
            of_json!(
                "InvalidParameterValueException",
                "Reason: Message must be shorter than 1048576 bytes."
            ),
        ),
    ] {
        assert!(
            is_parked(&path, target, operation, &answer).await,
            "{answer:?}"
        );
    }
}
