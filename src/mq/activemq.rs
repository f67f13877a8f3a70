//! Makes a handler of ActiveMQ batches of a handler of one message. [The module above](super) has
//! what both brokers share.
//!
//! ```
//! use lambda_idempotency::{Idempotency, mq::activemq, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("billing").build()?;
//! let mut worker = activemq::BatchLayer::new(once)
//!     .handler(|message: activemq::Message<u64>| async move {
//!         println!("{:?}: {}", message.metadata.queue, message.body);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, one message by hand; its data is `1250`.
//! let event: activemq::ActiveMqEvent = serde_json::from_str(
//!     r#"{"eventSource": "aws:mq", "eventSourceArn": "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1", "messages": [
//!         {"messageID": "ID:shop-1:4:12:1:1:3", "destination": {"physicalName": "bills"}, "data": "MTI1MA=="}
//!     ]}"#,
//! )?;
//! worker.call(LambdaEvent::new(event, Context::default())).await?;
//! # Ok(()) }
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::batch::{BodyError, Source};
use crate::streams::{Data, token};

/// Makes a handler of ActiveMQ batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<ActiveMqEvent, T, E>;

/// Holds one ActiveMQ message: its decoded data, the claim of its handler, and the message as
/// Lambda delivered it.
pub type Message<T> = crate::batch::Message<ActiveMqEvent, T>;

/// Holds the messages of one invocation: the [event of an ActiveMQ broker][page].
///
/// [page]: https://docs.aws.amazon.com/lambda/latest/dg/with-mq.html
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
#[non_exhaustive]
pub struct ActiveMqEvent {
    /// The messages, in the order of the event.
    pub messages: Vec<ActiveMqMessage>,
}

/// Holds one message as Lambda delivers it. Lambda sends the data in Base64, which is decoded here:
/// [`Source::body`] gives the bytes, [`Source::attribute`] a property.
#[derive(Clone)]
#[non_exhaustive]
pub struct ActiveMqMessage {
    /// The id that ActiveMQ gave the message.
    pub message_id: Option<String>,
    /// The type, such as `jms/text-message`.
    pub message_type: Option<String>,
    /// The id of the request that the message belongs to, where the producer set one.
    pub correlation_id: Option<String>,
    /// The time of the message, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// Says whether the broker has delivered the message before.
    pub redelivered: bool,
    /// The name of the queue.
    pub queue: Option<String>,
    broker: Option<Arc<str>>,
    data: Data,
    properties: BTreeMap<String, Value>,
}

debug_fields!([] ActiveMqMessage { message_id, message_type, timestamp, redelivered, queue });

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(rename = "eventSource")]
    _source: EventSource,
    event_source_arn: Option<Arc<str>>,
    messages: Vec<Fields>,
}

/// The value that Lambda documents, and that of AWS's older examples; the event of another source is an
/// error.
#[derive(Deserialize)]
enum EventSource {
    #[serde(rename = "aws:mq", alias = "aws:amq")]
    ActiveMq,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    #[serde(rename = "messageID")]
    message_id: Option<String>,
    message_type: Option<String>,
    /// AWS's example has the second spelling.
    #[serde(rename = "correlationID", alias = "correlationId")]
    correlation_id: Option<String>,
    timestamp: Option<i64>,
    redelivered: Option<bool>,
    destination: Option<Destination>,
    #[serde(default)]
    data: Data,
    properties: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Destination {
    /// Older examples of AWS have the second spelling.
    #[serde(alias = "physicalname")]
    physical_name: Option<String>,
}

impl From<Wire> for ActiveMqEvent {
    fn from(wire: Wire) -> Self {
        let broker = wire.event_source_arn;
        let message = |fields: Fields| ActiveMqMessage {
            message_id: fields.message_id,
            message_type: fields.message_type,
            correlation_id: fields.correlation_id,
            timestamp: fields.timestamp,
            redelivered: fields.redelivered.unwrap_or_default(),
            broker: broker.clone(),
            queue: fields
                .destination
                .and_then(|place| place.physical_name)
                .filter(|queue| !queue.is_empty()),
            data: fields.data,
            properties: fields.properties.unwrap_or_default(),
        };
        Self {
            messages: wire.messages.into_iter().map(message).collect(),
        }
    }
}

impl Source for ActiveMqEvent {
    type Record = ActiveMqMessage;
    type Reply = ();

    const NAME: &'static str = "activemq";

    /// Lambda has no partial replies for Amazon MQ.
    const READS_REPLY: bool = false;

    fn records(self) -> Vec<ActiveMqMessage> {
        self.messages
    }

    fn id(message: &ActiveMqMessage) -> Option<&str> {
        message.message_id.as_deref()
    }

