//! Implements [`Source`] for DynamoDB Streams. The names of its spans and their fields are those of
//! OpenTelemetry's conventions for messaging and for functions.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Message, Source};
use crate::dynamodb_streams::event::{DynamoDbStreamEvent, DynamoDbStreamRecord, table_arn};
use crate::streams::{ItemFailures, token};

/// Names DynamoDB Streams as the [`Source`] of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DynamoDbStreams;

impl Source for DynamoDbStreams {
    type Event = DynamoDbStreamEvent;
    type Record = DynamoDbStreamRecord;
    type Reply = ItemFailures;

    const NAME: &'static str = "dynamodb_streams";

    fn records(event: DynamoDbStreamEvent) -> Vec<DynamoDbStreamRecord> {
        event.records
    }

    fn id(record: &DynamoDbStreamRecord) -> Option<&str> {
        record.sequence_number.as_deref()
    }

    /// Joins the stream's ARN and the event's id: ids are unique within one stream alone.
    fn token(record: &DynamoDbStreamRecord) -> Option<Cow<'_, str>> {
        let present = |text: &&str| !text.is_empty();
        let stream = record.event_source_arn.as_deref().filter(present)?;
        let id = record.event_id.as_deref().filter(present)?;
        Some(Cow::Owned(token(stream, id)))
    }

    fn body(record: &DynamoDbStreamRecord) -> Result<&[u8], BodyError> {
        record.body()
    }

    /// Takes the table's name.
    fn origin(record: &DynamoDbStreamRecord) -> Option<&str> {
        let (_, name) = table_arn(record.event_source_arn.as_deref()?)?.split_once(":table/")?;
        (!name.is_empty()).then_some(name)
    }

    fn order_key(record: &DynamoDbStreamRecord) -> Option<&str> {
        record.order_key()
    }

    fn is_ordered(_: &DynamoDbStreamRecord) -> bool {
        true
    }

    fn reply(failed: Vec<String>) -> ItemFailures {
        ItemFailures::lowest(failed)
    }

    fn batch_span(records: &[DynamoDbStreamRecord], context: &Context) -> Span {
        let table = records.first().map_or("", table);
        info_span!(
            "dynamodb_streams_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {table}"),
            faas.trigger = "datasource",
            faas.invocation_id = context.request_id,
            messaging.system = "aws_dynamodb_streams",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = table,
            messaging.batch.message_count = records.len(),
        )
    }

    fn record_span(record: &DynamoDbStreamRecord) -> Span {
        let table = table(record);
        info_span!(
            "dynamodb_streams_record",
            otel.kind = "consumer",
            otel.name = format_args!("process {table}"),
            messaging.system = "aws_dynamodb_streams",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = table,
            messaging.message.id = record.sequence_number.as_deref().unwrap_or_default(),
        )
    }
}

fn table(record: &DynamoDbStreamRecord) -> &str {
    DynamoDbStreams::origin(record).unwrap_or_default()
}

impl<T> Message<DynamoDbStreams, T> {
    /// Tells whether DynamoDB removed the item because its time to live was over, as
    /// [`DynamoDbStreamRecord::is_expiry`] does.
    pub fn is_expiry(&self) -> bool {
        self.metadata.is_expiry()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STREAM: &str =
        "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000";

    fn record(arn: &str, event_id: &str) -> DynamoDbStreamRecord {
        let record = json!({ "eventSourceARN": arn, "eventID": event_id });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_token_names_the_stream_and_the_record() {
        let token = |arn: &str, id: &str| {
            let record = record(arn, id);
            DynamoDbStreams::token(&record).map(Cow::into_owned)
        };
        assert_eq!(token(STREAM, "c81e"), Some(format!("{STREAM}#c81e")));
        let anew = STREAM.replace("2026-01", "2026-02");
        assert_ne!(token(STREAM, "c81e"), token(&anew, "c81e"));
        assert_eq!(token("", "c81e"), None);
        assert_eq!(token(STREAM, ""), None);
    }

    #[test]
    fn the_table_names_the_operation() {
        assert_eq!(
            DynamoDbStreams::origin(&record(STREAM, "1")),
            Some("orders")
        );
        assert_eq!(DynamoDbStreams::origin(&record("orders", "1")), None);
        assert_eq!(DynamoDbStreams::origin(&record("", "1")), None);
    }
}
