//! Makes a handler of Kafka batches of a handler of one record: of Amazon MSK, or of a self-managed
//! cluster.
//!
//! [`BatchLayer`] decodes the value of each record, takes its key, and runs the handler for it once.
//! The reply names the records that must be delivered again, in the shape that [Lambda's page][partial] has.
//! Lambda reads the reply where the event source mapping is in [provisioned mode][modes] and has
//! `FunctionResponseTypes: [ReportBatchItemFailures]` ([retries]). Where you can't set both, call
//! [`without_item_failures`](crate::batch::Settings::without_item_failures), or failed records may be lost.
//!
//! ```
//! use lambda_idempotency::{Idempotency, kafka, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//!
//! #[derive(serde::Deserialize)]
//! struct Movement {
//!     movement_id: String,
//!     delta: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("stock").build()?;
//! let mut worker = kafka::BatchLayer::new(once)
//!     .operation("move")
//!     .key(|movement: &Movement| movement.movement_id.clone())
//!     .handler(|record: kafka::Message<Movement>| async move {
//!         println!("{:?} changes by {}", record.metadata.key_text(), record.body.delta);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, two records by hand; the second is no movement.
//! let event: kafka::KafkaEvent = serde_json::from_str(
//!     r#"{"eventSource": "aws:kafka", "records": {"movements-0": [
//!         {"offset": 15, "key": "c2t1LTc=", "value": "eyJtb3ZlbWVudF9pZCI6ICJtLTEiLCAiZGVsdGEiOiAtMn0="},
//!         {"offset": 16, "key": "c2t1LTc=", "value": "e30="}
//!     ]}}"#,
//! )?;
//! let reply = worker.call(LambdaEvent::new(event, Context::default())).await?;
//! let again = [serde_json::json!({"partition": "movements-0", "offset": 16})];
//! assert_eq!(reply.batch_item_failures, again);
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! | key | survives |
//! |---|---|
//! | an identity of the work: in the value ([`key`](BatchLayer::key)), or in a header ([`key_attribute`](BatchLayer::key_attribute)) | a retry of Lambda's, a rebalance, a producer that sends twice, a new topic, mirroring to another cluster |
//! | cluster, topic, partition and offset (default) | a retry of Lambda's, a rebalance, an offset that is set back |
//!
//! The cluster is the event's `eventSourceArn`. A self-managed cluster has none; its name is the
//! sorted list of bootstrap servers, so that another list makes other keys. A topic that is deleted and
//! made again under its name begins at offset 0, so that its records have the default keys of the old
//! ones: set another [`operation`](BatchLayer::operation) then, or a key. The record's own Kafka
//! key is no idempotency key: it names what the record is about, and many records have it.
//!
//! # Values
//!
//! A value is decoded as JSON. For another format, make the layer
//! [with a decoder](BatchLayer::with_decoder), which gets the record with its
//! [schema](KafkaRecord::value_schema_id), too. A record whose value is null (a tombstone of a
//! compacted topic) has the body `null`: with `Option<T>` as the body's type the handler gets
//! `None`, with `T` the record is rejected as undecodable, and a decoder gets the four bytes `null`.
//! [`KafkaRecord::is_tombstone`] tells it from the JSON value `null`.
//!
//! # In which order
//!
//! Records of one topic and partition run one after the other, and partitions side by side. After a
//! record that is reported, no later one of its partition runs, and all of them are reported.
//! [`Order::Unordered`] runs records side by side; Lambda may then deliver a record again that was
//! done, and it is replayed.
//!
//! # Poison records
//!
//! By default Lambda retries until the record expires, and the partition waits. Set
//! `MaximumRetryAttempts` or `MaximumRecordAgeInSeconds` and a failure destination on the mapping
//! ([retries]), or take what no retry will fix with [`on_rejected`](BatchLayer::on_rejected). A
//! batch that Lambda gives up holds records that never started: those that are reported with the
//! failed one.
//!
//! `sqs` has the rest: what is compared, what is logged, and what happens when time runs out.
//!
//! [modes]: https://docs.aws.amazon.com/lambda/latest/dg/kafka-scaling-modes.html
//! [partial]: https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html#kafka-partial-batch-response
//! [retries]: https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::batch::{BodyError, Source};
use crate::streams::{Data, HeaderBytes, text, token};

#[cfg(test)]
mod tests;

pub use crate::batch::{BatchError, Order, Rejected, Rejection};
pub use crate::streams::ItemFailures;

/// Makes a handler of Kafka batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<KafkaEvent, T, E>;

