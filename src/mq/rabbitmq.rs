//! Makes a handler of RabbitMQ batches of a handler of one message. [The module above](super) has
//! what both brokers share.
//!
//! ```
//! use lambda_idempotency::{Idempotency, mq::{Selector, rabbitmq}, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("billing").build()?;
//! let mut worker = rabbitmq::BatchLayer::new(once)
//!     .key_from(Selector::attribute("bill-id"))
//!     .handler(|message: rabbitmq::Message<u64>| async move {
//!         println!("{:?}: {}", message.metadata.queue(), message.body);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, one message by hand; its data is `1250`.
//! let event: rabbitmq::RabbitMqEvent = serde_json::from_str(
//!     r#"{"eventSource": "aws:rmq", "eventSourceArn": "arn:aws:mq:eu-central-1:123456789012:broker:shop:b-1", "rmqMessagesByQueue": {"bills::/": [
//!         {"basicProperties": {"headers": {"bill-id": {"bytes": [66, 45, 49, 55]}}}, "redelivered": false, "data": "MTI1MA=="}
//!     ]}}"#,
//! )?;
//! worker.call(LambdaEvent::new(event, Context::default())).await?;
//! # Ok(()) }
//! ```

mod event;
mod source;

pub use event::{BasicProperties, RabbitMqEvent, RabbitMqMessage};
pub use source::RabbitMq;

/// Makes a handler of RabbitMQ batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<RabbitMq, T, E>;

/// Serves `LambdaEvent<RabbitMqEvent>`. [`BatchLayer`] makes it.
pub type BatchService<T, E, Svc> = crate::batch::BatchService<RabbitMq, T, E, Svc>;

/// Holds one RabbitMQ message: its decoded data, the claim of its handler, and the message as
/// Lambda delivered it.
pub type Message<T> = crate::batch::Message<RabbitMq, T>;
