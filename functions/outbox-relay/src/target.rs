//! Where events go. Their data is the body; id, type and aggregate travel beside it.

use std::error::Error as StdError;

use aws_config::SdkConfig;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_sns::types::MessageAttributeValue as SnsAttribute;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::MessageAttributeValue as SqsAttribute;
use lambda_idempotency::dynamodb::outbox::StoredEvent;
use serde::Serialize;
use serde_json::value::RawValue;

/// What a bus calls the sender.
const SOURCE: &str = "lambda-idempotency.outbox";

pub(crate) enum Target {
    Sqs {
        client: aws_sdk_sqs::Client,
        url: String,
    },
    Sns {
        client: aws_sdk_sns::Client,
        topic: String,
    },
    EventBridge {
        client: aws_sdk_eventbridge::Client,
        bus: String,
    },
}

/// An event was not published.
#[derive(Debug, thiserror::Error)]
#[error("the event could not be published: {text}")]
pub(crate) struct PublishError {
    text: String,
    /// The target refused this event; it may well take another.
    pub(crate) is_refusal: bool,
}

impl PublishError {
    /// The event can't be put into a request.
    fn unfit(error: impl StdError + 'static) -> Self {
        Self {
            text: DisplayErrorContext(&error).to_string(),
            is_refusal: true,
        }
    }

    fn of<E>(error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let is_refusal = match error {
            SdkError::ConstructionFailure(_) => true,
            SdkError::ServiceError(answer) => {
                let status = answer.raw().status().as_u16();
                is_refusal(status, answer.err().code().unwrap_or_default())
            }
            _ => false,
        };
        Self {
            text: DisplayErrorContext(error).to_string(),
            is_refusal,
        }
    }
}

/// Parts of the codes that blame the target, its permissions or its load, as SQS, SNS, EventBridge and what is around them have them.
const NOT_OF_THE_EVENT: [&str; 23] = [
    "accessdenied",
    "authentication",
    "authorization",
    "disabled",
    "doesnotexist",
    "expired",
    "forbidden",
    "internal",
    "invalidaction",
    "invalidaddress",
    "invalidclienttokenid",
    "invalidsecurity",
    "kms",
    "limit",
    "nonexistent",
    "notauthorized",
    "notfound",
    "optin",
    "signature",
    "throttl",
    "throughput",
    "unavailable",
    "unrecognizedclient",
];

/// Whether an answer speaks of the event. One without a code comes from what is before the target, which says so by its status alone.
fn is_refusal(status: u16, code: &str) -> bool {
    match status {
        413 => true,
        400 | 422 => !code.is_empty() && is_of_the_event(code),
        _ => false,
    }
}

/// Whether an error with this code speaks of the event. Where it wrongly does, the event is parked after hours, not lost.
fn is_of_the_event(code: &str) -> bool {
    let code = code.to_ascii_lowercase();
    !NOT_OF_THE_EVENT.iter().any(|part| code.contains(part))
}

impl Target {
    /// From its name: `sqs:https://…`, `sns:arn:…`, `eventbridge:bus`.
    pub(crate) fn parse(config: &SdkConfig, name: &str) -> Result<Self, String> {
        let (kind, place) = name.split_once(':').unwrap_or_default();
        let place = place.to_owned();
        match kind {
            _ if place.is_empty() => Err(unknown(name)),
            "sqs" => Ok(Self::Sqs {
                client: aws_sdk_sqs::Client::new(config),
                url: place,
            }),
            "sns" => Ok(Self::Sns {
                client: aws_sdk_sns::Client::new(config),
                topic: place,
            }),
            "eventbridge" => Ok(Self::EventBridge {
                client: aws_sdk_eventbridge::Client::new(config),
                bus: place,
            }),
            _ => Err(unknown(name)),
        }
    }

    /// A FIFO queue or topic drops what comes again within five minutes, and keeps an aggregate's events in order.
    pub(crate) async fn publish(&self, event: &StoredEvent) -> Result<(), PublishError> {
        match self {
            Self::Sqs { client, url } => to_queue(client, url, event).await,
            Self::Sns { client, topic } => to_topic(client, topic, event).await,
            Self::EventBridge { client, bus } => on_bus(client, bus, event).await,
        }
    }
}

async fn to_queue(
    client: &aws_sdk_sqs::Client,
    url: &str,
    event: &StoredEvent,
) -> Result<(), PublishError> {
    let mut request = client
        .send_message()
        .queue_url(url)
        .message_body(&event.data);
    for (name, value) in attributes(event) {
        let attribute = SqsAttribute::builder()
            .data_type("String")
            .string_value(value)
            .build()
            .map_err(PublishError::unfit)?;
        request = request.message_attributes(name, attribute);
    }
    if is_fifo(url) {
        request = request
            .message_group_id(group(&event.aggregate))
            .message_deduplication_id(&event.id);
    }
    request
        .send()
        .await
        .map_err(|error| PublishError::of(&error))?;
    Ok(())
}

