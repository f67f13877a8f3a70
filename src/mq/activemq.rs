//! Makes a handler of ActiveMQ batches of a handler of one message. [The module above](super) has
//! what both brokers share.
//!
//! ```
//! use lambda_idempotency::{Idempotency, mq::activemq, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("billing").build()?;
//! let mut worker = activemq::BatchLayer::new(once)
//!     .handler(|message: activemq::Message<u64>| async move {
//!         println!("{:?}: {}", message.metadata.queue(), message.body);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, one message by hand; its data is `1250`.
//! let event: activemq::ActiveMqEvent = serde_json::from_str(
//!     r#"{"eventSource": "aws:mq", "eventSourceArn": "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1", "messages": [
//!         {"messageID": "ID:shop-1:4:12:1:1:3", "destination": {"physicalName": "bills"}, "data": "MTI1MA=="}
//!     ]}"#,
//! )?;
//! worker.call(LambdaEvent::new(event, Context::default())).await?;
//! # Ok(()) }
//! ```

mod event;
mod source;

pub use event::{ActiveMqEvent, ActiveMqMessage};
pub use source::ActiveMq;

/// Makes a handler of ActiveMQ batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<ActiveMq, T, E>;

/// Serves `LambdaEvent<ActiveMqEvent>`. [`BatchLayer`] makes it.
pub type BatchService<T, E, Svc> = crate::batch::BatchService<ActiveMq, T, E, Svc>;

/// Holds one ActiveMQ message: its decoded data, the claim of its handler, and the message as
/// Lambda delivered it.
pub type Message<T> = crate::batch::Message<ActiveMq, T>;
