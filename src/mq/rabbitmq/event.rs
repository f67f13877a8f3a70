//! Decodes the event of a RabbitMQ event source mapping.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::batch::BodyError;
use crate::streams::{Data, HeaderBytes, token};

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

/// Holds one message as Lambda delivers it. Lambda sends the data in Base64, which is decoded here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RabbitMqMessage {
    /// The properties that the producer set.
    pub properties: BasicProperties,
    /// Says whether the broker has delivered the message before.
    pub redelivered: bool,
    broker: Option<Arc<str>>,
    queue: Arc<str>,
    place: String,
    data: Data,
}

/// Holds the properties of a RabbitMQ message; each is `None` where the producer set none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BasicProperties {
    /// The id of the message.
    pub message_id: Option<String>,
    /// The id of the request that the message belongs to.
    pub correlation_id: Option<String>,
    /// The media type of the data.
    pub content_type: Option<String>,
    /// The type of the message, in the producer's words.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The program that sent the message.
    pub app_id: Option<String>,
    headers: Option<BTreeMap<String, Header>>,
}

/// Texts arrive as bytes, numbers and truth values as such.
#[derive(Clone, Debug, Deserialize)]
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

impl From<Wire> for RabbitMqEvent {
    fn from(wire: Wire) -> Self {
        let broker = wire.event_source_arn;
        let queues = wire.rmq_messages_by_queue.into_iter();
        let messages = queues.flat_map(|(queue, messages)| {
            let (queue, broker): (Arc<str>, _) = (queue.into(), broker.clone());
            let message = move |(position, fields): (usize, Fields)| RabbitMqMessage {
                properties: fields.basic_properties.unwrap_or_default(),
                redelivered: fields.redelivered.unwrap_or_default(),
                broker: broker.clone(),
                place: format!("{queue}[{position}]"),
                queue: Arc::clone(&queue),
                data: fields.data,
            };
            messages.into_iter().enumerate().map(message)
        });
        Self {
            messages: messages.collect(),
        }
    }
}

impl RabbitMqMessage {
    /// Names queue and virtual host as the event does, such as `bills::/`.
    pub fn queue_and_host(&self) -> &str {
        &self.queue
    }

    /// Names the queue.
    pub fn queue(&self) -> &str {
        let parts = self.queue.rsplit_once("::");
        parts.map_or(&self.queue, |(queue, _)| queue)
    }

    /// Gives the text of a header that the producer set: a text, in Base64 where it is not UTF-8,
    /// or the JSON text of a number or a truth value.
    pub fn header(&self, name: &str) -> Option<String> {
        match self.properties.headers.as_ref()?.get(name)? {
            Header::Text { bytes } => bytes.text(),
            Header::Other(Value::String(text)) => Some(text.clone()),
            Header::Other(Value::Null) => None,
            Header::Other(other) => Some(other.to_string()),
        }
    }

    /// Gives the bytes of the message; `None` where it has none, or where they are not Base64.
    pub fn data(&self) -> Option<&[u8]> {
        self.data.bytes().ok()
    }

    pub(super) fn body(&self) -> Result<&[u8], BodyError> {
        self.data.bytes()
    }

    fn message_id(&self) -> Option<&str> {
        let id = self.properties.message_id.as_deref();
        id.filter(|id| !id.is_empty())
    }

    /// The message id, or the message's place in the event: the broker gives no id.
    pub(super) fn id(&self) -> &str {
        self.message_id().unwrap_or(&self.place)
    }

    /// Copies of one message in several queues have one id, so the queue is in the token.
    pub(super) fn token(&self) -> Option<String> {
        let queue = token(self.broker.as_deref()?, &self.queue);
        Some(token(&queue, self.message_id()?))
    }
}
