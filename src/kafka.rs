//! Makes a handler of Kafka batches of a handler of one record: of Amazon MSK, or of a self-managed
//! cluster.
//!
//! [`BatchLayer`] decodes the value of each record, takes its key, and runs the handler for it once.
//! The reply names the records that must come again, in the shape that [Lambda's page][partial] has.
//! Lambda reads the reply where the event source mapping is in [provisioned mode][modes] and has
//! `FunctionResponseTypes: [ReportBatchItemFailures]` ([retries]). Where you can't set both, call
//! [`without_item_failures`](BatchLayer::without_item_failures), or failed records may be lost.
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
//! let again = &reply.batch_item_failures[0].item_identifier;
//! assert_eq!((again.partition.as_str(), again.offset), ("movements-0", 16));
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! | key | survives |
//! |---|---|
//! | an identity of the work: in the value ([`key`](BatchLayer::key)), or in a header ([`Selector::attribute`]) | a retry of Lambda's, a rebalance, a producer that sends twice, a new topic, mirroring to another cluster |
//! | cluster, topic, partition and offset (default) | a retry of Lambda's, a rebalance, an offset that is set back |
//!
//! The cluster is the event's `eventSourceArn`. A self-managed cluster has none; its name is the
//! sorted list of bootstrap servers, so that another list makes other keys. The record's own Kafka
//! key is no idempotency key: it names what the record is about, and many records have it.
//!
//! # Values
//!
//! A value is decoded as JSON. For another format, make the layer
//! [with a decoder](BatchLayer::with_decoder), which gets the record with its
//! [schema](KafkaRecord::value_schema), too. A record whose value is null (a tombstone of a
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
//! ([retries]), or take what no retry will mend with [`on_rejected`](BatchLayer::on_rejected). What
//! Lambda gives up holds records that never started: those that are reported with the failed one.
//!
//! `sqs` has the rest: what is compared, what is logged, and what happens when time runs out.
//!
//! [modes]: https://docs.aws.amazon.com/lambda/latest/dg/kafka-scaling-modes.html
//! [partial]: https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html#kafka-partial-batch-response
//! [retries]: https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html

mod event;
mod record;
mod reply;
mod source;

pub use event::KafkaEvent;
pub use record::{KafkaRecord, SchemaMetadata};
pub use reply::{KafkaItemFailure, KafkaItemFailures, RecordPlace};
pub use source::Kafka;

pub use crate::batch::{BatchError, Order, Rejected, Rejection, Selector, SelectorError};

/// Makes a handler of Kafka batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<Kafka, T, E>;

/// Serves `LambdaEvent<KafkaEvent>`. [`BatchLayer`] makes it.
pub type BatchService<T, E, Svc> = crate::batch::BatchService<Kafka, T, E, Svc>;

/// Holds one Kafka record: its decoded value, the claim of its handler, and the record as Lambda
/// delivered it.
pub type Message<T> = crate::batch::Message<Kafka, T>;
