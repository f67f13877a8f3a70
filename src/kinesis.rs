//! Makes a handler of Kinesis batches of a handler of one record.
//!
//! [`BatchLayer`] decodes each record of a data stream, takes its key, and runs the handler for it
//! once. The reply names the first record that must be delivered again: set
//! `FunctionResponseTypes: [ReportBatchItemFailures]` on the event source mapping. Without it,
//! Lambda ignores the reply and [goes on behind the batch][partial], so that failed records are
//! lost. Where you can't set it, call
//! [`without_item_failures`](crate::batch::Settings::without_item_failures).
//!
//! ```
//! use lambda_idempotency::{Idempotency, kinesis, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::{Service, ServiceBuilder};
//!
//! #[derive(serde::Deserialize)]
//! struct Movement {
//!     movement_id: String,
//!     sku: String,
//!     delta: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("stock").build()?;
//! let mut worker = ServiceBuilder::new()
//!     .layer(kinesis::BatchLayer::new(once).operation("book").key(|movement: &Movement| movement.movement_id.clone()))
//!     .service_fn(|message: kinesis::Message<Movement>| async move {
//!         println!("{} of {}", message.body.delta, message.body.sku);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, two records by hand; the second has no delta.
//! let event: kinesis::KinesisEvent = serde_json::from_str(
//!     r#"{"Records": [
//!         {"kinesis": {"partitionKey": "tea", "sequenceNumber": "4959",
//!                      "data": "eyJtb3ZlbWVudF9pZCI6Im0tMSIsInNrdSI6InRlYSIsImRlbHRhIjo1fQ=="}},
//!         {"kinesis": {"partitionKey": "tea", "sequenceNumber": "4960",
//!                      "data": "eyJtb3ZlbWVudF9pZCI6Im0tMiIsInNrdSI6InRlYSJ9"}}
//!     ]}"#,
//! )?;
//! let reply = worker.call(LambdaEvent::new(event, Context::default())).await?;
//! assert_eq!(reply.batch_item_failures, ["4960"]);
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! The default key joins the stream's ARN and the record's `eventID`, which is the shard and the
//! sequence number; in an aggregate, its place there, too. A producer that repeats a send whose answer was lost makes a
//! [second record with another sequence number][duplicates], which the default key doesn't
//! recognise: use an identity of the work.
//!
//! | | default key | identity of the work |
//! |---|---|---|
//! | Lambda delivers again: from a checkpoint, a split batch, a failed invocation | yes | yes |
//! | the event source mapping is made anew, or moves to a consumer with enhanced fan-out | yes | yes |
//! | the producer sends again | **no** | yes |
//! | the records are copied to another stream, or the stream is made anew | **no** | yes |
//!
//! A record whose event names no stream or has no `eventID` has no default key, and meets the
//! engine's policy for a [missing key](crate::Builder::on_missing_key). [The page of `batch`](crate::batch)
//! and the settings of [`BatchLayer`] apply as for every source; records have no attributes.
//!
//! # In which order
//!
//! Records of one partition key run one after the other, in the order of the stream; those of
//! different keys run side by side. A record that must be delivered again stops its key: no later record of
//! this key runs in this batch. Other keys go on. [`Order`] has other choices.
//!
//! # What the reply does
//!
//! The reply names the lowest sequence number among the records that must be delivered again, because
//! Lambda [takes the lowest as its checkpoint][partial]: it delivers this record and *all* after it
//! again. Those of them that succeeded are replayed. The process remembers the keys that it met,
//! and reads the outcomes of these first.
//!
//! A record fails, and so stops its key and sets the checkpoint, where its data is missing, is not
//! Base64 or doesn't decode. A record without a sequence number fails the whole batch before
//! anything runs.
//!
//! # Aggregates
//!
//! An aggregate of the Kinesis Producer Library (KPL) is taken apart: each record in it runs for
//! itself, in the order of its own partition key. Lambda, though, keeps the order of the outer
//! partition key, which the library sets to `a` where there are several records: leave
//! `ParallelizationFactor` at 1 where order matters. The default key of a record has its
//! [place](KinesisRecord::sub_sequence_number) in the aggregate, too. One that must be delivered
//! again sets the checkpoint to the aggregate, whose other records are then replayed, or offered to
//! [`on_rejected`](crate::batch::BatchLayer::on_rejected) again. Each
//! delivery reads those of one key that are done, one after the other, before it goes on: a function
//! that has no time for these reads never ends the aggregate. The
//! library sends records again that reached another shard than it meant, in another aggregate: use
//! an identity of the work.
//! An aggregate that can't be read, or has more than 32,768 records, fails as one record.
//!
//! A batch runs 32,768 records of aggregates at most, so that their memory has a bound. The aggregate
//! with which there would be more, and all records after it, are reported without a run, and none of
//! them is rejected: they are delivered again from there. Under
//! [`without_item_failures`](crate::batch::Settings::without_item_failures) the same batch is delivered again:
//! set a `BatchSize` with which there are fewer.
//!
//! # What exhausted retries discard
//!
//! By default Lambda repeats a failed record [until it expires in the stream][parameters], and its
//! shard waits. After `MaximumRetryAttempts`, or past `MaximumRecordAgeInSeconds`, Lambda
//! [discards the records][failures] that it still retries. A retry begins at the checkpoint, so
//! these are the record that failed and all after it in the batch, among them the later records of
//! its key, **which never started**. An on-failure queue or topic gets metadata only (shard, sequence
//! numbers, times), not the data: read the records from the stream while it has them. An S3 bucket
//! as destination also gets the event with the data. `BisectBatchOnFunctionError` makes the
//! discarded part smaller where invocations fail.
//!
//! [`on_rejected`](crate::batch::BatchLayer::on_rejected) takes records that no retry will fix (a
//! [`Rejection`]) with their data, so that they neither set the checkpoint nor use up retries.
//!
//! # How long outcomes are kept
//!
//! A stream keeps records for [24 hours to 365 days][retention]. Outcomes are kept for 7 days; where
//! the stream keeps records for longer, set [`retention`](crate::Builder::retention) to more than
//! that. A mapping that starts again at `TRIM_HORIZON` then repeats no effect. With
//! [`on_rejected`](crate::batch::BatchLayer::on_rejected),
//! [permanent](crate::batch::BatchLayer::permanent) failures are kept as long; without it, set
//! [`failure_retention`](crate::Settings::failure_retention) above `MaximumRecordAgeInSeconds`, or a
//! record that failed runs again.
//!
//! # What it costs
//!
//! In requests to DynamoDB, for *n* records in groups of *g*, which is 25 or
//! [`concurrency`](crate::batch::Settings::concurrency), whichever is less:
//!
//! | | requests |
//! |---|---|
//! | new, of different partition keys, with quick handlers | 2·⌈n/g⌉ |
//! | new, of one partition key | 2·n: each is completed before the next one is claimed |
//! | are delivered again, of one partition key | n reads, or n refused claims, and the requests of those that are not done |
//! | are delivered again, of different keys, and this process met them lately | one read for each group, and the requests of those that are not done |
//! | are delivered again, of different keys, and this process didn't meet them | the claims, which are refused, and one read for each group |
//!
//! A refused claim is billed as a write. It happens to the first repetition that reaches
//! another execution environment.
//!
//! [partial]: https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html
//! [duplicates]: https://docs.aws.amazon.com/streams/latest/dev/kinesis-record-processor-duplicates.html
//! [parameters]: https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-parameters.html
//! [failures]: https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html
//! [retention]: https://docs.aws.amazon.com/streams/latest/dev/kinesis-extended-retention.html

