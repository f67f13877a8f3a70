//! Makes a handler of Kinesis batches of a handler of one record.
//!
//! [`BatchLayer`] decodes each record of a data stream, takes its key, and runs the handler for it
//! once. The reply names the first record that must come again: set
//! `FunctionResponseTypes: [ReportBatchItemFailures]` on the event source mapping. Without it,
//! Lambda ignores the reply and [goes on behind the batch][partial], so that failed records are
//! lost. Where you can't set it, call
//! [`without_item_failures`](crate::batch::BatchLayer::without_item_failures).
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
//! let again: Vec<_> = reply.batch_item_failures.iter().map(|item| item.item_identifier.as_str()).collect();
//! assert_eq!(again, ["4960"]);
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
//! different keys run side by side. A record that must come again stops its key: no later record of
//! this key runs in this batch. Other keys go on. [`Order`] has other choices.
//!
//! # What the reply does
//!
//! The reply names the lowest sequence number among the records that must come again, because
//! Lambda [takes the lowest as its checkpoint][partial]: it delivers this record and *all* after it
//! again. Those of them that succeeded are replayed. The process remembers which records it asked
//! for again, and reads their outcomes first.
//!
//! A record fails, and so stops its key and sets the checkpoint, where its data is missing, is not
//! Base64 or doesn't decode. A record without a sequence number fails the whole batch before
//! anything runs.
//!
//! # Aggregates
//!
//! An aggregate of the Kinesis Producer Library (KPL) is taken apart: each record in it runs for
//! itself, in the order of its own partition key. Its default key has its
//! [place](KinesisRecord::sub_sequence_number) in the aggregate, too. One that must come again sets the
//! checkpoint to the aggregate, whose other records are then replayed. The library sends records again
//! that reached another shard than it meant, in another aggregate: use an identity of the work.
//! An aggregate that can't be read, or has more than 32,768 records, fails as one record.
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
//! [`on_rejected`](crate::batch::BatchLayer::on_rejected) takes records that no retry will mend (a
//! [`Rejection`]) with their data, so that they neither set the checkpoint nor use up retries.
//!
//! # How long outcomes are kept
//!
//! A stream keeps records for [24 hours to 365 days][retention]. Outcomes are kept for 7 days; where
//! the stream keeps records for longer, set [`retention`](crate::Builder::retention) to more than
//! that. A mapping that starts again at `TRIM_HORIZON` then repeats no effect.
//!
//! # What it costs
//!
//! In requests to DynamoDB, for *n* records:
//!
//! | | requests |
//! |---|---|
//! | new, of different partition keys, with quick handlers | 2·⌈n/25⌉ |
//! | new, of one partition key | at most ⌈n/25⌉ + n: each is completed before the next one starts |
//! | come again, and this process asked for them | one read for each group of up to 25, and the requests of those that are not done |
//! | come again, and this process doesn't know | the claims, which are refused, and one read for each group |
//!
//! A refused claim of a group is billed as a write. It happens to the first repetition that reaches
//! another execution environment.
//!
//! [partial]: https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html
//! [duplicates]: https://docs.aws.amazon.com/streams/latest/dev/kinesis-record-processor-duplicates.html
//! [parameters]: https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-parameters.html
//! [failures]: https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html
//! [retention]: https://docs.aws.amazon.com/streams/latest/dev/kinesis-extended-retention.html

mod aggregate;
mod event;
mod source;

pub use event::{KinesisEvent, KinesisRecord};
pub use source::Kinesis;

pub use crate::batch::{
    BatchError, BodyError, Envelope, Order, Rejected, Rejection, Selector, SelectorError,
};
pub use crate::streams::{ItemFailure, ItemFailures};

/// Makes a handler of Kinesis batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<Kinesis, T, E>;

/// Serves `LambdaEvent<KinesisEvent>`. [`BatchLayer`] makes it.
pub type BatchService<T, E, Svc> = crate::batch::BatchService<Kinesis, T, E, Svc>;

/// Holds one record: its decoded data, the claim of its handler, and the record as Lambda delivered
/// it.
pub type Message<T> = crate::batch::Message<Kinesis, T>;
