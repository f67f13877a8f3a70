//! Makes a handler of an EventBridge Pipe's batches of a handler of one message.
//!
//! A pipe hands its target a [JSON array of the source's records][page], also where there is one
//! record alone. The layer reads this array and gives all else as the source itself gives it: ids,
//! keys, bodies, order. The reply names the messages that must be delivered again by the source's ids, and
//! the pipe reads it without a setting. The pipe must invoke the function synchronously
//! (`InvocationType: REQUEST_RESPONSE`, its default), and an input transformer must leave the
//! records as they are.
//!
//! ```
//! use lambda_idempotency::{Idempotency, pipes, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
//! let mut worker = pipes::BatchLayer::new(once)
//!     .operation("charge")
//!     .handler(|message: pipes::Message<u64>| async move {
//!         println!("charging {}", message.body);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, two messages by hand; the second is no number.
//! let event = serde_json::from_str(r#"[{"messageId": "m-1", "body": "1250"}, {"messageId": "m-2", "body": "?"}]"#)?;
//! let reply = worker.call(LambdaEvent::new(event, Context::default())).await?;
//! assert_eq!(reply.batch_item_failures, ["m-2"]);
//! # Ok(()) }
//! ```
//!
//! # Which sources
//!
//! SQS. Its records have the [same members][sqs] in a pipe as in an event source mapping. The
//! records of other sources differ: those of Kinesis, for example, are [flat][kinesis].
//!
//! [page]: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-pipes-batching-concurrency.html
//! [sqs]: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-pipes-sqs.html
//! [kinesis]: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-pipes-kinesis.html

use lambda_runtime::Context;
use tracing::Span;

use crate::batch::{BodyError, Source};
use crate::sqs::{SqsEvent, SqsMessage};

pub use crate::batch::{BatchError, Order, Rejected, Rejection};
pub use crate::streams::ItemFailures;

/// Makes a handler of a pipe's batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<Vec<SqsMessage>, T, E>;

/// Holds one message: its decoded body, the claim of its handler, and the message as the pipe
/// delivered it.
pub type Message<T> = crate::batch::Message<Vec<SqsMessage>, T>;

/// Defines methods that do what those of [`SqsEvent`] do.
macro_rules! as_sqs {
    ($($name:ident($($part:ident: $type:ty),+) -> $returned:ty;)+) => {
        $(fn $name($($part: $type),+) -> $returned {
            SqsEvent::$name($($part),+)
        })+
    };
}

/// Reads messages as [`SqsEvent`] does; only the event and the reply differ.
impl Source for Vec<SqsMessage> {
    type Record = SqsMessage;
    type Reply = ItemFailures;

    const NAME: &'static str = "pipe";

    fn records(self) -> Vec<SqsMessage> {
        self
    }

    fn reply(failed: Vec<String>) -> ItemFailures {
        ItemFailures::of(failed)
    }

    as_sqs! {
        id(record: &SqsMessage) -> Option<&str>;
        body(record: &SqsMessage) -> Result<&[u8], BodyError>;
        origin(record: &SqsMessage) -> Option<&str>;
        order_key(record: &SqsMessage) -> Option<&str>;
        is_ordered(record: &SqsMessage) -> bool;
        deliveries(record: &SqsMessage) -> Option<u32>;
        attribute(record: &SqsMessage, name: &str) -> Option<String>;
        batch_span(records: &[SqsMessage], context: &Context) -> Span;
        record_span(record: &SqsMessage) -> Span;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_passes_on_how_often_its_source_has_delivered() {
        let record = |count: &str| {
            let mut message = SqsMessage::default();
            let name = "ApproximateReceiveCount".to_owned();
            message.attributes.insert(name, count.to_owned());
            message
        };
        assert_eq!(Vec::<SqsMessage>::deliveries(&record("3")), Some(3));
        assert_eq!(Vec::<SqsMessage>::deliveries(&record("")), None);
    }
}