    /// Joins broker, queue and id: copies of one message in several queues have one id.
    fn token(message: &ActiveMqMessage) -> Option<Cow<'_, str>> {
        let broker = message.broker.as_deref()?;
        let queue = token(broker, message.queue.as_deref().unwrap_or_default());
        Some(Cow::Owned(token(&queue, message.message_id.as_deref()?)))
    }

    fn body(message: &ActiveMqMessage) -> Result<&[u8], BodyError> {
        message.data.bytes()
    }

    fn origin(message: &ActiveMqMessage) -> Option<&str> {
        message.queue.as_deref()
    }

    /// Returns the queue. Lambda promises no order: by default, up to five invocations read one queue
    /// side by side.
    fn order_key(message: &ActiveMqMessage) -> Option<&str> {
        message.queue.as_deref()
    }

    /// The broker says that a delivery is repeated, but not how often.
    fn deliveries(message: &ActiveMqMessage) -> Option<u32> {
        message.redelivered.then_some(2)
    }

    /// Returns the text of a property that the producer set: a string, or the JSON text of a number
    /// or a truth value.
    fn attribute(message: &ActiveMqMessage, name: &str) -> Option<String> {
        match message.properties.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    fn reply(_: Vec<String>) {}

    messaging_spans! {
        system: "activemq", trigger: "pubsub", verb: "receive", destination: Self::origin(message).unwrap_or_default(),
        |messages| "activemq_batch" {}
        |message| "activemq_message" {
            messaging.message.id = message.message_id.as_deref().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn message(fields: &Value) -> ActiveMqMessage {
        let arn = "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1";
        let event = json!({ "eventSource": "aws:mq", "eventSourceArn": arn, "messages": [fields] });
        let event = serde_json::from_value(event).unwrap();
        ActiveMqEvent::records(event).remove(0)
    }

    fn token(id: &str, queue: &str) -> String {
        let fields = json!({ "messageID": id, "destination": { "physicalName": queue } });
        ActiveMqEvent::token(&message(&fields))
            .unwrap()
            .into_owned()
    }

    #[test]
    fn a_key_names_broker_queue_and_message() {
        assert_eq!(token("ID:1", "orders"), token("ID:1", "orders"));
        assert_ne!(token("ID:1", "orders"), token("ID:2", "orders"));
        assert_ne!(token("ID:1", "orders"), token("ID:1", "bills"));
        assert_eq!(ActiveMqEvent::id(&message(&json!({}))), None);
    }

    #[test]
    fn correlation_and_queue_are_read_in_both_spellings() {
        for fields in [
            json!({ "correlationID": "c-1", "destination": { "physicalName": "orders" } }),
            json!({ "correlationId": "c-1", "destination": { "physicalname": "orders" } }),
        ] {
            let message = message(&fields);
            assert_eq!(message.correlation_id.as_deref(), Some("c-1"));
            assert_eq!(ActiveMqEvent::origin(&message), Some("orders"));
            assert_eq!(ActiveMqEvent::order_key(&message), Some("orders"));
        }
    }

    #[test]
    fn a_redelivered_message_is_a_repeated_one() {
        let deliveries = |fields: Value| ActiveMqEvent::deliveries(&message(&fields));
        assert_eq!(deliveries(json!({ "redelivered": true })), Some(2));
        assert_eq!(deliveries(json!({ "redelivered": false })), None);
        assert_eq!(deliveries(json!({})), None);
    }

    #[test]
    fn properties_are_text() {
        let message = message(&json!({ "properties": { "id": "p-1", "count": 7, "none": null } }));
        assert_eq!(
            ActiveMqEvent::attribute(&message, "id").as_deref(),
            Some("p-1")
        );
        assert_eq!(
            ActiveMqEvent::attribute(&message, "count").as_deref(),
            Some("7")
        );
        assert_eq!(ActiveMqEvent::attribute(&message, "none"), None);
    }

    #[test]
    fn neither_data_nor_properties_are_shown() {
        let properties = json!({ "card": "secret" });
        let fields = json!({ "messageID": "ID:1", "data": "c2VjcmV0", "properties": properties });
        let shown = format!("{:?}", message(&fields));
        assert!(
            shown.contains("ID:1") && !shown.contains("secret") && !shown.contains("115"),
            "{shown}"
        );
    }

    #[test]
    fn an_event_is_read_under_each_name_that_aws_has_for_its_source() {
        for source in ["aws:mq", "aws:amq"] {
            let event = json!({ "eventSource": source, "messages": [] });
            let event = serde_json::from_value::<ActiveMqEvent>(event);
            assert!(event.is_ok(), "{source}");
        }
    }

    #[test]
    fn the_event_of_another_source_is_an_error() {
        let rabbit = json!({ "eventSource": "aws:rmq", "messages": [] });
        assert!(serde_json::from_value::<ActiveMqEvent>(rabbit).is_err());
    }
}