use std::borrow::Cow;
use std::time::SystemTime;

use serde::Deserialize;

use crate::batch::Source;
use crate::kinesis::aggregate::{MOST_RECORDS, SubRecord};
use crate::streams::{Data, Shard, check_service, seconds, token};

mod aggregate;

pub use crate::batch::{BatchError, BodyError, Envelope, Order, Rejected, Rejection};
pub use crate::streams::ItemFailures;

/// Makes a handler of Kinesis batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<KinesisEvent, T, E>;

/// Holds one record: its decoded data, the claim of its handler, and the record as Lambda delivered
/// it.
pub type Message<T> = crate::batch::Message<KinesisEvent, T>;

/// Holds a batch of records of one shard. [AWS's page][event] shows such an event.
///
/// [event]: https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html
///
/// Deserializing the event of another service fails with an error that names the service that
/// sent it. Deserializing the event of a mapping with `TumblingWindowInSeconds` fails, too: Lambda
/// would take each reply for a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Shard<KinesisRecord>")]
#[non_exhaustive]
pub struct KinesisEvent {
    /// The records, in the order of their sequence numbers.
    pub records: Vec<KinesisRecord>,
}

impl TryFrom<Shard<KinesisRecord>> for KinesisEvent {
    type Error = &'static str;

    fn try_from(shard: Shard<KinesisRecord>) -> Result<Self, &'static str> {
        let records = shard.records()?;
        Ok(Self { records })
    }
}

