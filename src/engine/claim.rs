//! The claim, as a handler sees it while it runs.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use crate::engine::metrics::{Count, Meter};
use crate::engine::{Engine, events};
use crate::protocol::clock::{Clock, EpochMillis};
use crate::protocol::key::RecordId;
use crate::store::transaction::{Collected, Unwritten, Write, WriteError};

mod hold;
mod prepared;
mod results;
mod saga;
mod state;
mod steps;
mod time;

pub(crate) use hold::Hold;
pub use prepared::PreparedStep;
pub(crate) use results::to_faithful_json;
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
pub(crate) use results::to_json;
#[cfg(feature = "test-util")]
pub(crate) use results::{LOSSY, faithful};
pub use saga::Saga;
pub(crate) use state::Stop;
pub(crate) use time::ClaimTime;

use state::Steps;

/// The longest time between two looks at the engine's clock, which may go faster than the runtime's.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The leased, exclusive right to run the handler for a key, as the handler sees it.
///
/// A claim is cheap to clone. It gives keys for effects outside, keeps a journal of them, and has
/// the time that is left. Dropping it ends nothing: the lease ends when the handler returns, or
/// when its time is up.
#[derive(Clone, Debug)]
pub struct Claim {
    inner: Arc<Inner>,
}

/// The request that a claim is of.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) operation: Arc<str>,
    pub(crate) id: RecordId,
    pub(crate) meter: Arc<Meter>,
}

#[derive(Debug)]
struct Inner {
    operation: Arc<str>,
    id: RecordId,
    meter: Arc<Meter>,
    hold: Option<Hold>,
    time: Option<ClaimTime>,
    /// Wakes those who wait for the end of a claim that is lost.
    lost: Notify,
    clock: Arc<dyn Clock>,
    derived: AtomicBool,
    /// The generation of the keys that are derived: without a claim, known when the first one is.
    generation: OnceLock<u32>,
    collected: Collected,
    steps: Steps,
}

impl Claim {
    /// `hold` is `None` where nothing protects the run, and `journal` where no journal is written.
    pub(crate) fn new(
        subject: Subject,
        mut hold: Option<Hold>,
        journal: Option<Arc<Engine>>,
        time: Option<ClaimTime>,
        clock: Arc<dyn Clock>,
        collected: Collected,
    ) -> Self {
        let Subject {
            operation,
            id,
            meter,
        } = subject;
        let entries = hold.as_mut().map(|hold| std::mem::take(&mut hold.journal));
        let entries = entries.unwrap_or_default();
        let generation = match collected.unwritten() {
            Some(_) => OnceLock::new(),
            None => OnceLock::from(entries.key_generation()),
        };
        Self {
            inner: Arc::new(Inner {
                operation,
                id,
                meter,
                hold,
                time,
                lost: Notify::new(),
                clock,
                derived: AtomicBool::new(false),
                generation,
                collected,
                steps: Steps::new(journal, entries),
            }),
        }
    }

    /// Makes a key for an effect outside: the same in every attempt, process and version, for the
    /// same key and effect name. Only an operator who has a completed request run again can give it
    /// new ones (`idempotency rerun --keys new`).
    ///
    /// Hand it to a provider that honours idempotency keys, and an attempt that has to be repeated
    /// after a crash is recognised there. 64 lower-case hex digits, which fit Stripe's
    /// `Idempotency-Key` (255) and SQS's `MessageDeduplicationId` (128). Use one name per effect:
    /// two effects under one name get one key.
    ///
    /// Once a key was derived, the request's payload is bound to the idempotency key even if the
    /// handler fails: the effect may exist, and a provider would answer another payload with it. In
    /// a run without a key it is random.
    ///
    /// ```
    /// # use lambda_idempotency::{Fingerprint, Idempotency, Key, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let charged = once
    ///     .run(Key::new("charge", "order-1"), Fingerprint::json(b"{}"), |claim| async move {
    ///         Ok::<_, std::io::Error>(claim.derive_key("stripe"))
    ///     })
    ///     .await?;
    /// assert_eq!(charged.into_inner().len(), 64);
    /// # Ok(()) }
    /// ```
    pub fn derive_key(&self, effect: &str) -> String {
        self.inner.derived.store(true, Ordering::Relaxed);
        self.inner.id.derive_key_in(self.generation(), effect)
    }

    /// Makes the same key as a UUID, for providers and columns that take nothing longer: a
    /// `PayPal-Request-Id` (38), a UUID in a database. Use it as the id of what the handler makes,
    /// and a repetition makes the same thing.
    ///
    /// Version 8 of [RFC 9562](https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-8): the
    /// first bits of the SHA-256 that [`derive_key`](Self::derive_key) gives whole. In lower case,
    /// with hyphens.
    pub fn derive_uuid(&self, effect: &str) -> String {
        self.inner.derived.store(true, Ordering::Relaxed);
        self.inner.id.derive_uuid_in(self.generation(), effect)
    }

