//! Makes a handler of RabbitMQ batches of a handler of one message. [The module above](super) has
//! what both brokers share.
//!
//! ```
//! use lambda_idempotency::{Idempotency, mq::rabbitmq, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("billing").build()?;
//! let mut worker = rabbitmq::BatchLayer::new(once)
//!     .key_attribute("bill-id")
//!     .handler(|message: rabbitmq::Message<u64>| async move {
//!         println!("{:?}: {}", message.metadata.queue, message.body);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, one message by hand; its data is `1250`.
//! let event: rabbitmq::RabbitMqEvent = serde_json::from_str(
//!     r#"{"eventSource": "aws:rmq", "eventSourceArn": "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1", "rmqMessagesByQueue": {"bills::/": [
//!         {"basicProperties": {"headers": {"bill-id": {"bytes": [66, 45, 49, 55]}}}, "redelivered": false, "data": "MTI1MA=="}
//!     ]}}"#,
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
use crate::streams::{Data, HeaderBytes, token};

/// Makes a handler of RabbitMQ batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<RabbitMqEvent, T, E>;

/// Holds one RabbitMQ message: its decoded data, the claim of its handler, and the message as
/// Lambda delivered it.
pub type Message<T> = crate::batch::Message<RabbitMqEvent, T>;

/// Holds the messages of one invocation: the [event of a RabbitMQ broker][page].
///
/// [page]: https://docs.aws.amazon.com/lambda/latest/dg/with-mq.html
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
#[non_exhaustive]
pub struct RabbitMqEvent {
    /// The messages, by queue, in the order of each queue.
    pub messages: Vec<RabbitMqMessage>,
}

/// Holds one message as Lambda delivers it. Lambda sends the data in Base64, which is decoded here:
/// [`Source::body`] gives the bytes, [`Source::attribute`] a header.
#[derive(Clone)]
#[non_exhaustive]
pub struct RabbitMqMessage {
    /// The id that the producer gave the message; `None` where it gave none, or an empty one.
    pub message_id: Option<String>,
    /// The id of the request that the message belongs to, where the producer set one.
    pub correlation_id: Option<String>,
    /// The media type of the data, where the producer set one.
    pub content_type: Option<String>,
    /// The type of the message, in the producer's words.
    pub kind: Option<String>,
    /// The program that sent the message, where it named itself.
    pub app_id: Option<String>,
    /// Says whether the broker has delivered the message before.
    pub redelivered: bool,
    /// The queue and its virtual host, as the event names them: `bills::/`.
    pub queue_and_host: Arc<str>,
    /// The name of the queue.
    pub queue: Arc<str>,
    broker: Option<Arc<str>>,
    place: String,
    data: Data,
    headers: BTreeMap<String, Header>,
}

debug_fields!([] RabbitMqMessage { message_id, content_type, redelivered, queue_and_host });

/// Texts arrive as bytes, numbers and truth values as such.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Header {
    Text { bytes: HeaderBytes },
    Other(Value),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(rename = "eventSource")]
    _source: EventSource,
    event_source_arn: Option<Arc<str>>,
    rmq_messages_by_queue: BTreeMap<String, Vec<Fields>>,
}

/// The value that Lambda documents; the event of another source is an error.
#[derive(Deserialize)]
enum EventSource {
    #[serde(rename = "aws:rmq")]
    RabbitMq,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    basic_properties: Option<BasicProperties>,
    redelivered: Option<bool>,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BasicProperties {
    message_id: Option<String>,
    correlation_id: Option<String>,
    content_type: Option<String>,
    r#type: Option<String>,
    app_id: Option<String>,
    headers: Option<BTreeMap<String, Header>>,
}

impl From<Wire> for RabbitMqEvent {
    fn from(wire: Wire) -> Self {
        let broker = wire.event_source_arn;
        let queues = wire.rmq_messages_by_queue.into_iter();
        let messages = queues.flat_map(|(name, messages)| {
            let queue = name.rsplit_once("::").map_or(&*name, |(queue, _)| queue);
            let (queue, name): (Arc<str>, Arc<str>) = (queue.into(), name.into());
            let broker = broker.clone();
            let message = move |(position, fields): (usize, Fields)| {
                let properties = fields.basic_properties.unwrap_or_default();
                RabbitMqMessage {
                    message_id: properties.message_id.filter(|id| !id.is_empty()),
                    correlation_id: properties.correlation_id,
                    content_type: properties.content_type,
                    kind: properties.r#type,
                    app_id: properties.app_id,
                    redelivered: fields.redelivered.unwrap_or_default(),
                    broker: broker.clone(),
                    place: format!("{name}[{position}]"),
                    queue_and_host: Arc::clone(&name),
                    queue: Arc::clone(&queue),
                    data: fields.data,
                    headers: properties.headers.unwrap_or_default(),
                }
            };
            messages.into_iter().enumerate().map(message)
        });
        Self {
            messages: messages.collect(),
        }
    }
}

impl Source for RabbitMqEvent {
    type Record = RabbitMqMessage;
    type Reply = ();

    const NAME: &'static str = "rabbitmq";

    /// Lambda has no partial replies for Amazon MQ.
    const READS_REPLY: bool = false;

    fn records(self) -> Vec<RabbitMqMessage> {
        self.messages
    }