/// Holds one Kafka record: its decoded value, the claim of its handler, and the record as Lambda
/// delivered it.
pub type Message<T> = crate::batch::Message<KafkaEvent, T>;

/// Holds the records of one invocation, from one or several topics and partitions: the
/// [event of Amazon MSK][msk] or of a [self-managed cluster][own].
///
/// [msk]: https://docs.aws.amazon.com/lambda/latest/dg/with-msk.html
/// [own]: https://docs.aws.amazon.com/lambda/latest/dg/with-kafka.html
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
#[non_exhaustive]
pub struct KafkaEvent {
    /// The records, by topic and partition, in the order of each partition.
    pub records: Vec<KafkaRecord>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(rename = "eventSource")]
    _source: EventSource,
    event_source_arn: Option<String>,
    bootstrap_servers: Option<String>,
    records: BTreeMap<String, Vec<Fields>>,
}

/// The values that Lambda documents; the event of another source is an error.
#[derive(Deserialize)]
enum EventSource {
    #[serde(rename = "aws:kafka")]
    Msk,
    #[serde(rename = "SelfManagedKafka", alias = "aws:SelfManagedKafka")]
    SelfManaged,
}

impl From<Wire> for KafkaEvent {
    fn from(wire: Wire) -> Self {
        let arn = wire.event_source_arn.filter(|arn| !arn.is_empty());
        let servers = || wire.bootstrap_servers.as_deref().and_then(sorted);
        let cluster: Option<Arc<str>> = arn.or_else(servers).map(Arc::from);
        let records = wire.records.into_iter().flat_map(|(partition, records)| {
            let topic = partition
                .rsplit_once('-')
                .map_or(&*partition, |(topic, _)| topic);
            let (topic, partition): (Arc<str>, Arc<str>) = (topic.into(), partition.into());
            let cluster = cluster.clone();
            let record = move |fields| {
                KafkaRecord::new(cluster.clone(), topic.clone(), partition.clone(), fields)
            };
            records.into_iter().map(record)
        });
        Self {
            records: records.collect(),
        }
    }
}

/// Sorts the names of servers: their order is not a part of the cluster's name.
fn sorted(servers: &str) -> Option<String> {
    let names = servers.split(',').map(str::trim);
    let mut names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| names.join(","))
}

/// The body of a record without a value.
const NO_VALUE: &[u8] = b"null";

/// Holds one record as Lambda delivers it. Lambda sends key and value in Base64, which is decoded
/// here. [`Source::body`] gives the bytes of the value, and `null` for a
/// [tombstone](Self::is_tombstone).
#[derive(Clone)]
#[non_exhaustive]
pub struct KafkaRecord {
    /// The place in its partition; `None` where the event has none, which Kafka never sends.
    pub offset: Option<u64>,
    /// The time that Kafka has for the record, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// Says whose time it is: `CREATE_TIME` is the producer's, `LOG_APPEND_TIME` the broker's.
    pub timestamp_type: Option<String>,
    /// The bytes of the record's key; `None` where it has none.
    pub key: Option<Vec<u8>>,
    /// The id of the key's schema in the [registry][page] of the mapping: a number in Confluent's, a
    /// UUID in Glue's. With the record format `SOURCE`, Lambda takes it from the bytes, so that it is
    /// here alone. `None` without a registry.
    ///
    /// [page]: https://docs.aws.amazon.com/lambda/latest/dg/services-consume-kafka-events.html
    pub key_schema_id: Option<String>,
    /// The format of the key's schema: `AVRO`, `PROTOBUF` or `JSON`.
    pub key_schema_format: Option<String>,
    /// The id of the value's schema: see [`key_schema_id`](Self::key_schema_id).
    pub value_schema_id: Option<String>,
    /// The format of the value's schema.
    pub value_schema_format: Option<String>,
    /// Whether the value is null: on a compacted topic, such a record deletes its key.
    pub is_tombstone: bool,
    /// The topic and the number of the partition, as the event names them: `movements-0`.
    pub topic_partition: Arc<str>,
    /// The name of the topic.
    pub topic: Arc<str>,
    /// The number of the partition.
    pub partition: Option<u32>,
    cluster: Option<Arc<str>>,
    id: Option<String>,
    value: Option<Data>,
    headers: Vec<(String, HeaderBytes)>,
}

debug_fields!([] KafkaRecord { topic_partition, offset, timestamp, value_schema_id, is_tombstone });

/// What Lambda tells of a schema.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaMetadata {
    #[serde(default, deserialize_with = "text_or_number")]
    schema_id: Option<String>,
    #[serde(default, deserialize_with = "text_or_number")]
    data_format: Option<String>,
}

