//! The settings of a layer that few functions change.

use std::time::Duration;

use crate::protocol::pointer::Pointer;

/// A layer's rarely changed settings, with their defaults:
/// [`InvokeLayer::settings`](super::InvokeLayer::settings) passes them to its closure. The layer has
/// methods for the others.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{Idempotency, invoke::{Invocation, InvokeLayer}, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("payouts").build()?;
/// let function = InvokeLayer::new(once)
///     .key(|payout: &String| payout.clone())
///     .settings(|settings| {
///         settings.without_answer = true;
///         settings.reserve = Some(Duration::from_secs(1));
///     })
///     .handler(|event: Invocation<String>| async move { Ok::<_, std::io::Error>(()) });
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Settings {
    /// The time for which the source may deliver an event again: the retention of an archive that is
    /// replayed, or of a queue in which a caller keeps its requests. Default: undeclared, and
    /// nothing is compared.
    ///
    /// The layer logs a warning once, `retention_too_short`, at the first event whose outcome is
    /// kept for a shorter time.
    pub source_retention: Option<Duration>,
    /// The reserve, the last part of the invocation's time: a handler that still runs then is ended,
    /// so that its claim is released and the caller gets `Idempotency.TimedOut`. Default: a
    /// twentieth of the time that the invocation has, at most 500 ms. At most half of that time,
    /// whatever is set.
    pub reserve: Option<Duration>,
    /// Answers `null` to each event that is done, because no caller reads the answer: for
    /// asynchronous invocations. An outcome that was not kept, because it is too large or can't be
    /// written as JSON, is done like any other. Default: off, and the caller gets the handler's
    /// answer, and an error where an earlier answer was not kept; on for sources that read none.
    ///
    /// An [on-success destination][destination] gets the answer, `null` here.
    ///
    /// [destination]: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
    pub without_answer: bool,
    /// The fields of the payload that are left out of the fingerprint, such as `/sent_at` and
    /// `/meta/trace`: they may differ between two events of one request; a pointer to the whole
    /// changes nothing. A payload without a [canonical form](crate::Fingerprint) is compared whole.
    /// Default: none.
    ///
    /// An event that differs there gets the answer of the first, so leave out nothing that changes
    /// what it asks for.
    ///
    /// Set it before the function goes live, or with another key: a record that was written without it
    /// is a mismatch for the same event, delivered again.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, invoke::{Invocation, InvokeLayer}, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payouts").build()?;
    /// # #[derive(serde::Deserialize)] struct Payout { id: String }
    /// let sent_at = "/sent_at".parse()?;
    /// let function = InvokeLayer::new(once)
    ///     .key(|payout: &Payout| payout.id.clone())
    ///     .settings(|settings| settings.fingerprint_without = vec![sent_at])
    ///     .handler(|event: Invocation<Payout>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fingerprint_without: Vec<Pointer>,
}
