//! Makes a handler of CloudWatch Logs batches of a handler of one log event.
//!
//! A subscription filter invokes the function with many log events at once, in gzip. [`BatchLayer`]
//! unpacks them, takes the key of each, and runs the handler for it once. The invocation is
//! asynchronous, and no reply is read: where a log event must be delivered again, the whole invocation
//! fails with [`BatchError::Incomplete`], and Lambda [invokes the function again][async] with the
//! same log events. Those that are done are replayed.
//!
//! ```
//! use lambda_idempotency::{Idempotency, cloudwatch_logs, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A line of a log is text; without the decoder it is read as JSON.
//! let line = |line: &[u8], _: &cloudwatch_logs::LogRecord| String::from_utf8(line.to_vec());
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("alerts").build()?;
//! let mut worker = cloudwatch_logs::BatchLayer::with_decoder(once, line)
//!     .operation("alert")
//!     .handler(|event: cloudwatch_logs::Message<String>| async move {
//!         println!("{}: {}", event.metadata.log_group, event.body);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, the message that checks the destination.
//! let event: cloudwatch_logs::LogsEvent = serde_json::from_str(
//!     r#"{"awslogs": {"data": "H4sIAAAAAAACAzWOUQuCMBSF/8rYs0RRGPgWYr5YQgo9hMTS2zaam2wzCfG/t6Xdt49zOPcbcQvGEArlpwMc4Tg/l5c8u5+SojikCQ6wGiRonwjVNwOxNcsUNS4QiqZa9Z3LZiqsBtLOaPqHqTXvLFfyyIUFbXB0q3695A3Sehwxb+a65U7DktaNbfbhNtyt5wv+el7gmqFFDy16EYoZ1C8uKWJAhGVIPVHjlrgk/vMKT9X0BdxIinrjAAAA"}}"#,
//! )?;
//! worker.call(LambdaEvent::new(event, Context::default())).await?;
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! The default is the owner's account, the log group and the log event's id. It survives Lambda's
//! retries of the invocation. Two subscription filters on one group deliver a log event twice: their
//! functions share a record where they share namespace and operation. Text that an application logs
//! twice has two ids.
//!
//! # What fails
//!
//! An event that can't be unpacked, that unpacks to more than 32 MiB, or whose `messageType` is
//! neither `DATA_MESSAGE` nor `CONTROL_MESSAGE` fails the invocation before anything runs. A control
//! message has no records, and is done.
//!
//! By default Lambda tries a function that fails [three times in all][async], then discards the event:
//! set an on-failure destination. A log event that no retry will fix fails its batch three times,
//! so take it with [`on_rejected`](BatchLayer::on_rejected). A function whose own log group has the
//! subscription invokes itself without end.
//!
//! `sqs` has the rest: what is compared, what is logged, and what happens when time runs out.
//!
//! [async]: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use data_encoding::BASE64;
use lambda_runtime::Context;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::protocol::gzip::unpack;
use crate::streams::token;

pub use crate::batch::{BatchError, Order, Rejected, Rejection};

/// Makes a handler of CloudWatch Logs batches of a handler of one [`Message`]. [The module](self)
/// has an example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<LogsEvent, T, E>;

/// Holds one log event: its decoded message, the claim of its handler, and the log event as
/// CloudWatch Logs delivered it.
pub type Message<T> = crate::batch::Message<LogsEvent, T>;

/// The largest content that is unpacked. An asynchronous invocation carries 1 MB at most, which
/// hostile data could unpack to 1 GB: more than the function's memory. Logs shrink to a tenth or a
/// twentieth, so that a real batch has room.
const MAX_UNPACKED: usize = 32 << 20;

/// The most log events that are read: content of the largest size holds as many of 335 bytes.
const MOST_RECORDS: usize = 100_000;

/// Holds the log events of one invocation, unpacked: the event of a
/// [subscription filter][page]. A control message, which CloudWatch Logs sends to check the
/// destination, has no records.
///
/// [page]: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/SubscriptionFilters.html
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogsEvent {
    /// The log events, in their order.
    pub records: Vec<LogRecord>,
}

/// Holds one log event, and the names of where it was written.
#[derive(Clone)]
#[non_exhaustive]
pub struct LogRecord {
    /// The id that CloudWatch Logs gave the log event; `None` where the event has none, which it
    /// never sends.
    pub id: Option<String>,
    /// The time of the log event, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// The text that was logged.
    pub message: Option<String>,
    /// The account that owns the log group.
    pub owner: Arc<str>,
    /// The name of the log group.
    pub log_group: Arc<str>,
    /// The name of the log stream.
    pub log_stream: Arc<str>,
}