fn text_or_number<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// Reads what is no object as nothing: it is beside the record, and costs no batch.
fn object<'de, D: Deserializer<'de>>(value: D) -> Result<SchemaMetadata, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(value)?).unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    offset: Option<u64>,
    timestamp: Option<i64>,
    timestamp_type: Option<String>,
    #[serde(default, deserialize_with = "object")]
    key_schema_metadata: SchemaMetadata,
    #[serde(default, deserialize_with = "object")]
    value_schema_metadata: SchemaMetadata,
    key: Option<Data>,
    value: Option<Data>,
    headers: Option<Vec<BTreeMap<String, HeaderBytes>>>,
}

impl KafkaRecord {
    fn new(
        cluster: Option<Arc<str>>,
        topic: Arc<str>,
        topic_partition: Arc<str>,
        fields: Fields,
    ) -> Self {
        let partition = topic_partition.rsplit_once('-');
        let offset = fields.offset.filter(|_| !topic_partition.is_empty());
        Self {
            offset: fields.offset,
            timestamp: fields.timestamp,
            timestamp_type: fields.timestamp_type,
            key: fields.key.and_then(|key| key.0.ok()),
            key_schema_id: fields.key_schema_metadata.schema_id,
            key_schema_format: fields.key_schema_metadata.data_format,
            value_schema_id: fields.value_schema_metadata.schema_id,
            value_schema_format: fields.value_schema_metadata.data_format,
            is_tombstone: fields.value.is_none(),
            partition: partition.and_then(|(_, number)| number.parse().ok()),
            topic,
            cluster,
            id: offset.map(|offset| format!("{topic_partition}-{offset}")),
            topic_partition,
            value: fields.value,
            headers: fields.headers.into_iter().flatten().flatten().collect(),
        }
    }

    /// Returns the record's key as text, or in Base64 where it is not UTF-8; `None` where it has
    /// none.
    pub fn key_text(&self) -> Option<String> {
        self.key.as_deref().map(text)
    }

    /// Returns the bytes of the last header of this name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.last(name)?.bytes()
    }

    fn last(&self, name: &str) -> Option<&HeaderBytes> {
        let mut headers = self.headers.iter().rev();
        headers.find_map(|(own, value)| (own == name).then_some(value))
    }
}

/// Reads the id of a record. A topic's name may have hyphens, an offset has none.
fn place(id: &str) -> Value {
    let (partition, offset) = id.rsplit_once('-').unwrap_or_default();
    json!({ "partition": partition, "offset": offset.parse::<u64>().ok() })
}

impl Source for KafkaEvent {
    type Record = KafkaRecord;
    type Reply = ItemFailures<Value>;

    const NAME: &'static str = "kafka";

    fn records(self) -> Vec<KafkaRecord> {
        self.records
    }

    fn id(record: &KafkaRecord) -> Option<&str> {
        record.id.as_deref()
    }

    fn token(record: &KafkaRecord) -> Option<Cow<'_, str>> {
        let token = token(record.cluster.as_deref()?, record.id.as_deref()?);
        Some(Cow::Owned(token))
    }

    /// Returns the value, or the JSON text `null` where it is null.
    fn body(record: &KafkaRecord) -> Result<&[u8], BodyError> {
        record.value.as_ref().map_or(Ok(NO_VALUE), Data::bytes)
    }

    fn origin(record: &KafkaRecord) -> Option<&str> {
        Some(&record.topic)
    }

    fn order_key(record: &KafkaRecord) -> Option<&str> {
        Some(&record.topic_partition)
    }

    fn is_ordered(_: &KafkaRecord) -> bool {
        true
    }

    /// Returns the last header of this name as text, or in Base64 where it is not UTF-8.
    fn attribute(record: &KafkaRecord, name: &str) -> Option<String> {
        record.last(name)?.text()
    }

    /// Names each of these records: Lambda's page says that only the failed ones are delivered again, so one
    /// that is left out could be lost.
    fn reply(failed: Vec<String>) -> ItemFailures<Value> {
        ItemFailures::of(failed.iter().map(|id| place(id)))
    }

    messaging_spans! {
        system: "kafka", trigger: "pubsub", verb: "poll", destination: &record.topic,
        |records| "kafka_batch" {}
        |record| "kafka_record" {
            messaging.destination.partition.id = record.partition,
            messaging.kafka.offset = record.offset,
            messaging.kafka.message.tombstone = record.is_tombstone.then_some(true),
        }
    }
}
