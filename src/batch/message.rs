//! Defines the message that a handler gets.

use std::fmt;

use tokio::time::Instant;

use crate::batch::Source;
use crate::engine::claim::Claim;

/// Holds one message: its decoded body, the claim of its handler, and the message as its source
/// delivered it.
#[non_exhaustive]
pub struct Message<S: Source, T> {
    /// The body, decoded from JSON. It is the handler's own: changing it changes neither the key
    /// nor the fingerprint.
    pub body: T,
    /// The right to run, with keys for effects outside and the time that is left.
    pub claim: Claim,
    /// The message as its source delivered it.
    pub metadata: S::Record,
    pub(super) stop_at: Option<Instant>,
}

impl<S: Source, T> Message<S, T> {
    /// Makes a message of an invocation without a deadline, for tests of a handler.
    #[cfg(all(feature = "sqs", feature = "test-util"))]
    pub(crate) fn new(body: T, claim: Claim, metadata: S::Record) -> Self {
        Self {
            body,
            claim,
            metadata,
            stop_at: None,
        }
    }

    /// Gives the id that reports the message.
    pub fn id(&self) -> &str {
        S::id(&self.metadata).unwrap_or_default()
    }

    /// Waits until the [reserve](super::BatchLayer::reserve) begins, at the end of the invocation's
    /// time; for ever where no deadline is known.
    ///
    /// A handler that still runs then has the first half of the reserve to stop in an orderly way,
    /// and all of a longer one but its last half second. One that doesn't is ended: its future is
    /// dropped, its message alone is reported, and its claim ends as after a panic
    /// ([`OnCrash`](crate::OnCrash) says how). A handler that blocks its thread can't be ended, and
    /// costs its batch all acknowledgements at the deadline.
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

    /// Tells whether the reserve has begun.
    pub fn is_cancelled(&self) -> bool {
        self.stop_at
            .is_some_and(|stop_at| Instant::now() >= stop_at)
    }
}

clone_fields!([S: Source, T: Clone] Message<S, T> { body, claim, metadata, stop_at });

/// Shows the message's id and its claim: the body and the attributes are not for logs.
impl<S: Source, T> fmt::Debug for Message<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("key", &self.claim.key_hash())
            .field("attempt", &self.claim.attempt())
            .finish_non_exhaustive()
    }
}
