//! Implements [`Source`] for Kinesis data streams. The names of its spans and their fields are those
//! of OpenTelemetry's conventions for messaging and for functions.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::kinesis::event::{KinesisEvent, KinesisRecord};
use crate::streams::{ItemFailures, token};

/// Names Kinesis data streams as the [`Source`] of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kinesis;

impl Source for Kinesis {
    type Event = KinesisEvent;
    type Record = KinesisRecord;
    type Reply = ItemFailures;

    const NAME: &'static str = "kinesis";

    /// Takes aggregates of the Kinesis Producer Library apart.
    fn records(event: KinesisEvent) -> Vec<KinesisRecord> {
        let records = event.records.into_iter();
        records.flat_map(KinesisRecord::opened).collect()
    }

    fn id(record: &KinesisRecord) -> Option<&str> {
        record.sequence_number.as_deref()
    }

    /// Joins the stream's ARN, the event's id and the place in an aggregate: two streams may have
    /// shards and sequence numbers of equal names.
    fn token(record: &KinesisRecord) -> Option<Cow<'_, str>> {
        let id = record.event_id.as_deref().filter(|id| !id.is_empty())?;
        let arn = stream_arn(record)?;
        Some(Cow::Owned(match record.sub_sequence_number {
            Some(place) => token(arn, &format!("{id}:{place}")),
            None => token(arn, id),
        }))
    }

    fn body(record: &KinesisRecord) -> Result<&[u8], BodyError> {
        record.data()
    }

    /// Takes the last part of `arn:aws:kinesis:region:account:stream/name`.
    fn origin(record: &KinesisRecord) -> Option<&str> {
        let (_, name) = stream_arn(record)?.rsplit_once('/')?;
        (!name.is_empty()).then_some(name)
    }

    fn order_key(record: &KinesisRecord) -> Option<&str> {
        record.partition_key.as_deref()
    }

    fn is_ordered(_: &KinesisRecord) -> bool {
        true
    }

    fn reply(failed: Vec<String>) -> ItemFailures {
        ItemFailures::lowest(failed)
    }

    fn batch_span(records: &[KinesisRecord], context: &Context) -> Span {
        let stream = records.first().map_or("", stream);
        info_span!(
            "kinesis_batch",
            otel.kind = "consumer",
            otel.name = format_args!("receive {stream}"),
            faas.trigger = "pubsub",
            faas.invocation_id = context.request_id,
            messaging.system = "aws_kinesis",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = stream,
            messaging.destination.partition.id = records.first().map(shard),
            messaging.batch.message_count = records.len(),
        )
    }

    fn record_span(record: &KinesisRecord) -> Span {
        let stream = stream(record);
        info_span!(
            "kinesis_record",
            otel.kind = "consumer",
            otel.name = format_args!("process {stream}"),
            messaging.system = "aws_kinesis",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = stream,
            messaging.destination.partition.id = shard(record),
            messaging.message.id = record.sequence_number.as_deref().unwrap_or_default(),
        )
    }
}

/// Gives the stream's ARN, which a consumer's ARN begins with: a mapping that moves to a consumer
/// keeps its keys, whichever of the two ARNs its events name.
fn stream_arn(record: &KinesisRecord) -> Option<&str> {
    let arn = record.event_source_arn.as_deref()?;
    let stream = arn.split_once("/consumer/").map_or(arn, |(arn, _)| arn);
    (!stream.is_empty()).then_some(stream)
}

fn stream(record: &KinesisRecord) -> &str {
    Kinesis::origin(record).unwrap_or_default()
}

