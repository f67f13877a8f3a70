//! Implements [`Source`] for S3 notifications. The names of its spans and their fields are those of
//! OpenTelemetry's conventions for functions.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::s3_events::event::{S3Event, S3Record};

/// Names S3 notifications as the [`Source`] of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct S3Events;

impl Source for S3Events {
    type Event = S3Event;
    type Record = S3Record;
    type Reply = ();

    const NAME: &'static str = "s3_events";

    /// The invocation is asynchronous: only a failed one comes again.
    const READS_REPLY: bool = false;

    fn records(event: S3Event) -> Vec<S3Record> {
        event.records
    }

    fn id(record: &S3Record) -> Option<&str> {
        Some(record.id())
    }

    fn token(record: &S3Record) -> Option<Cow<'_, str>> {
        record.token().map(Cow::Borrowed)
    }

    /// Gives the JSON text of the record.
    fn body(record: &S3Record) -> Result<&[u8], BodyError> {
        Ok(record.json().as_bytes())
    }

    fn origin(record: &S3Record) -> Option<&str> {
        Some(record.bucket.as_str()).filter(|bucket| !bucket.is_empty())
    }

    fn order_key(record: &S3Record) -> Option<&str> {
        Some(&record.encoded_key)
    }

    /// S3 promises no order: compare sequencers.
    fn is_ordered(_: &S3Record) -> bool {
        false
    }

    fn reply(_: Vec<String>) {}

    fn batch_span(records: &[S3Record], context: &Context) -> Span {
        let bucket = records.first().map_or("", |record| &record.bucket);
        info_span!(
            "s3_events_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {bucket}"),
            faas.trigger = "datasource",
            faas.invocation_id = context.request_id,
            faas.document.collection = bucket,
            messaging.batch.message_count = records.len(),
        )
    }

    fn record_span(record: &S3Record) -> Span {
        let operation = match record.event_name.split(':').next() {
            Some("ObjectCreated") => "insert",
            Some("ObjectRemoved" | "LifecycleExpiration") => "delete",
            _ => "edit",
        };
        info_span!(
            "s3_events_record",
            otel.kind = "consumer",
            otel.name = format_args!("process {}", record.bucket),
            faas.trigger = "datasource",
            faas.document.collection = record.bucket,
            faas.document.operation = operation,
            faas.document.time = record.event_time,
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::envelope::Envelope;

    const NOTIFICATION: &str = include_str!("../../tests/fixtures/s3-notification.json");

    fn read(event: &str) -> Result<Vec<S3Record>, String> {
        let event = serde_json::from_str(event);
        event
            .map(S3Events::records)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_is_that_of_the_same_notification_in_a_queue() {
        let record = read(NOTIFICATION).unwrap().remove(0);
        let queued = Envelope::open_all(&[Envelope::S3], NOTIFICATION.as_bytes(), None);
        let queued = queued.unwrap().unwrap();
        assert!(queued.id.is_some());
        assert_eq!(S3Events::token(&record).as_deref(), queued.id.as_deref());
        assert_eq!(record.json(), queued.text);
    }

    #[test]
    fn an_object_key_is_decoded() {
        let record = |key: &str| {
            let mut event: Value = serde_json::from_str(NOTIFICATION).unwrap();
            event["Records"][0]["s3"]["object"]["key"] = json!(key);
            read(&event.to_string()).unwrap().remove(0)
        };
        let decoded = |key: &str| record(key).object_key();
        assert_eq!(
            decoded("a/red+flower.pdf").as_deref(),
            Some("a/red flower.pdf")
        );
        assert_eq!(decoded("1%2B1+%C3%BC.txt").as_deref(), Some("1+1 ü.txt"));
        assert_eq!(decoded("%FF"), None);
    }

    #[test]
    fn a_record_without_a_sequencer_has_no_key() {
        let mut event: Value = serde_json::from_str(NOTIFICATION).unwrap();
        let object = event["Records"][0]["s3"]["object"].as_object_mut().unwrap();
        object.remove("sequencer").unwrap();
        let record = read(&event.to_string()).unwrap().remove(0);
        assert_eq!(S3Events::token(&record), None);
        assert_eq!(S3Events::id(&record), Some("record-0"));
    }

    #[test]
    fn a_test_event_has_no_records_and_another_event_is_an_error() {
        let test = r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}"#;
        assert!(read(test).unwrap().is_empty());
        for (event, expected) in [
            (r#"{"Event":"secret"}"#, "no S3 notification"),
            (
                r#"{"Records":[{"eventSource":"aws:sqs","body":"secret"}]}"#,
                "not of S3",
            ),
            (
                r#"{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put"}]}"#,
                "not of S3",
            ),
        ] {
            let said = read(event).unwrap_err();
            assert!(
                said.contains(expected) && !said.contains("secret"),
                "{said}"
            );
        }
    }
}
