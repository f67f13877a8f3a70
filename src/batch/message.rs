//! Defines the message that a handler gets.

use std::borrow::Cow;
use std::fmt;

use tokio::time::Instant;

use crate::batch::Source;
use crate::batch::turns::is_over;
use crate::engine::claim::Claim;
use crate::envelope::{Envelope, Opened};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

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

    /// Returns the id that reports the message.
    pub fn id(&self) -> &str {
        S::id(&self.metadata).unwrap_or_default()
    }

    /// Waits until the [reserve](super::Settings::reserve) begins, at the end of the invocation's
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
    ///         () = message.cancelled() => Err(std::io::Error::other("out of time; the message is delivered again")),
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

    /// Returns whether the reserve has begun.
    pub fn is_cancelled(&self) -> bool {
        is_over(self.stop_at)
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

/// Holds the content of one message.
pub(super) struct Content<'a, S: Source> {
    message: &'a S::Record,
    body: &'a [u8],
    opened: Option<Opened>,
}

impl<'a, S: Source> Content<'a, S> {
    /// Opens the envelopes around a body, the outermost first. `payload` is what a pointer to S3
    /// among them stands for, where it was fetched.
    pub(super) fn open(
        message: &'a S::Record,
        body: &'a [u8],
        envelopes: &[Envelope],
        payload: Option<&str>,
    ) -> Result<Self, &'static str> {
        Ok(Self {
            message,
            body,
            opened: Envelope::open_all(envelopes, body, payload)?,
        })
    }

    /// Returns the message as its source delivered it.
    pub(super) fn message(&self) -> &'a S::Record {
        self.message
    }

    /// Returns what is decoded for the handler.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.opened {
            Some(opened) => opened.text.as_bytes(),
            None => self.body,
        }
    }

    /// Returns the same as text, which is empty where it is none.
    pub(super) fn text(&self) -> &str {
        match &self.opened {
            Some(opened) => &opened.text,
            None => std::str::from_utf8(self.body).unwrap_or_default(),
        }
    }

    /// Returns the id that is the key, unless a key is set.
    pub(super) fn id(&self) -> Option<Cow<'_, str>> {
        match &self.opened {
            Some(opened) if !opened.keeps_id => opened.id.as_deref().map(Cow::Borrowed),
            _ => S::token(self.message),
        }
    }

    /// Returns the attribute of this name: that of the envelope, else that of the message.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let opened = self.opened.as_ref();
        let inside = opened.and_then(|opened| opened.attributes.get(name).cloned());
        inside.or_else(|| S::attribute(self.message, name))
    }

    /// Returns whether nothing is here of what the message asks for: its payload was not fetched.
    pub(super) fn is_unknown(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.pointer.is_some())
    }

    /// Takes the fingerprint of the text without these fields, and of what its envelope says that
    /// the text asks for. A payload that was fetched has the fingerprint of a body with its text.
    pub(super) fn fingerprint(&self, left_out: &[Pointer]) -> Fingerprint {
        let text = || Fingerprint::json_without(self.bytes(), left_out);
        match &self.opened {
            Some(opened) if opened.pointer.is_some() => Fingerprint::combine(&opened.context),
            Some(opened) if !opened.context.is_empty() => {
                Fingerprint::combine(opened.context.iter().chain([&text()]))
            }
            _ => text(),
        }
    }
}