debug_fields!([] LogRecord { id, timestamp, owner, log_group, log_stream });

#[derive(Deserialize)]
struct Wire {
    awslogs: Packed,
}

#[derive(Deserialize)]
struct Packed {
    data: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unpacked {
    message_type: MessageType,
    owner: Arc<str>,
    log_group: Arc<str>,
    log_stream: Arc<str>,
    #[serde(deserialize_with = "entries")]
    log_events: Vec<Entry>,
}

/// The types that AWS documents. Another one is an error: its meaning is not known.
#[derive(PartialEq, Eq, Deserialize)]
enum MessageType {
    #[serde(rename = "DATA_MESSAGE")]
    Data,
    #[serde(rename = "CONTROL_MESSAGE")]
    Control,
}

#[derive(Deserialize)]
struct Entry {
    id: Option<String>,
    timestamp: Option<i64>,
    message: Option<String>,
}

impl<'de> Deserialize<'de> for LogsEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let data = Wire::deserialize(deserializer)?.awslogs.data;
        let packed = BASE64.decode(data.as_bytes());
        let packed = packed.map_err(|_| D::Error::custom("awslogs.data is not Base64"))?;
        let text = unpack(&packed, MAX_UNPACKED).map_err(D::Error::custom)?;
        let unpacked: Unpacked = serde_json::from_slice(&text).map_err(|error| {
            // The parser's message may quote a log event.
            let (kind, line, column) = (error.classify(), error.line(), error.column());
            D::Error::custom(format_args!(
                "awslogs.data does not hold log events: {kind:?} error at line {line}, column {column}"
            ))
        })?;
        Ok(Self::from(unpacked))
    }
}

/// Reads log events, and stops where no real batch would have as many.
fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Entry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of log events")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Entry>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = items.next_element()? {
                if entries.len() == MOST_RECORDS {
                    return Err(A::Error::custom("too many log events"));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_seq(Entries)
}

impl From<Unpacked> for LogsEvent {
    fn from(unpacked: Unpacked) -> Self {
        let record = |entry: Entry| LogRecord {
            id: entry.id,
            timestamp: entry.timestamp,
            message: entry.message,
            owner: Arc::clone(&unpacked.owner),
            log_group: Arc::clone(&unpacked.log_group),
            log_stream: Arc::clone(&unpacked.log_stream),
        };
        let is_data = unpacked.message_type == MessageType::Data;
        let entries = unpacked.log_events.into_iter().filter(|_| is_data);
        Self {
            records: entries.map(record).collect(),
        }
    }
}

impl Source for LogsEvent {
    type Record = LogRecord;
    type Reply = ();

    const NAME: &'static str = "cloudwatch_logs";

    /// The invocation is asynchronous: only a failed one is delivered again.
    const READS_REPLY: bool = false;

    fn records(self) -> Vec<LogRecord> {
        self.records
    }

    fn id(record: &LogRecord) -> Option<&str> {
        record.id.as_deref()
    }

