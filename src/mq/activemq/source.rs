//! Implements [`Source`] for ActiveMQ. The names of its spans and their fields are those of
//! OpenTelemetry's conventions for messaging and for functions.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::mq::activemq::event::{ActiveMqEvent, ActiveMqMessage};

/// Names ActiveMQ as the [`Source`] of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ActiveMq;

impl Source for ActiveMq {
    type Event = ActiveMqEvent;
    type Record = ActiveMqMessage;
    type Reply = ();

    const NAME: &'static str = "activemq";

    /// Lambda has no partial replies for Amazon MQ.
    const READS_REPLY: bool = false;

    fn records(event: ActiveMqEvent) -> Vec<ActiveMqMessage> {
        event.messages
    }

    fn id(message: &ActiveMqMessage) -> Option<&str> {
        message.message_id.as_deref()
    }

    fn token(message: &ActiveMqMessage) -> Option<Cow<'_, str>> {
        message.token().map(Cow::Owned)
    }

    fn body(message: &ActiveMqMessage) -> Result<&[u8], BodyError> {
        message.body()
    }

    fn origin(message: &ActiveMqMessage) -> Option<&str> {
        message.queue()
    }

    fn order_key(message: &ActiveMqMessage) -> Option<&str> {
        message.queue()
    }

    /// Lambda promises no order: by default, up to five invocations read one queue side by side.
    fn is_ordered(_: &ActiveMqMessage) -> bool {
        false
    }

    /// The broker says that a delivery is repeated, but not how often.
    fn deliveries(message: &ActiveMqMessage) -> Option<u32> {
        message.redelivered.then_some(2)
    }

    fn attribute(message: &ActiveMqMessage, name: &str) -> Option<String> {
        message.property(name)
    }

    fn reply(_: Vec<String>) {}

    fn batch_span(messages: &[ActiveMqMessage], context: &Context) -> Span {
        let queue = messages.first().and_then(ActiveMqMessage::queue);
        let queue = queue.unwrap_or_default();
        info_span!(
            "activemq_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {queue}"),
            faas.trigger = "pubsub",
            faas.invocation_id = context.request_id,
            messaging.system = "activemq",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = queue,
            messaging.batch.message_count = messages.len(),
        )
    }

    fn record_span(message: &ActiveMqMessage) -> Span {
        let queue = message.queue().unwrap_or_default();
        info_span!(
            "activemq_message",
            otel.kind = "consumer",
            otel.name = format_args!("process {queue}"),
            messaging.system = "activemq",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = queue,
            messaging.message.id = message.message_id.as_deref().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(fields: &Value) -> ActiveMqMessage {
        let arn = "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1";
        let event = json!({ "eventSource": "aws:mq", "eventSourceArn": arn, "messages": [fields] });
        let event = serde_json::from_value(event).unwrap();
        ActiveMq::records(event).remove(0)
    }

    fn token(id: &str, queue: &str) -> String {
        let fields = json!({ "messageID": id, "destination": { "physicalName": queue } });
        ActiveMq::token(&message(&fields)).unwrap().into_owned()
    }

    #[test]
    fn a_key_names_broker_queue_and_message() {
        assert_eq!(token("ID:1", "orders"), token("ID:1", "orders"));
        assert_ne!(token("ID:1", "orders"), token("ID:2", "orders"));
        assert_ne!(token("ID:1", "orders"), token("ID:1", "bills"));
        assert_eq!(ActiveMq::id(&message(&json!({}))), None);
        let on_a_queue = message(&json!({ "destination": { "physicalName": "orders" } }));
        assert_eq!(ActiveMq::origin(&on_a_queue), Some("orders"));
    }

    #[test]
    fn a_redelivered_message_is_a_repeated_one() {
        let deliveries = |fields: Value| ActiveMq::deliveries(&message(&fields));
        assert_eq!(deliveries(json!({ "redelivered": true })), Some(2));
        assert_eq!(deliveries(json!({ "redelivered": false })), None);
        assert_eq!(deliveries(json!({})), None);
    }

    #[test]
    fn properties_are_text() {
        let message = message(&json!({ "properties": { "id": "p-1", "count": 7, "none": null } }));
        assert_eq!(ActiveMq::attribute(&message, "id").as_deref(), Some("p-1"));
        assert_eq!(ActiveMq::attribute(&message, "count").as_deref(), Some("7"));
        assert_eq!(ActiveMq::attribute(&message, "none"), None);
    }

    #[test]
    fn the_event_of_another_source_is_an_error() {
        let rabbit = json!({ "eventSource": "aws:rmq", "messages": [] });
        assert!(serde_json::from_value::<ActiveMqEvent>(rabbit).is_err());
    }
}