    /// Makes an id for an event that is one of the transaction's [writes](Self::write), of this
    /// type, about this aggregate, and with this name, which distinguishes two events of one type
    /// and one aggregate (`""` where there is one). A UUID, the same in every attempt; two events
    /// that differ in any of the three have two ids, whatever characters these hold. The event
    /// leaves only when the transaction has committed, so it doesn't bind the payload.
    pub fn event_id(&self, kind: &str, aggregate: &str, name: &str) -> String {
        let generation = self.generation();
        self.inner
            .id
            .derive_event(generation, kind, aggregate, name)
    }

    /// Counts an effect that its provider knew already: it answered this key before, so that without the
    /// key the effect would have happened twice.
    ///
    /// The counter `idempotency_side_effect_duplicates` and the log event `side_effect_duplicate` have it.
    /// A healthy system has next to none: an attempt died between the effect and its note, or two attempts
    /// ran at once.
    ///
    /// ```
    /// # use lambda_idempotency::Claim;
    /// # struct Reply { id: String, was_known: bool }
    /// # async fn transfer(_cents: u64, _key: String) -> std::io::Result<Reply> { Ok(Reply { id: "t-1".into(), was_known: true }) }
    /// async fn pay(claim: &Claim, cents: u64) -> std::io::Result<String> {
    ///     let reply = transfer(cents, claim.derive_key("transfer")).await?;
    ///     if reply.was_known {
    ///         claim.duplicate_at_provider("transfer");
    ///     }
    ///     Ok(reply.id)
    /// }
    /// ```
    pub fn duplicate_at_provider(&self, effect: &str) {
        let inner = &*self.inner;
        inner.meter.count(Count::SideEffectDuplicates);
        events::side_effect_duplicate(&inner.operation, &inner.id, effect);
    }

    /// Calls [`duplicate_at_provider`](Self::duplicate_at_provider) where an HTTP answer says so, and tells
    /// whether it does: by `Idempotent-Replayed: true`, as Stripe and this library's
    /// [HTTP layer](crate::http) have it, or `Idempotency-Replayed: true`.
    ///
    /// ```
    /// # use lambda_idempotency::Claim;
    /// fn answered(claim: &Claim, answer: &http::Response<Vec<u8>>) {
    ///     claim.provider_answered("stripe", answer.headers());
    /// }
    /// ```
    #[cfg(feature = "http")]
    #[cfg_attr(docsrs, doc(cfg(feature = "http")))]
    pub fn provider_answered(&self, effect: &str, headers: &http::HeaderMap) -> bool {
        let says_so = |name| {
            let value = headers.get(name);
            value.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
        };
        let is_duplicate = ["idempotent-replayed", "idempotency-replayed"]
            .into_iter()
            .any(says_so);
        if is_duplicate {
            self.duplicate_at_provider(effect);
        }
        is_duplicate
    }

    fn generation(&self) -> u32 {
        let known = || self.unwritten().map_or(0, Unwritten::key_generation);
        *self.inner.generation.get_or_init(known)
    }

    /// Returns the generation of the keys that were derived; in the claimless form `None` where none
    /// was.
    pub(crate) fn derived_generation(&self) -> Option<u32> {
        self.inner.generation.get().copied()
    }

    /// Returns the time by the engine's clock.
    pub fn now(&self) -> EpochMillis {
        self.inner.clock.now()
    }

    /// Tells how many [writes](Self::write) the transaction has so far.
    pub fn writes(&self) -> usize {
        self.collected().count()
    }

    /// Adds a business write to the handler's transaction: it commits together with the record when
    /// the handler has succeeded, and not at all when it fails.
    ///
    /// Nothing is sent now, so what the handler reads doesn't show it. In a run that nothing
    /// protects (the kill switch, a missing key that is let pass) the writes commit as one
    /// transaction without a record.
    ///
    /// # Errors
    ///
    /// At once, before anything is sent: when the store can't do it, or the transaction would break
    /// a limit.
    pub fn write(&self, write: impl Into<Write>) -> Result<(), WriteError> {
        self.collected().add(write.into())
    }

    /// Returns a copy of the first of the transaction's [writes](Self::write) that has this type. For
    /// stores that keep an open transaction there.
    pub fn written<W: Any + Clone>(&self) -> Option<W> {
        self.collected().find()
    }

    /// Returns the record that the transaction is going to write, where no claim has written it: in
    /// the claimless form. For stores that open transactions.
    pub fn unwritten(&self) -> Option<&Unwritten> {
        self.collected().unwritten()
    }

    /// Returns the end of the [lease](Self::lease_end) by the engine's clock.
    pub(super) fn until(&self) -> Option<EpochMillis> {
        self.inner.until()
    }

    /// Returns the end of the lease, and the time that no renewal goes beyond.
    pub(super) fn time(&self) -> Option<(EpochMillis, EpochMillis)> {
        let time = self.inner.time.as_ref()?;
        Some((time.until(), time.limit))
    }