    fn token(record: &LogRecord) -> Option<Cow<'_, str>> {
        // An account's id has no colon, so no two groups have one name.
        let group = format!("{}:{}", record.owner, record.log_group);
        Some(Cow::Owned(token(&group, record.id.as_deref()?)))
    }

    fn body(record: &LogRecord) -> Result<&[u8], BodyError> {
        let message = record.message.as_ref().ok_or(BodyError::MISSING)?;
        Ok(message.as_bytes())
    }

    fn origin(record: &LogRecord) -> Option<&str> {
        Some(&*record.log_group).filter(|group| !group.is_empty())
    }

    fn order_key(record: &LogRecord) -> Option<&str> {
        Some(&record.log_stream)
    }

    fn reply(_: Vec<String>) {}

    fn batch_span(records: &[LogRecord], context: &Context) -> Span {
        let group = records.first().map_or("", |record| &record.log_group);
        info_span!(
            "cloudwatch_logs_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {group}"),
            faas.trigger = "other",
            faas.invocation_id = context.request_id,
            aws.log.group.names = group,
            aws.log.stream.names = records.first().map(|record| &*record.log_stream),
            messaging.batch.message_count = records.len(),
        )
    }

    fn record_span(record: &LogRecord) -> Span {
        info_span!(
            "cloudwatch_logs_record",
            otel.kind = "consumer",
            otel.name = format_args!("process {}", record.log_group),
            aws.log.group.names = &*record.log_group,
            messaging.message.id = record.id.as_deref().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64;
    use serde_json::{Value, json};

    use crate::protocol::gzip::packed;

    fn gzip(text: &str) -> String {
        BASE64.encode(&packed(0, b"", text.as_bytes()))
    }

    fn event(unpacked: &Value) -> Result<Vec<LogRecord>, String> {
        let text = unpacked.to_string();
        let event = json!({ "awslogs": { "data": gzip(&text) } });
        let event = serde_json::from_value(event);
        event
            .map(LogsEvent::records)
            .map_err(|error| error.to_string())
    }

    fn batch(message_type: &str) -> Value {
        json!({
            "messageType": message_type,
            "owner": "123456789012",
            "logGroup": "/aws/lambda/orders#2",
            "logStream": "2026/11/20/[$LATEST]0a1b",
            "subscriptionFilters": ["errors"],
            "logEvents": [{ "id": "3195", "timestamp": 1_763_640_000_000_u64, "message": "7" }],
        })
    }

    #[test]
    fn more_log_events_than_a_batch_can_have_are_refused() {
        let mut many = batch("DATA_MESSAGE");
        many["logEvents"] = vec![json!({}); MOST_RECORDS].into();
        assert_eq!(event(&many).unwrap().len(), MOST_RECORDS);
        many["logEvents"] = vec![json!({}); MOST_RECORDS + 1].into();
        assert!(event(&many).is_err());
    }

    #[test]
    fn content_that_unpacks_to_more_than_a_batch_can_have_is_refused() {
        for (length, expected) in [
            (MAX_UNPACKED, "Syntax error"),
            (MAX_UNPACKED + 1, "more than 32 MiB"),
        ] {
            let event = json!({ "awslogs": { "data": gzip(&"x".repeat(length)) } });
            let said = serde_json::from_value::<LogsEvent>(event).unwrap_err();
            assert!(said.to_string().contains(expected), "{said}");
        }
    }

    #[test]
    fn a_key_names_owner_group_and_log_event() {
        let records = event(&batch("DATA_MESSAGE")).unwrap();
        let [record] = records.as_slice() else {
            panic!("{records:?}")
        };
        assert_eq!(LogsEvent::id(record), Some("3195"));
        assert_eq!(LogsEvent::origin(record), Some("/aws/lambda/orders#2"));
        let stream = LogsEvent::order_key(record);
        assert_eq!(stream, Some("2026/11/20/[$LATEST]0a1b"));
        assert_eq!(LogsEvent::body(record), Ok(b"7".as_slice()));
        let token = LogsEvent::token(record).unwrap();
        assert_eq!(token.len(), 64, "the group has the separator in its name");
        let mut other = batch("DATA_MESSAGE");
        other["logGroup"] = json!("/aws/lambda/orders");
        let expected = "123456789012:/aws/lambda/orders#3195";
        assert_eq!(
            LogsEvent::token(&event(&other).unwrap()[0]).unwrap(),
            expected
        );
        other["owner"] = json!("210987654321");
        assert_ne!(
            LogsEvent::token(&event(&other).unwrap()[0]).unwrap(),
            expected
        );
    }

    #[test]
    fn the_logged_text_is_not_shown() {
        let mut batch = batch("DATA_MESSAGE");
        batch["logEvents"][0]["message"] = json!("secret");
        let shown = format!("{:?}", event(&batch).unwrap());
        assert!(
            shown.contains("3195") && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn a_control_message_has_no_records() {
        assert!(event(&batch("CONTROL_MESSAGE")).unwrap().is_empty());
        let said = event(&batch("OTHER_MESSAGE")).unwrap_err();
        assert!(said.contains("does not hold log events"), "{said}");
    }

    #[test]
    fn data_that_is_not_packed_log_events_is_an_error_that_quotes_nothing() {
        for (data, expected) in [
            ("%%%".to_owned(), "awslogs.data is not Base64"),
            (BASE64.encode(b"secret"), "the data is not gzip"),
            (gzip("secret"), "Syntax error at line 1, column 1"),
        ] {
            let said = serde_json::from_value::<LogsEvent>(json!({ "awslogs": { "data": data } }));
            let said = said.unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
        let sqs = json!({ "Records": [{ "messageId": "m-1", "body": "7" }] });
        assert!(serde_json::from_value::<LogsEvent>(sqs).is_err());
    }
}
