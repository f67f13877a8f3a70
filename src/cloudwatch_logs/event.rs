//! Decodes the event of a CloudWatch Logs subscription filter.

use std::sync::Arc;

use data_encoding::BASE64;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::protocol::gzip::unpack;
use crate::streams::token;

/// The largest content that is unpacked. An asynchronous invocation carries 1 MB at most, which
/// hostile data could unpack to 1 GB: more than the function's memory. Logs shrink to a tenth or a
/// twentieth, so that a real batch has room.
const MAX_UNPACKED: usize = 32 << 20;

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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogRecord {
    /// The id that CloudWatch Logs gave the log event; `None` where the event has none, which it
    /// never sends.
    pub id: Option<String>,
    /// The time of the log event, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// The text that was logged.
    pub message: Option<String>,
    stream: Arc<LogStream>,
}

/// Names the log stream of a batch.
#[derive(Debug)]
struct LogStream {
    owner: String,
    group: String,
    stream: String,
}

impl LogRecord {
    /// Gives the account that owns the log group.
    pub fn owner(&self) -> &str {
        &self.stream.owner
    }

    /// Names the log group.
    pub fn log_group(&self) -> &str {
        &self.stream.group
    }

    /// Names the log stream.
    pub fn log_stream(&self) -> &str {
        &self.stream.stream
    }

    /// An account's id has no colon, so no two groups have one name.
    pub(super) fn token(&self) -> Option<String> {
        let group = format!("{}:{}", self.owner(), self.log_group());
        Some(token(&group, self.id.as_deref()?))
    }
}

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
    owner: String,
    log_group: String,
    log_stream: String,
    log_events: Vec<Entry>,
}

/// The types that AWS documents. Another one is an error: what it asks for is not known.
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

impl From<Unpacked> for LogsEvent {
    fn from(unpacked: Unpacked) -> Self {
        let stream = Arc::new(LogStream {
            owner: unpacked.owner,
            group: unpacked.log_group,
            stream: unpacked.log_stream,
        });
        let record = |entry: Entry| LogRecord {
            id: entry.id,
            timestamp: entry.timestamp,
            message: entry.message,
            stream: Arc::clone(&stream),
        };
        let is_data = unpacked.message_type == MessageType::Data;
        let entries = unpacked.log_events.into_iter().filter(|_| is_data);
        Self {
            records: entries.map(record).collect(),
        }
    }
}