async fn to_topic(
    client: &aws_sdk_sns::Client,
    topic: &str,
    event: &StoredEvent,
) -> Result<(), PublishError> {
    let mut request = client.publish().topic_arn(topic).message(&event.data);
    for (name, value) in attributes(event) {
        let attribute = SnsAttribute::builder()
            .data_type("String")
            .string_value(value)
            .build()
            .map_err(PublishError::unfit)?;
        request = request.message_attributes(name, attribute);
    }
    if is_fifo(topic) {
        request = request
            .message_group_id(group(&event.aggregate))
            .message_deduplication_id(&event.id);
    }
    request
        .send()
        .await
        .map_err(|error| PublishError::of(&error))?;
    Ok(())
}

async fn on_bus(
    client: &aws_sdk_eventbridge::Client,
    bus: &str,
    event: &StoredEvent,
) -> Result<(), PublishError> {
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(bus)
        .source(SOURCE)
        .detail_type(&event.kind)
        .detail(detail(&event.id, &event.aggregate, &event.data)?)
        .build();
    let reply = client.put_events().entries(entry).send().await;
    let reply = reply.map_err(|error| PublishError::of(&error))?;
    // A bus that refuses an entry answers 200 all the same.
    if reply.failed_entry_count() == 0 {
        return Ok(());
    }
    let entries = reply.entries().iter();
    let codes: Vec<_> = entries.filter_map(|entry| entry.error_code()).collect();
    Err(PublishError {
        text: format!("the bus refused it: {}", codes.join(", ")),
        is_refusal: codes.iter().all(|code| is_of_the_event(code)),
    })
}

/// What travels beside the data, to a queue or a topic.
fn attributes(event: &StoredEvent) -> [(&str, &str); 3] {
    [
        ("event_id", &event.id),
        ("event_type", &event.kind),
        ("aggregate", &event.aggregate),
    ]
}

fn unknown(name: &str) -> String {
    format!(
        "OUTBOX_TARGET is `{name}`: it must be `sqs:` and a queue's URL, `sns:` and a topic's ARN, or `eventbridge:` and a bus"
    )
}

/// AWS wants the suffix, in lower case.
fn is_fifo(name: &str) -> bool {
    name.strip_suffix(".fifo").is_some()
}

/// A group's name has at most 128 characters, none of them blank: another aggregate is told by its hash.
fn group(aggregate: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic();
    if aggregate.len() <= 128 && aggregate.chars().all(is_plain) {
        return aggregate.to_owned();
    }
    lambda_idempotency::Fingerprint::bytes(aggregate.as_bytes())
        .as_str()
        .to_owned()
}

/// The data stays as it was written, digit for digit.
#[derive(Serialize)]
struct Detail<'a> {
    id: &'a str,
    aggregate: &'a str,
    data: &'a RawValue,
}

/// A bus knows no attributes: what travels beside the data elsewhere is around it here.
fn detail(id: &str, aggregate: &str, data: &str) -> Result<String, PublishError> {
    let detail = Detail {
        id,
        aggregate,
        data: serde_json::from_str(data).map_err(PublishError::unfit)?,
    };
    serde_json::to_string(&detail).map_err(PublishError::unfit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_told_by_its_name() {
        let config = SdkConfig::builder().build();
        for name in ["", "sqs", "sqs:", "kafka:topic", "https://queue"] {
            assert!(Target::parse(&config, name).is_err(), "{name}");
        }
    }

    #[test]
    fn only_codes_that_speak_of_the_event_blame_it() {
        for code in [
            "InvalidMessageContents",
            "InvalidParameterValue",
            "InvalidParameter",
            "MalformedDetail",
            "ValidationException",
        ] {
            assert!(is_of_the_event(code), "{code}");
        }
        for code in [
            "AWS.SimpleQueueService.NonExistentQueue",
            "QueueDoesNotExist",
            "AccessDeniedException",
            "AuthorizationError",
            "KmsThrottled",
            "KMSDisabled",
            "ThrottlingException",
            "OverLimit",
            "RequestThrottled",
            "NotFound",
            "InternalFailure",
            "ExpiredTokenException",
            "InvalidSignatureException",
            "NotAuthorizedForSourceException",
            "ResourceNotFoundException",
        ] {
            assert!(!is_of_the_event(code), "{code}");
        }
    }

    #[test]
    fn an_answer_without_a_code_blames_no_event_but_one_that_is_too_large() {
        for (status, code) in [
            (403, ""),
            (404, ""),
            (429, ""),
            (400, ""),
            (400, "UnrecognizedClientException"),
            (400, "MissingAuthenticationToken"),
            (403, "InvalidParameter"),
            (500, "ValidationException"),
        ] {
            assert!(!is_refusal(status, code), "{status} {code}");
        }
        assert!(is_refusal(413, "") && is_refusal(400, "InvalidMessageContents"));
    }

    #[test]
    fn an_events_data_stays_digit_for_digit() {
        let huge = r#"{"total":340282366920938463463374607431768211455,"rate":1e999}"#;
        let detail = detail("e-1", "order-1", huge).unwrap();
        assert_eq!(
            detail,
            format!(r#"{{"id":"e-1","aggregate":"order-1","data":{huge}}}"#)
        );
    }

    #[test]
    fn a_group_is_named_after_its_aggregate_where_it_can_be() {
        assert_eq!(group("order-1"), "order-1");
        assert_eq!(group("two words").len(), 64);
        assert_eq!(group(&"x".repeat(129)).len(), 64);
        assert!(is_fifo(
            "https://sqs.eu-central-1.amazonaws.com/1/payments.fifo"
        ));
    }
}
