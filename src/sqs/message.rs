//! What a handler gets for each message.

use std::fmt;

use aws_lambda_events::event::sqs::SqsMessage;

use crate::claim::Claim;

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
}

impl<T> Message<T> {
    /// The id that SQS gave the message. It changes when the message is sent again, or redriven from a dead-letter queue.
    pub fn id(&self) -> &str {
        self.metadata.message_id.as_deref().unwrap_or_default()
    }

    /// How often the message has been received, this time included: SQS's `ApproximateReceiveCount`. `None` where the event
    /// doesn't tell.
    pub fn receive_count(&self) -> Option<u32> {
        self.metadata
            .attributes
            .get("ApproximateReceiveCount")
            .and_then(|count| count.parse().ok())
    }
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
