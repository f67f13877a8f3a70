//! Makes a handler of S3 notifications, sent to the function itself, of a handler of one record.
//!
//! [`BatchLayer`] takes the key of each record, and runs the handler for it once. The invocation is
//! asynchronous, and no reply is read: where a record must come again, the whole invocation fails
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
//!         println!("{}: {:?}", record.metadata.bucket, record.metadata.object_key());
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
//! [`Sequencer`] with what the handler writes, and write only where the arriving one is greater.
//!
//! # What fails
//!
//! The test event that S3 sends when notifications are set up has no records, and is done. An event
//! of another source fails the invocation before anything runs. By default Lambda tries a function
//! that fails [three times in all][async], then discards the event: set an on-failure destination,
//! and take what no retry will mend with [`on_rejected`](BatchLayer::on_rejected).
//!
//! `sqs` has the rest: what is compared, what is logged, and what happens when time runs out.
//!
//! [async]: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
//! [content]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
//! [twice]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventNotifications.html

mod event;
mod sequencer;
mod source;

pub use event::{S3Event, S3Record};
pub use sequencer::Sequencer;
pub use source::S3Events;

pub use crate::batch::{BatchError, Order, Rejected, Rejection, Selector, SelectorError};

/// Makes a handler of S3 notifications of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<S3Events, T, E>;

/// Serves `LambdaEvent<S3Event>`. [`BatchLayer`] makes it.
pub type BatchService<T, E, Svc> = crate::batch::BatchService<S3Events, T, E, Svc>;

/// Holds one record of an S3 notification: its decoded JSON, the claim of its handler, and the
/// record as S3 delivered it.
pub type Message<T> = crate::batch::Message<S3Events, T>;
