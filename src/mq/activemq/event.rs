//! Decodes the event of an ActiveMQ event source mapping.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::batch::BodyError;
use crate::streams::{Data, token};

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

/// Holds one message as Lambda delivers it. Lambda sends the data in Base64, which is decoded here.
#[derive(Clone, Debug)]
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
    broker: Option<Arc<str>>,
    queue: Option<String>,
    data: Data,
    properties: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(rename = "eventSource")]
    _source: EventSource,
    event_source_arn: Option<Arc<str>>,
    messages: Vec<Fields>,
}

/// The value that Lambda documents; the event of another source is an error.
#[derive(Deserialize)]
enum EventSource {
    #[serde(rename = "aws:mq")]
    ActiveMq,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    #[serde(rename = "messageID")]
    message_id: Option<String>,
    message_type: Option<String>,
    #[serde(rename = "correlationID")]
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
            queue: fields.destination.and_then(|place| place.physical_name),
            data: fields.data,
            properties: fields.properties.unwrap_or_default(),
        };
        Self {
            messages: wire.messages.into_iter().map(message).collect(),
        }
    }
}

impl ActiveMqMessage {
    /// Names the queue.
    pub fn queue(&self) -> Option<&str> {
        self.queue.as_deref().filter(|queue| !queue.is_empty())
    }

    /// Gives the text of a property that the producer set: a string, or the JSON text of a number
    /// or a truth value.
    pub fn property(&self, name: &str) -> Option<String> {
        match self.properties.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    /// Gives the bytes of the message; `None` where it has none, or where they are not Base64.
    pub fn data(&self) -> Option<&[u8]> {
        self.data.bytes().ok()
    }

    pub(super) fn body(&self) -> Result<&[u8], BodyError> {
        self.data.bytes()
    }

    /// Copies of one message in several queues have one id, so the queue is in the token.
    pub(super) fn token(&self) -> Option<String> {
        let broker = self.broker.as_deref()?;
        let queue = token(broker, self.queue().unwrap_or_default());
        Some(token(&queue, self.message_id.as_deref()?))
    }
}