    /// Notes a renewed lease.
    pub(super) fn set_time(&self, until: EpochMillis) {
        if let Some(time) = &self.inner.time {
            time.set(until);
        }
    }

    /// Notes that another attempt has taken over, and wakes those who wait for it.
    pub(super) fn lose(&self) {
        self.set_stop(Stop::LeaseLost);
        self.inner.lost.notify_waiters();
    }

    /// Tells whether another attempt is known to have taken over.
    pub(super) fn is_lost(&self) -> bool {
        self.stop() == Some(Stop::LeaseLost)
    }

    /// Returns the writes that the handler has handed over.
    pub(crate) fn collected(&self) -> &Collected {
        &self.inner.collected
    }

    /// Tells whether a key was derived, so that an effect may exist outside.
    pub(crate) fn has_derived(&self) -> bool {
        self.inner.derived.load(Ordering::Relaxed)
    }

    /// Returns the operation's name.
    pub fn operation(&self) -> &str {
        &self.inner.operation
    }

    /// Returns the hash that logs name this key by: 64 hex digits. A run without a key gets one of
    /// its own.
    pub fn key_hash(&self) -> &str {
        self.inner.id.hash()
    }

    /// Returns the number of the attempt: 1 for the first since the key was fresh, 2 for the next;
    /// 1 where nothing protects the run.
    pub fn attempt(&self) -> u32 {
        self.inner.hold.as_ref().map_or(1, |hold| hold.attempt)
    }

    /// Tells whether a record protects this run: `false` when protection is switched off, the store
    /// could not be reached and the policy fails open, or the request had no key and the policy
    /// lets it run.
    pub fn is_protected(&self) -> bool {
        self.inner.hold.is_some()
    }

    /// Returns the time when this attempt must be done: the Lambda deadline, the end of the
    /// configured lease, or of the [longest duration](crate::Builder::max_duration) of one that is
    /// renewed; without the skew margin. `None` where nothing limits the run.
    ///
    /// A handler that [goes on](crate::AtDeadline::GoOn) after the Lambda deadline is late, and its
    /// claim lasts until the [end of its lease](Self::lease_end).
    pub fn deadline(&self) -> Option<SystemTime> {
        let time = self.inner.time.as_ref()?;
        Some(time.deadline.into())
    }

    /// Returns the end of the lease as it is now, without the skew margin. A
    /// [renewal](crate::Builder::renewed_lease) moves it, up to the [`deadline`](Self::deadline), and
    /// beyond it where the handler [goes on](crate::AtDeadline::GoOn); where nothing is renewed, both
    /// are the same.
    pub fn lease_end(&self) -> Option<SystemTime> {
        self.inner.until().map(Into::into)
    }

    /// Tells whether the lease is over, or another attempt is known to have taken over: no further
    /// effect may begin. Always `false` where nothing protects the run.
    pub fn is_over(&self) -> bool {
        self.inner.is_over() || self.is_lost()
    }

    /// Waits until the claim [is over](Self::is_over): for work that isn't [ended](crate::Run::while_renewed)
    /// with it, under a [lease](crate::Builder::lease) that lasts for the whole attempt, or in a task of its own. Never returns
    /// where nothing protects the run.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
    /// # use std::{io, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// # async fn import() -> Result<u32, io::Error> { Ok(7) }
    /// let run = once.run(Key::new("import", "file-1"), None, |claim| async move {
    ///     tokio::select! {
    ///         imported = import() => imported,
    ///         () = claim.over() => Err(io::Error::other("another attempt has taken over")),
    ///     }
    /// });
    /// assert_eq!(run.await?.into_inner(), 7);
    /// # Ok(()) }
    /// ```
    pub async fn over(&self) {
        loop {
            let lost = self.inner.lost.notified();
            let Some(until) = self.inner.until().filter(|_| self.is_protected()) else {
                return std::future::pending().await;
            };
            if self.is_over() {
                return;
            }
            let left = until.saturating_since(self.now()).min(LOOK_AGAIN);
            // A renewal has moved the end meanwhile, or another attempt has taken over.
            let _ = tokio::time::timeout(left, lost).await;
        }
    }

    /// Tells how much time is left until the [`deadline`](Self::deadline); zero when it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        let now = self.inner.clock.now();
        let time = self.inner.time.as_ref()?;
        Some(time.deadline.saturating_since(now))
    }
}

impl Inner {
    /// Tells whether the claim's time is over, by the engine's clock and without the margin, which
    /// belongs to the clocks of others. A run that nothing protects has no claim that could end.
    fn is_over(&self) -> bool {
        let now = self.clock.now();
        self.hold.is_some() && self.until().is_some_and(|until| now >= until)
    }

    /// Returns the end of the lease, without the margin.
    fn until(&self) -> Option<EpochMillis> {
        Some(self.time.as_ref()?.until())
    }
}
