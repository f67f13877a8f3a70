//! Makes a handler of batches of a DynamoDB table's stream of a handler of one change.
//!
//! [`BatchLayer`] gives the handler each change of an item as plain JSON, and runs it once. The
//! reply names the first record that must come again: set
//! `FunctionResponseTypes: [ReportBatchItemFailures]` on the event source mapping. Without it,
//! Lambda ignores the reply and [goes on behind the batch][partial], so that failed records are
//! lost. Where you can't set it, call
//! [`without_item_failures`](crate::batch::BatchLayer::without_item_failures).
//!
//! ```
//! use lambda_idempotency::dynamodb_streams::{self, Change};
//! use lambda_idempotency::{Idempotency, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::{Service, ServiceBuilder};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     state: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("notices").build()?;
//! let mut worker = ServiceBuilder::new()
//!     .layer(dynamodb_streams::BatchLayer::new(once).operation("notify"))
//!     .service_fn(|message: dynamodb_streams::Message<Change<Order>>| async move {
//!         if let Some(order) = &message.body.new {
//!             println!("order {} is {}", message.body.keys["id"], order.state);
//!         }
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, two records by hand; the second order has no state.
//! let event: dynamodb_streams::DynamoDbStreamEvent = serde_json::from_str(
//!     r#"{"Records": [
//!         {"eventID": "1", "eventName": "INSERT",
//!          "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000",
//!          "dynamodb": {"SequenceNumber": "111", "Keys": {"id": {"N": "7"}},
//!                       "NewImage": {"id": {"N": "7"}, "state": {"S": "placed"}}}},
//!         {"eventID": "2", "eventName": "INSERT",
//!          "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000",
//!          "dynamodb": {"SequenceNumber": "222", "Keys": {"id": {"N": "8"}},
//!                       "NewImage": {"id": {"N": "8"}}}}
//!     ]}"#,
//! )?;
//! let reply = worker.call(LambdaEvent::new(event, Context::default())).await?;
//! let again: Vec<_> = reply.batch_item_failures.iter().map(|item| item.item_identifier.as_str()).collect();
//! assert_eq!(again, ["222"]);
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! The default key joins the stream's ARN and the record's `eventID`. A stream has
//! [each change once][streams], so this key recognises each repeated delivery of a change. It
//! doesn't recognise work that two changes ask for: there, take an identity of the work from the
//! item, such as its key and a version attribute, with [`key`](crate::batch::BatchLayer::key).
//!
//! | | default key | item and version |
//! |---|---|---|
//! | Lambda delivers again: from a checkpoint, a split batch, a failed invocation | yes | yes |
//! | the event source mapping is made anew | yes | yes |
//! | the stream is switched off and on again, and gets a new ARN | **no** | yes |
//! | an item is written again without a change of its version | **no** | yes |
//!
//! # What the handler gets
//!
//! The body is `{"event": "INSERT", "keys": {…}, "old": {…}, "new": {…}}`, in plain JSON; a
//! [`Change`] decodes it. Images that the stream doesn't have are left out.
//! [`Message::is_expiry`](crate::batch::Message::is_expiry) tells a removal by time to live from
//! others.
//!
//! # In which order
//!
//! Changes of one item run one after the other, in the order of the stream; those of different items
//! run side by side. A record that must come again stops its item: no later change of the item runs
//! in this batch. Other items go on. [`Order`] has other choices.
//!
//! # What the reply does
//!
//! The reply names the lowest sequence number among the records that must come again, because
//! Lambda [takes the lowest as its checkpoint][partial]: it delivers this record and *all* after it
//! again. Those of them that succeeded are replayed. [The page of `kinesis`](crate::kinesis#what-it-costs)
//! has the costs, which are the same here.
//!
//! By default Lambda repeats a failed record [until it expires in the stream][parameters], and its
//! shard waits. After `MaximumRetryAttempts`, or past `MaximumRecordAgeInSeconds`, Lambda
//! [discards the records][failures] that it still retries. A retry begins at the checkpoint, so
//! these are the record that failed and all after it in the batch, among them the later changes of
//! its item, **which never started**. An on-failure queue or topic gets metadata only, not the
//! images; an S3 bucket also gets the event.
//! [`on_rejected`](crate::batch::BatchLayer::on_rejected) takes the records that no retry will mend.
//!
//! # How long outcomes are kept
//!
//! A stream keeps records for [24 hours][streams], and outcomes are kept for 7 days: the default is
//! enough.
//!
//! [partial]: https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
//! [streams]: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
//! [parameters]: https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html
//! [failures]: https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html

mod change;
mod event;
mod plain;
mod source;

pub use change::{Change, ChangeKind};
pub use event::{DynamoDbStreamEvent, DynamoDbStreamRecord, UserIdentity};
pub use source::DynamoDbStreams;

pub use crate::batch::{
    BatchError, BodyError, Envelope, Order, Rejected, Rejection, Selector, SelectorError,
};
pub use crate::streams::{ItemFailure, ItemFailures};

/// Makes a handler of batches of a table's stream of a handler of one [`Message`].
/// [The module](self) has an example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<DynamoDbStreams, T, E>;

/// Serves `LambdaEvent<DynamoDbStreamEvent>`. [`BatchLayer`] makes it.
pub type BatchService<T, E, Svc> = crate::batch::BatchService<DynamoDbStreams, T, E, Svc>;

/// Holds one record: its decoded body, the claim of its handler, and the record as Lambda delivered
/// it.
pub type Message<T> = crate::batch::Message<DynamoDbStreams, T>;