/// Takes the shard from `shardId-000000000006:sequence number`.
fn shard(record: &KinesisRecord) -> &str {
    let id = record.event_id.as_deref().unwrap_or_default();
    id.rsplit_once(':').map_or("", |(shard, _)| shard)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinesis::aggregate::packed;
    use crate::streams::Data;

    const STREAM: &str = "arn:aws:kinesis:eu-central-1:123456789012:stream/movements";

    fn record(arn: &str, event_id: &str) -> KinesisRecord {
        let record = json!({ "eventSourceARN": arn, "eventID": event_id });
        serde_json::from_value(record).unwrap()
    }

    fn with_data(record: KinesisRecord, data: &[u8]) -> KinesisRecord {
        let data = Data::decoded(Ok(data));
        KinesisRecord { data, ..record }
    }

    #[test]
    fn a_token_names_stream_shard_and_number() {
        let first = record(STREAM, "shardId-000:7");
        let expected = format!("{STREAM}#shardId-000:7");
        assert_eq!(Kinesis::token(&first).as_deref(), Some(expected.as_str()));
        let other = record(&format!("{STREAM}-2"), "shardId-000:7");
        assert_ne!(Kinesis::token(&first), Kinesis::token(&other));
    }

    #[test]
    fn a_consumer_has_the_keys_and_the_name_of_its_stream() {
        let consumer = record(
            &format!("{STREAM}/consumer/ledger:1700000000"),
            "shardId-000:7",
        );
        let shared = record(STREAM, "shardId-000:7");
        assert_eq!(Kinesis::token(&consumer), Kinesis::token(&shared));
        assert_eq!(Kinesis::origin(&consumer), Some("movements"));
    }

    #[test]
    fn without_its_stream_or_its_id_a_record_has_no_token() {
        assert_eq!(Kinesis::token(&record("", "shardId-000:7")), None);
        assert_eq!(Kinesis::token(&record(STREAM, "")), None);
        assert_eq!(Kinesis::token(&KinesisRecord::default()), None);
    }

    #[test]
    fn a_shard_is_what_precedes_the_number() {
        assert_eq!(
            shard(&record(STREAM, "shard:with#signs:7")),
            "shard:with#signs"
        );
        assert_eq!(shard(&KinesisRecord::default()), "");
    }

    #[test]
    fn the_records_of_an_aggregate_have_keys_and_places_of_their_own() {
        let packed = packed(&[("tea", Some("17"), b"1"), ("salt", None, b"2")]);
        let aggregate = KinesisRecord {
            sequence_number: Some("7".to_owned()),
            ..with_data(record(STREAM, "shardId-000:7"), &packed)
        };
        let plain = with_data(record(STREAM, "shardId-000:8"), b"3");
        let records = Kinesis::records(KinesisEvent {
            records: vec![aggregate, plain],
        });
        let seen: Vec<_> = records
            .iter()
            .map(|record| {
                let token = Kinesis::token(record).unwrap();
                let (_, place) = token.split_once('#').unwrap();
                let data = Kinesis::body(record).unwrap()[0];
                (
                    place.to_owned(),
                    Kinesis::order_key(record),
                    char::from(data),
                )
            })
            .collect();
        let expected = [
            ("shardId-000:7:0".to_owned(), Some("tea"), '1'),
            ("shardId-000:7:1".to_owned(), Some("salt"), '2'),
            ("shardId-000:8".to_owned(), None, '3'),
        ];
        assert_eq!(seen, expected);
        assert!(
            records[..2]
                .iter()
                .all(|record| Kinesis::id(record) == Some("7"))
        );
        assert_eq!(records[0].explicit_hash_key.as_deref(), Some("17"));
    }

    #[test]
    fn an_aggregate_that_cannot_be_read_is_the_error_of_its_record() {
        // `{`, which begins a group, between the first bytes and its digest.
        let damaged =
            b"\xf3\x89\x9a\xc2{\xf9\x5b\x70\xfd\xc3\x08\x85\x60\x73\x2a\x5a\xc1\x35\x64\x45\x06";
        let event = KinesisEvent {
            records: vec![with_data(KinesisRecord::default(), damaged)],
        };
        let records = Kinesis::records(event);
        let said = Kinesis::body(&records[0]).unwrap_err().to_string();
        assert!(said.contains("can't be read"), "{said}");
    }
}
