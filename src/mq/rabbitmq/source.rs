//! Implements [`Source`] for RabbitMQ. The names of its spans and their fields are those of
//! OpenTelemetry's conventions for messaging and for functions.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::mq::rabbitmq::event::{RabbitMqEvent, RabbitMqMessage};

/// Names RabbitMQ as the [`Source`] of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RabbitMq;

impl Source for RabbitMq {
    type Event = RabbitMqEvent;
    type Record = RabbitMqMessage;
    type Reply = ();

    const NAME: &'static str = "rabbitmq";

    /// Lambda has no partial replies for Amazon MQ.
    const READS_REPLY: bool = false;

    fn records(event: RabbitMqEvent) -> Vec<RabbitMqMessage> {
        event.messages
    }

    /// Gives the message id, or the queue and the message's position in the event: RabbitMQ has an
    /// id only where the producer set one.
    fn id(message: &RabbitMqMessage) -> Option<&str> {
        Some(message.id())
    }

    fn token(message: &RabbitMqMessage) -> Option<Cow<'_, str>> {
        message.token().map(Cow::Owned)
    }

    fn body(message: &RabbitMqMessage) -> Result<&[u8], BodyError> {
        message.body()
    }

    fn origin(message: &RabbitMqMessage) -> Option<&str> {
        Some(message.queue_and_host()).filter(|queue| !queue.is_empty())
    }

    fn order_key(message: &RabbitMqMessage) -> Option<&str> {
        Some(message.queue_and_host())
    }

    /// Lambda promises no order: a message that comes again may come after a later one.
    fn is_ordered(_: &RabbitMqMessage) -> bool {
        false
    }

    /// The broker says that a delivery is repeated, but not how often.
    fn deliveries(message: &RabbitMqMessage) -> Option<u32> {
        message.redelivered.then_some(2)
    }

    fn attribute(message: &RabbitMqMessage, name: &str) -> Option<String> {
        message.header(name)
    }

    fn reply(_: Vec<String>) {}

    fn batch_span(messages: &[RabbitMqMessage], context: &Context) -> Span {
        let queue = messages.first().map_or("", RabbitMqMessage::queue);
        info_span!(
            "rabbitmq_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {queue}"),
            faas.trigger = "pubsub",
            faas.invocation_id = context.request_id,
            messaging.system = "rabbitmq",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = queue,
            messaging.batch.message_count = messages.len(),
        )
    }

    fn record_span(message: &RabbitMqMessage) -> Span {
        let queue = message.queue();
        info_span!(
            "rabbitmq_message",
            otel.kind = "consumer",
            otel.name = format_args!("process {queue}"),
            messaging.system = "rabbitmq",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = queue,
            messaging.message.id = message.id(),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn messages(fields: &[Value]) -> Vec<RabbitMqMessage> {
        let arn = "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1";
        let event = json!({
            "eventSource": "aws:rmq",
            "eventSourceArn": arn,
            "rmqMessagesByQueue": { "bills::/": fields },
        });
        let event = serde_json::from_value(event).unwrap();
        RabbitMq::records(event)
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
            .map(|message| RabbitMq::id(message).unwrap())
            .collect();
        assert_eq!(ids, ["p-1", "bills::/[1]", "bills::/[2]", "p-1"]);
        let tokens: Vec<_> = messages.iter().map(RabbitMq::token).collect();
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
            assert_eq!(RabbitMq::attribute(&messages[0], name).as_deref(), expected);
            assert_eq!(RabbitMq::attribute(&messages[1], name), None);
        }
        assert!(RabbitMq::body(&messages[1]).is_err());
    }

    #[test]
    fn the_queue_has_its_virtual_host_where_names_must_differ() {
        let message = &messages(&[with_id(&json!(null))])[0];
        assert_eq!(message.queue(), "bills");
        assert_eq!(RabbitMq::origin(message), Some("bills::/"));
    }

    #[test]
    fn the_event_of_another_source_is_an_error() {
        let active = json!({ "eventSource": "aws:mq", "rmqMessagesByQueue": {} });
        assert!(serde_json::from_value::<RabbitMqEvent>(active).is_err());
    }
}