    /// Returns the message id, or the queue and the message's position in the event: RabbitMQ has an
    /// id only where the producer set one.
    fn id(message: &RabbitMqMessage) -> Option<&str> {
        Some(message.message_id.as_deref().unwrap_or(&message.place))
    }

    /// Joins broker, queue and id: copies of one message in several queues have one id.
    fn token(message: &RabbitMqMessage) -> Option<Cow<'_, str>> {
        let queue = token(message.broker.as_deref()?, &message.queue_and_host);
        Some(Cow::Owned(token(&queue, message.message_id.as_deref()?)))
    }

    fn body(message: &RabbitMqMessage) -> Result<&[u8], BodyError> {
        message.data.bytes()
    }

    fn origin(message: &RabbitMqMessage) -> Option<&str> {
        Some(&*message.queue_and_host).filter(|queue| !queue.is_empty())
    }

    /// Returns the queue. Lambda promises no order: a message that is delivered again may come after a
    /// later one.
    fn order_key(message: &RabbitMqMessage) -> Option<&str> {
        Some(&message.queue_and_host)
    }

    /// The broker says that a delivery is repeated, but not how often.
    fn deliveries(message: &RabbitMqMessage) -> Option<u32> {
        message.redelivered.then_some(2)
    }

    /// Returns the text of a header that the producer set: a text, in Base64 where it is not UTF-8,
    /// or the JSON text of a number or a truth value.
    fn attribute(message: &RabbitMqMessage, name: &str) -> Option<String> {
        match message.headers.get(name)? {
            Header::Text { bytes } => bytes.text(),
            Header::Other(Value::String(text)) => Some(text.clone()),
            Header::Other(Value::Null) => None,
            Header::Other(other) => Some(other.to_string()),
        }
    }

    fn reply(_: Vec<String>) {}

    messaging_spans! {
        system: "rabbitmq", trigger: "pubsub", verb: "receive", destination: &message.queue,
        |messages| "rabbitmq_batch" {}
        |message| "rabbitmq_message" {
            messaging.message.id = Self::id(message).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn messages(fields: &[Value]) -> Vec<RabbitMqMessage> {
        let arn = "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1";
        let event = json!({
            "eventSource": "aws:rmq",
            "eventSourceArn": arn,
            "rmqMessagesByQueue": { "bills::/": fields },
        });
        let event = serde_json::from_value(event).unwrap();
        RabbitMqEvent::records(event)
    }

    fn with_id(id: &Value) -> Value {
        json!({ "basicProperties": { "messageId": id }, "data": "Nw==" })
    }

    #[test]
    fn a_message_without_an_id_has_no_key_and_can_be_reported() {
        let ids = [json!("p-1"), json!(null), json!(""), json!("p-1")];
        let messages = messages(&ids.each_ref().map(with_id));
        let ids: Vec<_> = messages
            .iter()
            .map(|message| RabbitMqEvent::id(message).unwrap())
            .collect();
        assert_eq!(ids, ["p-1", "bills::/[1]", "bills::/[2]", "p-1"]);
        let tokens: Vec<_> = messages.iter().map(RabbitMqEvent::token).collect();
        assert!(tokens[0].is_some() && tokens[0] == tokens[3]);
        assert_eq!(tokens[1..3], [None, None]);
    }

    #[test]
    fn headers_are_text() {
        let headers = json!({ "id": { "bytes": [112, 45, 49] }, "raw": { "bytes": [-56] }, "count": 10, "none": null });
        let messages = messages(&[
            json!({ "basicProperties": { "headers": headers } }),
            json!({}),
        ]);
        for (name, expected) in [
            ("id", Some("p-1")),
            ("raw", Some("yA==")),
            ("count", Some("10")),
            ("none", None),
            ("other", None),
        ] {
            assert_eq!(
                RabbitMqEvent::attribute(&messages[0], name).as_deref(),
                expected
            );
            assert_eq!(RabbitMqEvent::attribute(&messages[1], name), None);
        }
        assert!(RabbitMqEvent::body(&messages[1]).is_err());
    }

    #[test]
    fn neither_data_nor_headers_are_shown() {
        let properties = json!({ "messageId": "p-1", "headers": { "card": "secret" } });
        let fields = json!({ "basicProperties": properties, "data": "c2VjcmV0" });
        let shown = format!("{:?}", messages(&[fields]));
        assert!(
            shown.contains("p-1") && !shown.contains("secret") && !shown.contains("115"),
            "{shown}"
        );
    }

    #[test]
    fn the_queue_has_its_virtual_host_where_names_must_differ() {
        let message = &messages(&[with_id(&json!(null))])[0];
        assert_eq!(&*message.queue, "bills");
        assert_eq!(RabbitMqEvent::origin(message), Some("bills::/"));
        assert_eq!(RabbitMqEvent::order_key(message), Some("bills::/"));
    }

    #[test]
    fn a_redelivered_message_is_a_repeated_one() {
        let deliveries = |fields: Value| RabbitMqEvent::deliveries(&messages(&[fields])[0]);
        assert_eq!(deliveries(json!({ "redelivered": true })), Some(2));
        assert_eq!(deliveries(json!({ "redelivered": false })), None);
        assert_eq!(deliveries(json!({})), None);
    }

    #[test]
    fn the_event_of_another_source_is_an_error() {
        let active = json!({ "eventSource": "aws:mq", "rmqMessagesByQueue": {} });
        assert!(serde_json::from_value::<RabbitMqEvent>(active).is_err());
    }
}
