//! Implements [`Source`] for SQS. The names of its spans and their fields are those of
//! OpenTelemetry's conventions for messaging and for functions.

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use data_encoding::BASE64;
use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Message, Source};
use crate::sqs::trace::Origin;

/// Names SQS as the [`Source`] of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Sqs;

impl Source for Sqs {
    type Event = SqsEvent;
    type Record = SqsMessage;
    type Reply = SqsBatchResponse;

    const NAME: &'static str = "sqs";

    fn records(event: SqsEvent) -> Vec<SqsMessage> {
        event.records
    }

    fn id(message: &SqsMessage) -> Option<&str> {
        message.message_id.as_deref()
    }

    fn body(message: &SqsMessage) -> Result<&[u8], BodyError> {
        let body = message.body.as_ref().ok_or(BodyError::MISSING)?;
        Ok(body.as_bytes())
    }

    /// Takes the last part of `arn:aws:sqs:region:account:queue`.
    fn origin(message: &SqsMessage) -> Option<&str> {
        let arn = message.event_source_arn.as_deref()?;
        arn.rsplit(':').next().filter(|name| !name.is_empty())
    }

    fn order_key(message: &SqsMessage) -> Option<&str> {
        message.attributes.get("MessageGroupId").map(String::as_str)
    }

    fn is_ordered(message: &SqsMessage) -> bool {
        let arn = message.event_source_arn.as_deref();
        arn.is_some_and(|arn| arn.strip_suffix(".fifo").is_some())
    }

    fn deliveries(message: &SqsMessage) -> Option<u32> {
        let count = message.attributes.get("ApproximateReceiveCount")?;
        count.parse().ok()
    }

    /// Gives the text of a message attribute, or the Base64 text of its bytes.
    fn attribute(message: &SqsMessage, name: &str) -> Option<String> {
        let attribute = message.message_attributes.get(name)?;
        match (&attribute.string_value, &attribute.binary_value) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(bytes)) => Some(BASE64.encode(&bytes.0)),
            (None, None) => None,
        }
    }

    fn reply(failed: Vec<String>) -> SqsBatchResponse {
        let mut response = SqsBatchResponse::default();
        for id in failed {
            response.add_failure(id);
        }
        response
    }

    fn batch_span(messages: &[SqsMessage], context: &Context) -> Span {
        let queue = messages.first().map_or("", queue);
        info_span!(
            "sqs_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {queue}"),
            faas.trigger = "pubsub",
            faas.invocation_id = context.request_id,
            messaging.system = "aws_sqs",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = queue,
            messaging.batch.message_count = messages.len(),
        )
    }

    /// Links the producer's span instead of making it the parent: one invocation works for many
    /// producers.
    fn record_span(message: &SqsMessage) -> Span {
        let queue = queue(message);
        info_span!(
            "sqs_message",
            otel.kind = "consumer",
            otel.name = format_args!("process {queue}"),
            messaging.system = "aws_sqs",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = queue,
            messaging.message.id = message.message_id.as_deref().unwrap_or_default(),
            link.traceparent = Origin::of(message).map(|origin| origin.traceparent()),
        )
    }
}

fn queue(message: &SqsMessage) -> &str {
    Sqs::origin(message).unwrap_or_default()
}

impl<T> Message<Sqs, T> {
    /// Counts the receives of the message, this one included: SQS's `ApproximateReceiveCount`.
    /// `None` where the event has no such number.
    pub fn receive_count(&self) -> Option<u32> {
        Sqs::deliveries(&self.metadata)
    }

    /// Gives the producer's place in its trace, as a W3C `traceparent`: from `AWSTraceHeader`,
    /// which SQS passes on where the producer was traced. The message's span has it as
    /// `link.traceparent`; hand it to your tracer to make a real link of it.
    ///
    /// ```
    /// # fn shown(message: &lambda_idempotency::sqs::Message<u32>) {
    /// if let Some(traceparent) = message.traceparent() {
    ///     // With `tracing-opentelemetry`: extract a `SpanContext` from it, and `Span::current().add_link(context)`.
    ///     println!("{traceparent}"); // 00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01
    /// }
    /// # }
    /// ```
    pub fn traceparent(&self) -> Option<String> {
        Origin::of(&self.metadata).map(|origin| origin.traceparent())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(attribute: &serde_json::Value) -> Option<String> {
        let message = json!({ "messageAttributes": { "id": attribute } });
        let message = serde_json::from_value(message).unwrap();
        Sqs::attribute(&message, "id")
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
        assert_eq!(Sqs::attribute(&SqsMessage::default(), "id"), None);
    }
}