/// Holds one record. A field that the event lacks is `None`.
///
/// ```
/// use lambda_idempotency::kinesis::KinesisRecord;
///
/// let record: KinesisRecord = serde_json::from_str(
///     r#"{"kinesis": {"partitionKey": "tea", "sequenceNumber": "4959", "data": "aGVsbG8="}}"#,
/// )?;
/// assert_eq!(record.partition_key.as_deref(), Some("tea"));
/// assert_eq!(record.data(), Some(b"hello".as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Received")]
#[non_exhaustive]
pub struct KinesisRecord {
    /// The id of the shard and the sequence number, joined by `:`. It is unique within the stream.
    pub event_id: Option<String>,
    /// The ARN of the stream. AWS's page shows no event of a consumer with enhanced fan-out; the
    /// ARN of a consumer makes the same keys as that of its stream.
    pub event_source_arn: Option<String>,
    /// The key by which the producer chose the shard. Records of one key are ordered.
    pub partition_key: Option<String>,
    /// The hash by which the producer chose the shard instead, of a record that was in an aggregate.
    pub explicit_hash_key: Option<String>,
    /// The number of the record in its shard, which records of one aggregate share. The reply names
    /// records by it.
    pub sequence_number: Option<String>,
    /// The place, from 0, of a record that was in an aggregate of the Kinesis Producer Library.
    pub sub_sequence_number: Option<usize>,
    /// The time at which the stream took the record in, with a resolution of milliseconds.
    pub approximate_arrival: Option<SystemTime>,
    data: Data,
    /// The reason why the data is not a body, although there is data.
    problem: Option<BodyError>,
}

impl KinesisRecord {
    /// Returns the bytes as the producer sent them, of an aggregate that can't be read, too; `None`
    /// where they are missing or not Base64.
    pub fn data(&self) -> Option<&[u8]> {
        self.data.bytes().ok()
    }

    /// Takes the records out of an aggregate. Any other record stays as it is. `room` is for so many
    /// records of aggregates; `None` behind one for which it was too small.
    fn opened(mut self, room: &mut Option<usize>) -> Vec<Self> {
        const TOO_MANY: BodyError = BodyError::not_run(
            "the batch has more than 32,768 records in aggregates: it is delivered again from here on; a smaller `BatchSize` avoids that",
        );
        let Some(left) = *room else {
            let problem = Some(TOO_MANY);
            return vec![Self { problem, ..self }];
        };
        let data = std::mem::take(&mut self.data);
        let inside = |(place, record): (usize, &SubRecord<'_>)| Self {
            partition_key: Some(record.partition_key.to_owned()),
            explicit_hash_key: record.explicit_hash_key.map(str::to_owned),
            sub_sequence_number: Some(place),
            data: Data::decoded(record.data),
            ..self.clone()
        };
        let problem = match data.bytes().ok().and_then(aggregate::open) {
            None => None,
            Some(Err(damaged)) => Some(damaged),
            Some(Ok(records)) => {
                *room = left.checked_sub(records.len());
                if room.is_some() {
                    return records.iter().enumerate().map(inside).collect();
                }
                Some(TOO_MANY)
            }
        };
        vec![Self {
            data,
            problem,
            ..self
        }]
    }
}

debug_fields!([] KinesisRecord {
    event_id, event_source_arn, sequence_number, sub_sequence_number, approximate_arrival
});

/// A record as Lambda writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    #[serde(rename = "eventID")]
    event_id: Option<String>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    /// SNS writes it with a capital letter.
    #[serde(alias = "EventSource")]
    event_source: Option<String>,
    kinesis: Option<Payload>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    partition_key: Option<String>,
    sequence_number: Option<String>,
    approximate_arrival_timestamp: Option<f64>,
    #[serde(default)]
    data: Data,
}

impl TryFrom<Received> for KinesisRecord {
    type Error = String;

    fn try_from(received: Received) -> Result<Self, String> {
        check_service(received.event_source.as_deref(), "aws:kinesis")?;
        let payload = received.kinesis.unwrap_or_default();
        Ok(Self {
            event_id: received.event_id,
            event_source_arn: received.event_source_arn,
            partition_key: payload.partition_key,
            explicit_hash_key: None,
            sequence_number: payload.sequence_number,
            sub_sequence_number: None,
            approximate_arrival: payload.approximate_arrival_timestamp.and_then(seconds),
            data: payload.data,
            problem: None,
        })
    }
}

impl Source for KinesisEvent {
    type Record = KinesisRecord;
    type Reply = ItemFailures;

