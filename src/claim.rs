//! What a handler holds while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::clock::{Clock, EpochMillis};
use crate::journal::Journal;
use crate::key::RecordId;
use crate::record::{NewClaim, Owner, Record};
use crate::transaction::Collected;

mod desk;
mod results;
mod steps;

pub(crate) use desk::{Desk, Scribe, Urgency};
pub(crate) use steps::Stop;

use steps::Steps;

/// The leased, exclusive right to run the handler for a key, as the handler sees it.
///
/// Cheap to clone. It gives keys for effects outside, keeps a journal of them, and tells how much time is left. Dropping it ends
/// nothing: the lease ends when the handler returns, or when its time is up.
#[derive(Clone, Debug)]
pub struct Claim {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    operation: Arc<str>,
    id: RecordId,
    hold: Option<Hold>,
    deadline: Option<EpochMillis>,
    clock: Arc<dyn Clock>,
    derived: AtomicBool,
    collected: Collected,
    steps: Steps,
}

/// What protects a claim.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) owner: Owner,
    pub(crate) attempt: u32,
    /// As stored: with the skew margin.
    pub(crate) lease: EpochMillis,
    /// Whether an earlier attempt may have had an effect, so that no other payload may use the key.
    pub(crate) keeps_fingerprint: bool,
    /// The steps that earlier attempts began.
    pub(crate) journal: Journal,
}

impl Hold {
    pub(crate) fn of_claim(claim: &NewClaim, keeps_fingerprint: bool) -> Self {
        Self {
            owner: claim.owner.clone(),
            attempt: claim.attempt,
            lease: claim.lease,
            keeps_fingerprint,
            journal: Journal::default(),
        }
    }

    /// From the record that an earlier send of the same claim left.
    pub(crate) fn of_record(owner: &Owner, record: &Record) -> Self {
        Self {
            owner: owner.clone(),
            attempt: record.attempt,
            lease: record.lease.unwrap_or_default(),
            keeps_fingerprint: record.attempt > 1,
            journal: record.journal.clone(),
        }
    }
}

impl Claim {
    /// `hold` and `desk` are `None` where nothing protects the run.
    pub(crate) fn new(
        operation: Arc<str>,
        id: RecordId,
        mut hold: Option<Hold>,
        desk: Option<Desk>,
        deadline: Option<EpochMillis>,
        clock: Arc<dyn Clock>,
        collected: Collected,
    ) -> Self {
        let journal = hold.as_mut().map(|hold| std::mem::take(&mut hold.journal));
        Self {
            inner: Arc::new(Inner {
                operation,
                id,
                hold,
                deadline,
                clock,
                derived: AtomicBool::new(false),
                collected,
                steps: Steps::new(desk, journal.unwrap_or_default()),
            }),
        }
    }

    /// A key for an effect outside: the same in every attempt, process and version, for the same key and effect name.
    ///
    /// Hand it to a provider that honours idempotency keys, and an attempt that has to be repeated after a crash is
    /// recognised there. 64 lower-case hex digits, which fit Stripe's `Idempotency-Key` (255) and SQS's
    /// `MessageDeduplicationId` (128). Use one name per effect: two effects under one name get one key.
    ///
    /// Once a key was derived, the request's payload is bound to the idempotency key even if the handler fails: the effect
    /// may exist, and a provider would answer another payload with it. In a run without a key it is random.
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
        self.inner.id.derive(effect)
    }

    /// The same key as a UUID, for providers and columns that take nothing longer: a `PayPal-Request-Id` (38), a UUID in a
    /// database. Use it as the id of what the handler makes, and a repetition makes the same thing.
    ///
    /// Version 8 of [RFC 9562](https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-8): the first bits of the SHA-256 that
    /// [`derive_key`](Self::derive_key) gives whole. In lower case, with hyphens.
    pub fn derive_uuid(&self, effect: &str) -> String {
        self.inner.derived.store(true, Ordering::Relaxed);
        self.inner.id.derive_uuid(effect)
    }

    /// The id of an event that is part of the transaction: it leaves when the transaction has committed, so nothing outside
    /// binds the payload.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn event_id(&self, event: &str) -> String {
        self.inner.id.derive_uuid(event)
    }

    /// Now, by the engine's clock.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn now(&self) -> EpochMillis {
        self.inner.clock.now()
    }

    /// What the handler has handed over to be committed.
    pub(crate) fn collected(&self) -> &Collected {
        &self.inner.collected
    }

    /// Whether a key was derived, so that an effect may exist outside.
    pub(crate) fn has_derived(&self) -> bool {
        self.inner.derived.load(Ordering::Relaxed)
    }

    /// The operation's name.
    pub fn operation(&self) -> &str {
        &self.inner.operation
    }

    /// What logs call this key: 64 hex digits. A run without a key gets one of its own.
    pub fn key_hash(&self) -> &str {
        self.inner.id.hash()
    }

    /// 1 for the first attempt since the key was fresh, 2 for the next; 1 too where nothing protects the run.
    pub fn attempt(&self) -> u32 {
        self.inner.hold.as_ref().map_or(1, |hold| hold.attempt)
    }

    /// Whether a record stands behind this run. `false` when protection is switched off, the store could not be reached and
    /// the policy fails open, or the request had no key and the policy lets it run.
    pub fn is_protected(&self) -> bool {
        self.inner.hold.is_some()
    }

    /// When this attempt must be done: the Lambda deadline, or the end of the configured lease, both without the skew
    /// margin. `None` where nothing limits the run.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.inner.deadline.map(Into::into)
    }

    /// Tells whether the claim's time is over: nothing may begin under it any more.
    #[cfg(feature = "sqs")]
    pub(crate) fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    /// How much time is left until then; zero when it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        let now = self.inner.clock.now();
        self.inner
            .deadline
            .map(|deadline| deadline.saturating_since(now))
    }
}

impl Inner {
    /// By the engine's clock, and without the margin, which belongs to the clocks of others. A run that nothing protects has no
    /// claim that could end.
    fn is_over(&self) -> bool {
        let now = self.clock.now();
        self.hold.is_some() && self.deadline.is_some_and(|until| now >= until)
    }
}
