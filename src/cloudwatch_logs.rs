//! Makes a handler of CloudWatch Logs batches of a handler of one log event.
//!
//! A subscription filter invokes the function with many log events at once, in gzip. [`BatchLayer`]
//! unpacks them, takes the key of each, and runs the handler for it once. The invocation is
//! asynchronous, and no reply is read: where a log event must come again, the whole invocation
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
//!         println!("{}: {}", event.metadata.log_group(), event.body);
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
//! set an on-failure destination. A log event that no retry will mend fails its batch three times,
//! so take it with [`on_rejected`](BatchLayer::on_rejected). A function whose own log group has the
//! subscription invokes itself without end.
//!
//! `sqs` has the rest: what is compared, what is logged, and what happens when time runs out.
//!
//! [async]: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html

mod event;
mod source;

pub use event::{LogRecord, LogsEvent};
pub use source::CloudWatchLogs;

pub use crate::batch::{BatchError, Order, Rejected, Rejection, Selector, SelectorError};

/// Makes a handler of CloudWatch Logs batches of a handler of one [`Message`]. [The module](self)
/// has an example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<CloudWatchLogs, T, E>;

/// Serves `LambdaEvent<LogsEvent>`. [`BatchLayer`] makes it.
pub type BatchService<T, E, Svc> = crate::batch::BatchService<CloudWatchLogs, T, E, Svc>;

/// Holds one log event: its decoded message, the claim of its handler, and the log event as
/// CloudWatch Logs delivered it.
pub type Message<T> = crate::batch::Message<CloudWatchLogs, T>;
