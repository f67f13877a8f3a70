//! What a handler gets for each message.

use std::fmt;

use aws_lambda_events::event::sqs::SqsMessage;
use tokio::time::Instant;

use crate::claim::Claim;
use crate::sqs::trace::Origin;

/// One message: its decoded body, the claim that its handler holds, and the message as SQS delivered it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Message<T> {
    /// The body, decoded from JSON. It is the handler's own: changing it changes neither the key nor the fingerprint.
    pub body: T,
    /// The right to run, with keys for effects outside and the time that is left.
    pub claim: Claim,
    /// Attributes, receipt handle, queue and the body's text, as they were delivered.
    pub metadata: SqsMessage,
    pub(super) stop_at: Option<Instant>,
}

impl<T> Message<T> {
    /// The id that SQS gave the message. It changes when the message is sent again, or redriven from a dead-letter queue.
    pub fn id(&self) -> &str {
        self.metadata.message_id.as_deref().unwrap_or_default()
    }

    /// How often the message has been received, this time included: SQS's `ApproximateReceiveCount`. `None` where the event
    /// doesn't tell.
    pub fn receive_count(&self) -> Option<u32> {
        receive_count(&self.metadata)
    }

    /// Where the producer was in its trace, as a W3C `traceparent`: from `AWSTraceHeader`, which SQS passes on where the producer
    /// was traced. The message's span has it as `link.traceparent`; hand it to your tracer to make a real link of it.
    ///
    /// ```
    /// # fn shown(message: &lambda_idempotency::sqs::Message<u32>) {
    /// if let Some(traceparent) = message.traceparent() {
    ///     // With `tracing-opentelemetry`: extract a `SpanContext` from it, and `Span::current().add_link(context)`.
    ///     println!("{traceparent}"); // 00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01
    /// }
    /// # }
    /// ```
    pub fn traceparent(&self) -> Option<String> {
        Origin::of(&self.metadata).map(|origin| origin.traceparent())
    }

    /// Waits until the invocation's time is nearly over: when the [reserve](super::BatchLayer::reserve) begins. Never, where
    /// no deadline is known.
    ///
    /// A handler that is still running then has the reserve to stop in an orderly way. One that doesn't is cut off at the
    /// deadline, and a retry runs after its lease.
    ///
    /// ```
    /// # use lambda_idempotency::sqs::Message;
    /// async fn work(message: Message<u32>) -> Result<(), std::io::Error> {
    ///     tokio::select! {
    ///         () = message.cancelled() => Err(std::io::Error::other("out of time; the message comes again")),
    ///         done = count_to(message.body) => done,
    ///     }
    /// }
    /// # async fn count_to(_: u32) -> Result<(), std::io::Error> { Ok(()) }
    /// ```
    pub async fn cancelled(&self) {
        match self.stop_at {
            Some(stop_at) => tokio::time::sleep_until(stop_at).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the invocation's time is nearly over.
    pub fn is_cancelled(&self) -> bool {
        self.stop_at
            .is_some_and(|stop_at| Instant::now() >= stop_at)
    }
}

pub(super) fn receive_count(message: &SqsMessage) -> Option<u32> {
    message
        .attributes
        .get("ApproximateReceiveCount")?
        .parse()
        .ok()
}

/// Shows the message's id and its claim: the body, the attributes and the receipt handle are not for logs.
impl<T> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("key", &self.claim.key_hash())
            .field("attempt", &self.claim.attempt())
            .finish_non_exhaustive()
    }
}
