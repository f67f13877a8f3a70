//! Makes a handler of S3 notifications, sent to the function itself, of a handler of one record.
//!
//! [`BatchLayer`] takes the key of each record, and runs the handler for it once. The invocation is
//! asynchronous, and no reply is read: where a record must be delivered again, the whole invocation fails
//! with [`BatchError::Incomplete`], and Lambda [invokes the function again][async] with the same
//! records. Those that are done are replayed. For notifications that arrive through a queue, use
//! `sqs` and [`Envelope::S3`](crate::batch::Envelope::S3); both make the same keys.
//!
//! ```
//! use lambda_idempotency::{Idempotency, s3_events, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use serde::de::IgnoredAny;
//! use tower::Service;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("invoices").build()?;
//! let mut worker = s3_events::BatchLayer::new(once)
//!     .operation("import")
//!     .handler(|record: s3_events::Message<IgnoredAny>| async move {
//!         println!("{}: {:?}", record.metadata.bucket, record.metadata.object_key);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, one record by hand.
//! let event: s3_events::S3Event = serde_json::from_str(
//!     r#"{"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": {
//!         "bucket": {"name": "amzn-s3-demo-bucket"},
//!         "object": {"key": "invoices/red+flower.pdf", "sequencer": "0055AED6DCD90281E5"}
//!     }}]}"#,
//! )?;
//! worker.call(LambdaEvent::new(event, Context::default())).await?;
//! # Ok(()) }
//! ```
//!
//! The body is the record's JSON: decode into a type of your own, or into `IgnoredAny` where
//! `message.metadata`, an [`S3Record`], is enough.
//!
//! # Which key
//!
//! The default is bucket, object key and `sequencer`. It survives Lambda's retries, and a
//! notification that S3 sends [twice][twice]. A later write of the same object has another
//! sequencer, so it runs. AWS documents a [sequencer][content] for events that create or delete an
//! object. Take the key of others (tags, access, restores) from the body: without a sequencer they
//! are reported as messages without a key.
//!
//! # In which order
//!
//! Notifications arrive in any order. Where an older one must not win over a newer one, store the
//! `sequencer` as a [`Version`](crate::store::version::Version) with what the handler writes, and write
//! only where the arriving one is greater.
//!
//! # What fails
//!
//! The test event that S3 sends when notifications are set up has no records, and is done. An event
//! of another source fails the invocation before anything runs. By default Lambda tries a function
//! that fails [three times in all][async], then discards the event: set an on-failure destination,
//! and take what no retry will fix with [`on_rejected`](BatchLayer::on_rejected).
//!
//! `sqs` has the rest: what is compared, what is logged, and what happens when time runs out.
//!
//! [async]: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
//! [content]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
//! [twice]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventNotifications.html

use std::borrow::Cow;

use lambda_runtime::Context;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::envelope::{S3Entity, S3Notification, object_key, s3_identity};

pub use crate::batch::{BatchError, Order, Rejected, Rejection};

/// Makes a handler of S3 notifications of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<S3Event, T, E>;

/// Holds one record of an S3 notification: its decoded JSON, the claim of its handler, and the
/// record as S3 delivered it.
pub type Message<T> = crate::batch::Message<S3Event, T>;

/// Holds the records of one [notification][page]. The test event that S3 sends when notifications
/// are set up has none.
///
/// [page]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct S3Event {
    /// The records, in their order.
    pub records: Vec<S3Record>,
}

/// Holds one record as S3 delivers it.
#[derive(Clone)]
#[non_exhaustive]
pub struct S3Record {
    /// The name of the event, such as `ObjectCreated:Put`.
    pub event_name: String,
    /// The time of the event, in ISO 8601.
    pub event_time: Option<String>,
    /// The name of the bucket.
    pub bucket: String,
    /// The object's key as it arrives, URL-encoded, with `+` for a space.
    pub encoded_key: String,
    /// The object's key, decoded; `None` where that is not UTF-8, which S3 never sends.
    pub object_key: Option<String>,
    /// The object's size in bytes; `None` where it was deleted.
    pub size: Option<u64>,
    /// The object's entity tag.
    pub e_tag: Option<String>,
    /// The object's version, in a bucket with versions.
    pub version_id: Option<String>,
    /// The place of the event among those of its object; `None` where the event has none. AWS
    /// documents it for events that create or delete an object.
    /// [`Version::sequencer`](crate::store::version::Version::sequencer) compares it.
    pub sequencer: Option<String>,
    /// The JSON text of the record.
    pub json: Box<str>,
    id: String,
    token: Option<String>,
}

debug_fields!([] S3Record { id, event_name, event_time, bucket, version_id, sequencer });

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    #[serde(rename = "eventSource")]
    _source: EventSource,
    event_name: String,
    event_time: Option<String>,
    s3: S3Entity<Object>,
}

/// The value that S3 documents; a record of another source is an error.
#[derive(Deserialize)]
enum EventSource {
    #[serde(rename = "aws:s3")]
    S3,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    key: String,
    size: Option<u64>,
    e_tag: Option<String>,
    version_id: Option<String>,
    sequencer: Option<String>,
}