    const NAME: &'static str = "kinesis";

    /// Takes aggregates of the Kinesis Producer Library apart.
    fn records(self) -> Vec<KinesisRecord> {
        let mut room = Some(MOST_RECORDS);
        let records = self.records.into_iter();
        records
            .flat_map(|record| record.opened(&mut room))
            .collect()
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

    /// Returns the bytes that the producer sent. In a [`KinesisEvent`], an aggregate of the Kinesis
    /// Producer Library is given as it is. An error where it is damaged, and behind as many records of
    /// aggregates as a batch runs.
    fn body(record: &KinesisRecord) -> Result<&[u8], BodyError> {
        match record.problem {
            Some(problem) => Err(problem),
            None => record.data.bytes(),
        }
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

    messaging_spans! {
        system: "aws_kinesis", trigger: "pubsub", verb: "receive", destination: Self::origin(record).unwrap_or_default(),
        |records| "kinesis_batch" {
            messaging.destination.partition.id = records.first().map(shard),
        }
        |record| "kinesis_record" {
            messaging.destination.partition.id = shard(record),
            messaging.message.id = record.sequence_number.as_deref().unwrap_or_default(),
        }
    }
}

/// Returns the stream's ARN, which a consumer's ARN begins with: a mapping that moves to a consumer
/// keeps its keys, whichever of the two ARNs its events name.
fn stream_arn(record: &KinesisRecord) -> Option<&str> {
    let arn = record.event_source_arn.as_deref()?;
    let stream = arn.split_once("/consumer/").map_or(arn, |(arn, _)| arn);
    (!stream.is_empty()).then_some(stream)
}

/// Takes the shard from `shardId-000000000006:sequence number`.
fn shard(record: &KinesisRecord) -> &str {
    let id = record.event_id.as_deref().unwrap_or_default();
    id.rsplit_once(':').map_or("", |(shard, _)| shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use super::aggregate::{packed, packed_small};
    use crate::idempotency::Idempotency;
    use crate::store::MemoryStore;
    use crate::streams::Data;
    use crate::window::Seen;

    #[test]
    fn what_a_record_lacks_is_none_and_its_data_an_error() {
        let record: KinesisRecord = serde_json::from_value(json!({})).unwrap();
        assert_eq!(record, KinesisRecord::default());
        assert_eq!(KinesisEvent::body(&record), Err(BodyError::MISSING));
        let bare: KinesisRecord = serde_json::from_value(json!({ "kinesis": {} })).unwrap();
        assert_eq!(bare, record);
    }

    #[test]
    fn a_record_has_the_time_of_its_arrival() {
        let kinesis = json!({ "approximateArrivalTimestamp": 1.25 });
        let record = serde_json::from_value::<KinesisRecord>(json!({ "kinesis": kinesis }));
        let arrived = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_250);
        assert_eq!(record.unwrap().approximate_arrival, Some(arrived));
    }

    #[test]
    fn neither_data_nor_partition_key_is_shown() {
        let kinesis = json!({ "partitionKey": "secret-key", "data": "c2VjcmV0" });
        let record = serde_json::from_value::<KinesisRecord>(json!({ "kinesis": kinesis }));
        let shown = format!("{:?}", record.unwrap());
        assert!(
            !shown.contains("secret") && !shown.contains("115"),
            "{shown}"
        );
    }

    const STREAM: &str = "arn:aws:kinesis:eu-central-1:123456789012:stream/movements";

    fn record(arn: &str, event_id: &str) -> KinesisRecord {
        let record = json!({ "eventSourceARN": arn, "eventID": event_id });
        serde_json::from_value(record).unwrap()
    }

    fn with_data(record: KinesisRecord, data: &[u8]) -> KinesisRecord {
        let data = Data::decoded(data);
        KinesisRecord { data, ..record }
    }

    #[test]
    fn a_token_names_stream_shard_and_number() {
        let first = record(STREAM, "shardId-000:7");
        let expected = format!("{STREAM}#shardId-000:7");
        assert_eq!(
            KinesisEvent::token(&first).as_deref(),
            Some(expected.as_str())
        );
        let other = record(&format!("{STREAM}-2"), "shardId-000:7");
        assert_ne!(KinesisEvent::token(&first), KinesisEvent::token(&other));
    }

    #[test]
    fn a_consumer_has_the_keys_and_the_name_of_its_stream() {
        let consumer = record(
            &format!("{STREAM}/consumer/ledger:1700000000"),
            "shardId-000:7",
        );
        let shared = record(STREAM, "shardId-000:7");
        assert_eq!(KinesisEvent::token(&consumer), KinesisEvent::token(&shared));
        assert_eq!(KinesisEvent::origin(&consumer), Some("movements"));
    }

    #[test]
    fn without_its_stream_or_its_id_a_record_has_no_token() {
        assert_eq!(KinesisEvent::token(&record("", "shardId-000:7")), None);
        assert_eq!(KinesisEvent::token(&record(STREAM, "")), None);
        assert_eq!(KinesisEvent::token(&KinesisRecord::default()), None);
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
        let records = KinesisEvent::records(KinesisEvent {
            records: vec![aggregate, plain],
        });
        let seen: Vec<_> = records
            .iter()
            .map(|record| {
                let token = KinesisEvent::token(record).unwrap();
                let (_, place) = token.split_once('#').unwrap();
                let data = KinesisEvent::body(record).unwrap()[0];
                (
                    place.to_owned(),
                    KinesisEvent::order_key(record),
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
                .all(|record| KinesisEvent::id(record) == Some("7"))
        );
        assert_eq!(records[0].explicit_hash_key.as_deref(), Some("17"));
    }

    #[tokio::test]
    async fn an_event_of_more_records_than_the_memory_is_for_comes_again_from_there() {
        use std::io;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        use lambda_runtime::{Context, LambdaEvent};
        use tower::Service;

        let aggregate = |n: usize, records: usize| {
            let record = record(STREAM, &format!("shardId-000:{n}"));
            let record = with_data(record, &packed_small(records));
            KinesisRecord {
                sequence_number: Some(n.to_string()),
                ..record
            }
        };
        let plain = KinesisRecord {
            sequence_number: Some("4".to_owned()),
            ..with_data(record(STREAM, "shardId-000:4"), b"")
        };
        let half = MOST_RECORDS / 2;
        let event = |first: usize| KinesisEvent {
            records: vec![
                aggregate(1, half),
                aggregate(2, half + 1),
                aggregate(3, 1),
                plain.clone(),
            ]
            .split_off(first - 1),
        };
        assert_eq!(KinesisEvent::records(event(1)).len(), half + 3);
        assert_eq!(KinesisEvent::records(event(2)).len(), half + 1 + 1 + 1);

        let (runs, rejected) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (ran, took) = (Arc::clone(&runs), Arc::clone(&rejected));
        let once = Idempotency::builder(MemoryStore::new()).namespace("streams");
        let layer = BatchLayer::with_decoder(once.disabled(true).build().unwrap(), |_, _| {
            Ok::<_, io::Error>(())
        });
        let layer = layer.on_rejected(move |_, _| {
            took.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, io::Error>(()) }
        });
        let mut worker = layer.handler(move |_: Message<()>| {
            ran.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, io::Error>(()) }
        });
        for (first, checkpoint, expected) in [(1, Some("2"), half), (2, None, half + 3)] {
            let event = LambdaEvent::new(event(first), Context::default());
            let reply = worker.call(event).await.unwrap().batch_item_failures;
            assert_eq!(reply.first().map(String::as_str), checkpoint);
            assert_eq!(runs.swap(0, Ordering::Relaxed), expected);
        }
        assert_eq!(rejected.load(Ordering::Relaxed), 0, "a retry runs them");
    }

    #[test]
    fn a_layer_remembers_as_many_keys_as_a_batch_takes_out_of_aggregates() {
        let once = Idempotency::builder(MemoryStore::new()).namespace("streams");
        let layer = BatchLayer::<u64, std::io::Error>::new(once.build().unwrap());
        let _ = layer.settings(|settings| {
            for key in 0..MOST_RECORDS {
                settings.window.insert(&key);
            }
            assert_ne!(settings.window.insert(&0_usize), Seen::No);
        });
    }

    #[test]
    fn an_aggregate_that_cannot_be_read_is_the_error_of_its_record() {
        // `{`, which begins a group, between the first bytes and its digest.
        let damaged =
            b"\xf3\x89\x9a\xc2{\xf9\x5b\x70\xfd\xc3\x08\x85\x60\x73\x2a\x5a\xc1\x35\x64\x45\x06";
        let event = KinesisEvent {
            records: vec![with_data(KinesisRecord::default(), damaged)],
        };
        let records = KinesisEvent::records(event);
        let said = KinesisEvent::body(&records[0]).unwrap_err().to_string();
        assert!(said.contains("can't be read"), "{said}");
        assert_eq!(records[0].data(), Some(damaged.as_slice()));
    }
}
