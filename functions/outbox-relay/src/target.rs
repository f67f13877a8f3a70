//! The targets of events. An event's data is the body; its id, type and aggregate travel beside it.

use std::error::Error as StdError;

use aws_config::SdkConfig;
use aws_sdk_eventbridge::operation::put_events::PutEventsOutput;
use aws_sdk_eventbridge::types::{PutEventsRequestEntry, PutEventsResultEntry};
use aws_sdk_sns::types::MessageAttributeValue as SnsAttribute;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::MessageAttributeValue as SqsAttribute;
use lambda_idempotency::dynamodb::outbox::StoredEvent;
use serde::Serialize;
use serde_json::value::RawValue;

/// The name of the sender on a bus.
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
        let is_refusal = error.raw_response().is_some_and(|answer| {
            let error = error.as_service_error();
            let code = error.and_then(|error| error.code()).unwrap_or_default();
            let message = error.and_then(|error| error.message()).unwrap_or_default();
            is_refusal(answer.status().as_u16(), code, message)
        });
        Self {
            text: DisplayErrorContext(error).to_string(),
            is_refusal,
        }
    }
}

/// Codes that blame the event, whatever the message says; without the ending `Exception`.
const OF_THE_EVENT: [&str; 2] = ["InvalidMessageContents", "MalformedDetail"];

/// Codes that blame a parameter: the event's, or the target's own name.
const OF_A_PARAMETER: [&str; 6] = [
    "InvalidArgument",
    "InvalidParameter",
    "InvalidParameterValue",
    "ParameterValueInvalid",
    "Validation",
    "ValidationError",
];

/// The words in a message that blame a parameter of the event.
const PARTS_OF_THE_EVENT: [&str; 6] = ["attribute", "body", "detail", "entries", "message", "size"];

/// The words in a message that blame the target or the way to it. The relay itself makes group and deduplication ids, so that these are
/// wrong only where the target is of another kind.
const PARTS_OF_THE_TARGET: [&str; 14] = [
    "account",
    "arn",
    "bus",
    "credential",
    "deduplication",
    "endpoint",
    "group",
    "kms",
    "policy",
    "queue",
    "region",
    "signature",
    "token",
    "topic",
];

/// Returns whether an answer blames the event. One without a code comes from what is before the target, which tells by its status alone.
fn is_refusal(status: u16, code: &str, message: &str) -> bool {
    match status {
        413 => true,
        400 | 422 => blames_the_event(code, message),
        _ => false,
    }
}

/// Returns whether an error blames the event. In doubt it doesn't: an event that waits is better than all events parked.
fn blames_the_event(code: &str, message: &str) -> bool {
    let code = code.strip_suffix("Exception").unwrap_or(code);
    let message = message.to_ascii_lowercase();
    let names = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    OF_THE_EVENT.contains(&code)
        || OF_A_PARAMETER.contains(&code)
            && names(&PARTS_OF_THE_EVENT)
            && !names(&PARTS_OF_THE_TARGET)
}

/// Adds what travels beside an event's data to a message for a queue or a topic, and sends it. The builders of both have the same methods, and
/// no type in common.
macro_rules! send {
    ($request:expr, $attribute:ty, $target:expr, $event:expr) => {{
        let mut request = $request;
        for (name, value) in attributes($event) {
            let attribute = <$attribute>::builder()
                .data_type("String")
                .string_value(value)
                .build()
                .map_err(PublishError::unfit)?;
            request = request.message_attributes(name, attribute);
        }
        if is_fifo($target) {
            request = request
                .message_group_id(group(&$event.aggregate))
                .message_deduplication_id(&$event.id);
        }
        let sent = request.send().await;
        sent.map(drop).map_err(|error| PublishError::of(&error))
    }};
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

    /// A FIFO queue or topic drops what is delivered again within five minutes, and keeps an aggregate's events in order.
    pub(crate) async fn publish(&self, event: &StoredEvent) -> Result<(), PublishError> {
        match self {
            Self::Sqs { client, url } => {
                let request = client.send_message().queue_url(url);
                send!(request.message_body(&event.data), SqsAttribute, url, event)
            }
            Self::Sns { client, topic } => {
                let request = client.publish().topic_arn(topic);
                send!(request.message(&event.data), SnsAttribute, topic, event)
            }
            Self::EventBridge { client, bus } => on_bus(client, bus, event).await,
        }
    }
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
    entry_taken(&reply)
}

/// A bus that refuses an entry answers 200 all the same.
fn entry_taken(reply: &PutEventsOutput) -> Result<(), PublishError> {
    let failed = |entry: &&PutEventsResultEntry| {
        entry.error_code().is_some() || entry.error_message().is_some()
    };
    let entry = reply.entries().iter().find(failed);
    if reply.failed_entry_count() == 0 && entry.is_none() {
        return Ok(());
    }
    let code = entry.and_then(PutEventsResultEntry::error_code);
    let message = entry.and_then(PutEventsResultEntry::error_message);
    let (code, message) = (code.unwrap_or_default(), message.unwrap_or_default());
    Err(PublishError {
        text: format!("the bus refused it: {code} {message}"),
        is_refusal: blames_the_event(code, message),
    })
}