impl<'de> Deserialize<'de> for S3Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const NO_NOTIFICATION: &str = "the event is no S3 notification: it has no `Records`";
        const NO_RECORD: &str = "the event holds a record that is not of S3";
        let wire = S3Notification::<Box<RawValue>>::deserialize(deserializer)?;
        let records = match (wire.records, wire.event.as_deref()) {
            (Some(records), _) => records,
            (None, Some("s3:TestEvent")) => Vec::new(),
            (None, _) => return Err(D::Error::custom(NO_NOTIFICATION)),
        };
        // The parser's message may quote the record.
        let read = |(position, json): (usize, Box<RawValue>)| {
            let fields = serde_json::from_str(json.get());
            let fields = fields.map_err(|_| D::Error::custom(NO_RECORD))?;
            Ok(S3Record::new(position, fields, json))
        };
        let records: Result<_, D::Error> = records.into_iter().enumerate().map(read).collect();
        Ok(Self { records: records? })
    }
}

impl S3Record {
    fn new(position: usize, fields: Fields, json: Box<RawValue>) -> Self {
        let S3Entity { bucket, object } = fields.s3;
        let sequencer = object.sequencer.clone().unwrap_or_default();
        let token = s3_identity(bucket.name.clone(), object.key.clone(), sequencer);
        Self {
            event_name: fields.event_name,
            event_time: fields.event_time,
            bucket: bucket.name,
            object_key: object_key(&object.key),
            encoded_key: object.key,
            size: object.size,
            e_tag: object.e_tag,
            version_id: object.version_id,
            sequencer: object.sequencer,
            id: token
                .clone()
                .unwrap_or_else(|| format!("record-{position}")),
            token,
            json: json.into(),
        }
    }
}

impl Source for S3Event {
    type Record = S3Record;
    type Reply = ();

    const NAME: &'static str = "s3_events";

    /// The invocation is asynchronous: only a failed one is delivered again.
    const READS_REPLY: bool = false;

    fn records(self) -> Vec<S3Record> {
        self.records
    }

    /// Returns the token, or the record's position in the event: a notification has no id.
    fn id(record: &S3Record) -> Option<&str> {
        Some(&record.id)
    }

    fn token(record: &S3Record) -> Option<Cow<'_, str>> {
        record.token.as_deref().map(Cow::Borrowed)
    }

    /// Returns the JSON text of the record.
    fn body(record: &S3Record) -> Result<&[u8], BodyError> {
        Ok(record.json.as_bytes())
    }

    fn origin(record: &S3Record) -> Option<&str> {
        Some(record.bucket.as_str()).filter(|bucket| !bucket.is_empty())
    }

    /// Returns the object's key. S3 promises no order: compare sequencers.
    fn order_key(record: &S3Record) -> Option<&str> {
        Some(&record.encoded_key)
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
    use super::*;
    use serde_json::{Value, json};

    use crate::envelope::Envelope;

    const NOTIFICATION: &str = include_str!("../tests/fixtures/s3-notification.json");

    fn read(event: &str) -> Result<Vec<S3Record>, String> {
        let event = serde_json::from_str(event);
        event
            .map(S3Event::records)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_is_that_of_the_same_notification_in_a_queue() {
        let record = read(NOTIFICATION).unwrap().remove(0);
        let queued = Envelope::open_all(&[Envelope::S3], NOTIFICATION.as_bytes(), None);
        let queued = queued.unwrap().unwrap();
        assert!(queued.id.is_some());
        assert_eq!(S3Event::token(&record).as_deref(), queued.id.as_deref());
        assert_eq!(*record.json, queued.text);
        assert_eq!(S3Event::origin(&record), Some(record.bucket.as_str()));
        let order = S3Event::order_key(&record);
        assert_eq!(order, Some("invoices/red+flower.pdf"));
    }

    #[test]
    fn an_object_key_is_decoded() {
        let record = |key: &str| {
            let mut event: Value = serde_json::from_str(NOTIFICATION).unwrap();
            event["Records"][0]["s3"]["object"]["key"] = json!(key);
            read(&event.to_string()).unwrap().remove(0)
        };
        let decoded = |key: &str| record(key).object_key;
        assert_eq!(
            decoded("a/red+flower.pdf").as_deref(),
            Some("a/red flower.pdf")
        );
        assert_eq!(decoded("1%2B1+%C3%BC.txt").as_deref(), Some("1+1 ü.txt"));
        assert_eq!(decoded("%FF"), None);
    }

    #[test]
    fn neither_the_object_key_nor_the_json_is_shown() {
        let record = read(NOTIFICATION).unwrap().remove(0);
        let shown = format!("{record:?}");
        assert!(
            shown.contains(&record.bucket) && !shown.contains("flower"),
            "{shown}"
        );
    }

    #[test]
    fn a_record_without_a_sequencer_has_no_key() {
        let mut event: Value = serde_json::from_str(NOTIFICATION).unwrap();
        let object = event["Records"][0]["s3"]["object"].as_object_mut().unwrap();
        object.remove("sequencer").unwrap();
        let record = read(&event.to_string()).unwrap().remove(0);
        assert_eq!(S3Event::token(&record), None);
        assert_eq!(S3Event::id(&record), Some("record-0"));
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
