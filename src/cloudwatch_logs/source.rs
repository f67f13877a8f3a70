//! Implements [`Source`] for CloudWatch Logs. The names of its spans and their fields are those of
//! OpenTelemetry's conventions for functions and for AWS logs.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::cloudwatch_logs::event::{LogRecord, LogsEvent};

/// Names CloudWatch Logs as the [`Source`] of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CloudWatchLogs;

impl Source for CloudWatchLogs {
    type Event = LogsEvent;
    type Record = LogRecord;
    type Reply = ();

    const NAME: &'static str = "cloudwatch_logs";

    /// The invocation is asynchronous: only a failed one comes again.
    const READS_REPLY: bool = false;

    fn records(event: LogsEvent) -> Vec<LogRecord> {
        event.records
    }

    fn id(record: &LogRecord) -> Option<&str> {
        record.id.as_deref()
    }

    fn token(record: &LogRecord) -> Option<Cow<'_, str>> {
        record.token().map(Cow::Owned)
    }

    fn body(record: &LogRecord) -> Result<&[u8], BodyError> {
        let message = record.message.as_ref().ok_or(BodyError::MISSING)?;
        Ok(message.as_bytes())
    }

    fn origin(record: &LogRecord) -> Option<&str> {
        Some(record.log_group()).filter(|group| !group.is_empty())
    }

    fn order_key(record: &LogRecord) -> Option<&str> {
        Some(record.log_stream())
    }

    fn reply(_: Vec<String>) {}

    fn batch_span(records: &[LogRecord], context: &Context) -> Span {
        let group = records.first().map_or("", LogRecord::log_group);
        info_span!(
            "cloudwatch_logs_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {group}"),
            faas.trigger = "other",
            faas.invocation_id = context.request_id,
            aws.log.group.names = group,
            aws.log.stream.names = records.first().map(LogRecord::log_stream),
            messaging.batch.message_count = records.len(),
        )
    }

    fn record_span(record: &LogRecord) -> Span {
        info_span!(
            "cloudwatch_logs_record",
            otel.kind = "consumer",
            otel.name = format_args!("process {}", record.log_group()),
            aws.log.group.names = record.log_group(),
            messaging.message.id = record.id.as_deref().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::gzip::packed;

    fn gzip(text: &str) -> String {
        BASE64.encode(&packed(0, b"", text.as_bytes()))
    }

    fn event(unpacked: &Value) -> Result<Vec<LogRecord>, String> {
        let text = unpacked.to_string();
        let event = json!({ "awslogs": { "data": gzip(&text) } });
        let event = serde_json::from_value(event);
        event
            .map(CloudWatchLogs::records)
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
    fn a_key_names_owner_group_and_log_event() {
        let records = event(&batch("DATA_MESSAGE")).unwrap();
        let [record] = records.as_slice() else {
            panic!("{records:?}")
        };
        assert_eq!(CloudWatchLogs::id(record), Some("3195"));
        assert_eq!(CloudWatchLogs::body(record), Ok(b"7".as_slice()));
        let token = CloudWatchLogs::token(record).unwrap();
        assert_eq!(token.len(), 64, "the group has the separator in its name");
        let mut other = batch("DATA_MESSAGE");
        other["logGroup"] = json!("/aws/lambda/orders");
        let expected = "123456789012:/aws/lambda/orders#3195";
        assert_eq!(
            CloudWatchLogs::token(&event(&other).unwrap()[0]).unwrap(),
            expected
        );
        other["owner"] = json!("210987654321");
        assert_ne!(
            CloudWatchLogs::token(&event(&other).unwrap()[0]).unwrap(),
            expected
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