/// Returns the attributes that travel beside the data, to a queue or a topic.
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

/// Puts the attributes around the data: a bus knows none.
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

    /// Returns whether an answer refuses the event: its status, its code and its message.
    fn refuses(answer: &str) -> bool {
        let mut parts = answer.splitn(3, ' ').chain(["", ""]);
        let mut part = || parts.next().unwrap();
        is_refusal(part().parse().unwrap(), part(), part())
    }

    #[test]
    fn an_answer_that_names_what_is_in_the_event_refuses_it() {
        for answer in [
            "InvalidMessageContents",
            "MalformedDetail Detail is malformed.",
            "InvalidParameterValue One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
            "InvalidParameterValue Message (user) attribute 'event_type' must contain a non-empty value of type 'String'.",
            "InvalidParameter Invalid parameter: Message too long",
            "ValidationException Total size of the entries in the request is over the limit.",
            "ValidationException Value '' at 'entries.1.member.detailType' failed to satisfy constraint",
            "InvalidArgument Parameter DetailType is not valid.",
            "InvalidParameterValueException Value for parameter MessageBody is invalid.",
        ] {
            for (status, is_refused) in [(400, true), (403, false), (500, false)] {
                let answer = format!("{status} {answer}");
                assert_eq!(refuses(&answer), is_refused, "{answer}");
            }
        }
        assert!(refuses("413"));
    }

    #[test]
    fn an_answer_that_names_the_target_or_the_way_to_it_refuses_no_event() {
        for answer in [
            "400 InvalidParameter Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1",
            "400 InvalidParameter Invalid parameter: TopicArn",
            "400 InvalidParameter Invalid parameter: The MessageGroupId parameter is required for FIFO topics",
            "400 InvalidParameterValue Value a for parameter MessageGroupId is invalid. Reason: The request include parameter that is not valid for this queue type",
            "400 InvalidParameterValue Value x for parameter QueueUrl is invalid",
            "400 InvalidParameter",
            "400 ValidationException Value 'a b' at 'entries.1.member.eventBusName' failed to satisfy constraint",
            "400 InvalidArgument Parameter EventBusName is not valid.",
            "400 MissingParameter The request must contain the parameter MessageGroupId.",
            "400 UnsupportedOperation This message can't be sent",
            "400 InvalidAddress The address https://sqs/1/x is not valid for this endpoint.",
            "400 AWS.SimpleQueueService.NonExistentQueue The specified queue does not exist.",
            "400 QueueDoesNotExist",
            "400 ResourceNotFoundException Event bus x does not exist.",
            "404 NotFound Topic does not exist",
            "403 AuthorizationError not authorized to perform: SNS:Publish",
            "400 AccessDeniedException not authorized to perform: kms:GenerateDataKey on the message",
            "400 NotAuthorizedForSourceException",
            "400 KMSAccessDenied the message can't be encrypted",
            "400 KmsThrottled",
            "400 KMSDisabled",
            "400 InvalidSecurity",
            "400 RedactionFailure",
            "400 InvalidAccountIdException",
            "400 ThrottlingException",
            "400 RequestThrottled",
            "400 OverLimit",
            "500 InternalFailure",
            "400 ExpiredTokenException",
            "400 InvalidSignatureException",
            "400 UnrecognizedClientException",
            "400 SomethingNew the message",
            "400  the message",
            "429",
        ] {
            assert!(!refuses(answer), "{answer}");
        }
    }

    #[test]
    fn a_bus_refuses_an_entry_only_by_a_code_that_blames_it() {
        let refused = |code: Option<&str>, message: Option<&str>, count| {
            let entry = PutEventsResultEntry::builder()
                .set_error_code(code.map(str::to_owned))
                .set_error_message(message.map(str::to_owned));
            let reply = PutEventsOutput::builder().failed_entry_count(count);
            let taken = entry_taken(&reply.entries(entry.build()).build());
            taken.err().map(|error| error.is_refusal)
        };
        assert_eq!(refused(None, None, 0), None);
        assert_eq!(refused(Some("MalformedDetail"), None, 1), Some(true));
        for (code, message) in [
            (None, None),
            (None, Some("the message")),
            (Some("InternalFailure"), None),
            (Some("InvalidArgument"), Some("EventBusName")),
        ] {
            assert_eq!(refused(code, message, 1), Some(false), "{code:?}");
        }
        assert_eq!(refused(Some("InternalFailure"), None, 0), Some(false));
        let nothing = PutEventsOutput::builder().failed_entry_count(1).build();
        assert!(!entry_taken(&nothing).unwrap_err().is_refusal);
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
