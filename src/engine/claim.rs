//! The claim, as a handler sees it while it runs.

use std::any::{Any, type_name};
use std::collections::BTreeSet;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::engine::claim::steps::{Begun, check_name};
use crate::engine::fence::Hold;
use crate::engine::request::Subject;
use crate::engine::settings::Settings;
use crate::engine::time::Moment;
use crate::engine::{Engine, events};
use crate::protocol::causes::{HandlerError, name_causes_of, unquoted};
use crate::protocol::clock::{Clock, EpochMillis};
use crate::protocol::digest::Digest;
use crate::protocol::journal::{Journal, MAX_STEP_RESULT_BYTES, SagaState, StepEntry};
use crate::protocol::lock::lock;
use crate::protocol::record::{Failure, Omission, error_kind};
use crate::store::transaction::{Collected, Unwritten, Write, WriteError};

mod saga;
pub(crate) mod steps;
#[cfg(test)]
mod tests;

pub use saga::Saga;
pub use steps::{SagaError, Step, StepError};

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

#[derive(Debug)]
struct Inner {
    subject: Subject,
    hold: Option<Hold>,
    time: Option<ClaimTime>,
    /// Wakes those who wait for the end of a claim that is lost.
    lost: Notify,
    began: Moment,
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
        let entries = hold.as_mut().map(|hold| std::mem::take(&mut hold.journal));
        let entries = entries.unwrap_or_default();
        let began = hold.as_ref().map(|hold| hold.began);
        let began = began.unwrap_or_else(|| Moment::now(clock.now()));
        let generation = match collected.unwritten() {
            Some(_) => OnceLock::new(),
            None => OnceLock::from(entries.key_generation()),
        };
        Self {
            inner: Arc::new(Inner {
                subject,
                hold,
                time,
                lost: Notify::new(),
                began,
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
    /// new ones (`idempotency rerun --keys new`). Runs without protection (the kill switch, observe
    /// mode, `FailOpen`) don't read the record and derive the first keys: rerun only while protection
    /// is on and `FailOpen` is off.
    ///
    /// Hand it to a provider that honours idempotency keys, and an attempt that has to be repeated
    /// after a crash is recognised there. 64 lower-case hex digits, which fit Stripe's
    /// `Idempotency-Key` (255) and SQS's `MessageDeduplicationId` (128). Use one name per effect:
    /// two effects under one name get one key.
    ///
    /// Once a key was derived, the request's payload is bound to the idempotency key even if the
    /// handler fails: the effect may exist, and a provider would answer another payload with it. In
    /// the claimless form, and in an unprotected run, nothing binds it. In a run without a key the
    /// derived key is random.
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
        self.subject().id.derive_key_in(self.generation(), effect)
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
        self.subject().id.derive_uuid_in(self.generation(), effect)
    }

    /// Makes an id for an event that is one of the transaction's [writes](Self::write), of this
    /// type, about this aggregate, and with this name, which distinguishes two events of one type
    /// and one aggregate (`""` where there is one). A UUID, the same in every attempt; two events
    /// that differ in any of the three have two ids, whatever characters these hold. The event
    /// leaves only when the transaction has committed, so it doesn't bind the payload.
    #[doc(hidden)]
    pub fn event_id(&self, kind: &str, aggregate: &str, name: &str) -> String {
        let id = &self.subject().id;
        id.derive_event(self.generation(), kind, aggregate, name)
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
        events::side_effect_duplicate(self.subject(), effect);
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

    pub(crate) fn generation(&self) -> u32 {
        let known = || self.unwritten().map_or(0, Unwritten::key_generation);
        *self.inner.generation.get_or_init(known)
    }

    /// Returns the generation of the keys that were derived; in the claimless form `None` where none
    /// was.
    pub(crate) fn derived_generation(&self) -> Option<u32> {
        self.inner.generation.get().copied()
    }

    /// Returns the time by the engine's clock.
    #[doc(hidden)]
    pub fn now(&self) -> EpochMillis {
        self.inner.clock.now()
    }

    /// Adds a business write to the handler's transaction: it commits together with the record when
    /// the handler has succeeded, and not at all when it fails. Behind HTTP, an answer of 400 or above
    /// writes nothing, unless it carries its own [`Verdict::Complete`](crate::Verdict::Complete).
    ///
    /// Nothing is sent now, so what the handler reads doesn't show it. In a run that nothing
    /// protects (the kill switch, a missing key that is let pass) the writes commit as one
    /// transaction without a record.
    ///
    /// Call it outside of [steps](Self::step), whose closures a later attempt skips, and behind
    /// [`Saga::finish`]: what is handed over before a saga is undone commits where the handler then returns
    /// `Ok`. A condition that may fail belongs in a step of the saga: refused here, it undoes nothing.
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
    #[doc(hidden)]
    pub fn written<W: Any + Clone>(&self) -> Option<W> {
        self.collected().find()
    }

    /// Returns the record that the transaction is going to write, where no claim has written it: in
    /// the claimless form. For stores that open transactions.
    #[doc(hidden)]
    pub fn unwritten(&self) -> Option<&Unwritten> {
        self.collected().unwritten()
    }

    /// Returns the present by both clocks, as the lease counts it.
    pub(super) fn moment(&self) -> Moment {
        Moment::now(self.inner.now())
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

    /// Notes that another attempt has taken over, or may from now on, and wakes those who wait for it.
    pub(super) fn lose(&self) {
        self.inner.lose();
    }

    /// Returns whether another attempt is known to have taken over, or may have.
    pub(super) fn is_lost(&self) -> bool {
        self.stop() == Some(Stop::LeaseLost)
    }

    /// Returns the writes that the handler has handed over.
    pub(crate) fn collected(&self) -> &Collected {
        &self.inner.collected
    }

    /// Returns whether the handler has handed over writes; an open transaction is one.
    #[cfg(feature = "http")]
    pub(crate) fn has_writes(&self) -> bool {
        self.collected().count_of(|_| true) > 0
    }

    /// Returns whether a key was derived, so that an effect may exist outside.
    pub(crate) fn has_derived(&self) -> bool {
        self.inner.derived.load(Ordering::Relaxed)
    }

    /// Returns what this claim is of.
    pub(super) fn subject(&self) -> &Subject {
        &self.inner.subject
    }

    /// Returns the operation's name.
    pub fn operation(&self) -> &str {
        &self.subject().operation
    }

    /// Returns the hash that logs name this key by: 64 hex digits. A run without a key gets one of
    /// its own.
    pub fn key_hash(&self) -> &str {
        self.subject().id.hash()
    }

    /// Returns the number of the attempt: 1 for the first since the key was fresh, 2 for the next;
    /// 1 where nothing protects the run.
    pub fn attempt(&self) -> u32 {
        self.inner.hold.as_ref().map_or(1, |hold| hold.attempt)
    }

    /// Returns whether a record protects this run: `false` when protection is switched off, the store
    /// could not be reached and the policy fails open, or the request had no key and the policy
    /// lets it run.
    pub fn is_protected(&self) -> bool {
        self.inner.hold.is_some()
    }

    /// Returns the time when this attempt must be done: the Lambda deadline, the end of the
    /// configured lease, or of the [longest duration](crate::Settings::max_duration) of one that is
    /// renewed; without the skew margin. `None` where nothing limits the run.
    ///
    /// A handler that [goes on](crate::AtDeadline::GoOn) after the Lambda deadline is late, and its
    /// claim lasts until the end of its lease.
    pub fn deadline(&self) -> Option<SystemTime> {
        let time = self.inner.time.as_ref()?;
        Some(time.deadline.into())
    }

    /// Returns the end of the lease as it is now, without the skew margin. A
    /// [renewal](crate::Builder::renewed_lease) moves it, up to the [`deadline`](Self::deadline), and
    /// beyond it where the handler [goes on](crate::AtDeadline::GoOn); where nothing is renewed, both
    /// are the same.
    #[doc(hidden)]
    pub fn lease_end(&self) -> Option<SystemTime> {
        self.inner.until().map(Into::into)
    }

    /// Returns whether the lease is over, another attempt is known to have taken over, or this one has
    /// ended without success, so that a retry may run: no further effect may begin. Always `false` where
    /// nothing protects the run, beside which others may run at any time.
    pub fn is_over(&self) -> bool {
        self.inner.is_over() || self.is_lost()
    }

    /// Waits until the claim [is over](Self::is_over): for work that isn't [ended](crate::Run::while_renewed)
    /// with it, under a [lease](crate::Builder::lease) that lasts for the whole attempt, or in its own task. Never returns
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
            let left = until.saturating_since(self.inner.now()).min(LOOK_AGAIN);
            // A renewal has moved the end meanwhile, or another attempt has taken over.
            let _ = tokio::time::timeout(left, lost).await;
        }
    }

    /// Tells how much time is left until the [`deadline`](Self::deadline); zero when it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        let time = self.inner.time.as_ref()?;
        Some(time.deadline.saturating_since(self.inner.now()))
    }
}

impl Inner {
    fn lose(&self) {
        lock(&self.steps.state).stop = Some(Stop::LeaseLost);
        self.lost.notify_waiters();
    }

    /// Returns the later of both clocks.
    fn now(&self) -> EpochMillis {
        self.began.later(self.clock.now())
    }

    /// Returns whether the claim's time is over, without the margin, which belongs to the clocks of
    /// others. A run that nothing protects has no claim that could end.
    fn is_over(&self) -> bool {
        let now = self.now();
        self.hold.is_some() && self.until().is_some_and(|until| now >= until)
    }

    /// Returns the end of the lease, without the margin.
    fn until(&self) -> Option<EpochMillis> {
        Some(self.time.as_ref()?.until())
    }
}

/// The steps of one attempt.
#[derive(Debug)]
struct Steps {
    /// `None` where nothing protects the run, so that nothing is written, and in the claimless
    /// form, which has no journal.
    engine: Option<Arc<Engine>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The steps, with what this attempt has sent, whether or not it was answered.
    journal: Journal,
    /// The steps that this attempt has named.
    named: BTreeSet<String>,
    /// The steps that are running.
    busy: BTreeSet<String>,
    /// The steps whose results the handler has been given.
    given: BTreeSet<String>,
    stop: Option<Stop>,
    has_saga: bool,
    /// The failure of a saga that is being undone, also before its note is answered.
    failure: Option<Failure>,
    /// The failure of a saga that was undone.
    compensated: Option<Failure>,
}

/// The reason why an attempt can't go on, whatever its handler returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    LeaseLost,
    Interrupted { since: EpochMillis },
}

impl Steps {
    fn new(engine: Option<Arc<Engine>>, journal: Journal) -> Self {
        let saga = SagaState::of(&journal);
        Self {
            engine,
            state: Mutex::new(State {
                failure: saga.and_then(|saga| saga.failure),
                journal,
                ..State::default()
            }),
        }
    }

    /// Returns the engine's settings, where a journal is written.
    fn settings(&self) -> Option<&Settings> {
        self.engine.as_ref().map(|engine| &engine.settings)
    }
}

/// The time that an attempt has.
#[derive(Debug)]
pub(crate) struct ClaimTime {
    /// The end of the lease as it is stored, without the margin.
    until: AtomicI64,
    /// The time that no renewal goes beyond.
    limit: EpochMillis,
    /// The time when the attempt must be done: the deadline of its invocation, else the limit.
    deadline: EpochMillis,
}

impl ClaimTime {
    /// Makes the time of a claim whose lease ends at `until`, and may be renewed up to `limit`.
    pub(crate) fn renewed(until: EpochMillis, limit: EpochMillis) -> Self {
        Self {
            until: AtomicI64::new(until.0),
            limit,
            deadline: limit,
        }
    }

    /// Makes the time of a claim that lasts until the deadline of its invocation, and may be renewed
    /// from then up to `limit`.
    pub(crate) fn beyond(deadline: EpochMillis, limit: EpochMillis) -> Self {
        Self {
            deadline,
            ..Self::renewed(deadline, limit)
        }
    }

    fn until(&self) -> EpochMillis {
        EpochMillis(self.until.load(Ordering::Relaxed))
    }

    fn set(&self, until: EpochMillis) {
        self.until.store(until.0, Ordering::Relaxed);
    }
}

/// The time of a claim that is not renewed.
impl From<EpochMillis> for ClaimTime {
    fn from(until: EpochMillis) -> Self {
        Self::renewed(until, until)
    }
}

/// Writes a value as JSON text, for readers who take the text as it is. A panic of the value's own
/// code is caught: the work that the value came of has happened all the same.
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String, Omission> {
    match catch_unwind(AssertUnwindSafe(|| serde_json::to_string(value))) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(_)) | Err(_) => Err(Omission::NotSerializable),
    }
}

/// Writes a value as JSON text that reads back as the same value.
pub(crate) fn to_faithful_json<T: Serialize + DeserializeOwned>(
    value: &T,
) -> Result<String, Omission> {
    faithful(value).map_err(|reason| {
        let wanted = type_name::<T>();
        tracing::warn!(event = "unfaithful", wanted, %reason, "idempotency");
        Omission::NotSerializable
    })
}

/// Writes a value as JSON text, and says what keeps it from being read back as the same value. No
/// reason quotes the value.
pub(crate) fn faithful<T: Serialize + DeserializeOwned>(value: &T) -> Result<String, String> {
    let compare = || {
        let text = serde_json::to_string(value)
            .map_err(|error| format!("it has no JSON form: {:?} error", error.classify()))?;
        let back: T = serde_json::from_str(&text)
            .map_err(|error| format!("its JSON form does not decode: {}", unquoted(&error)))?;
        let (written, read) = (Digest::of(value), Digest::of(&back));
        // An untagged variant serialises as what it holds.
        if written == read && discriminant(value) == discriminant(&back) {
            return Ok(text);
        }
        Err(if written.is_some_and(|written| written.is_lossy) {
            LOSSY.to_owned()
        } else {
            "its JSON form reads back as another value".to_owned()
        })
    };
    catch_unwind(AssertUnwindSafe(compare))
        .unwrap_or_else(|_| Err("its own code panicked".to_owned()))
}

/// The reason of a value whose JSON form belongs to another value, too.
pub(crate) const LOSSY: &str =
    "JSON has `null` for a number that is not finite, and for `Some` of what is `null`";

fn keep<T: Serialize + DeserializeOwned>(value: &T) -> Result<String, Omission> {
    let text = to_faithful_json(value)?;
    if text.len() > MAX_STEP_RESULT_BYTES {
        return Err(Omission::TooLarge);
    }
    Ok(text)
}

/// Decodes a result. The error names the column alone: the parser's message may quote the result.
fn give_back<T: DeserializeOwned, E: 'static>(
    step: String,
    result: Result<String, Omission>,
) -> Result<T, StepError<E>> {
    match result {
        Err(reason) => Err(StepError::ResultOmitted { step, reason }),
        Ok(text) => serde_json::from_str(&text).map_err(|error| {
            let wanted = type_name::<T>();
            let reason = format!(
                "it no longer decodes as {wanted} (column {})",
                error.column()
            );
            StepError::Unreadable { step, reason }
        }),
    }
}

/// A step under preparation, which [`Claim::prepared_step`] passes to its closure;
/// [`firing`](Self::firing) ends the preparation.
pub struct PreparedStep<E> {
    claim: Claim,
    name: String,
    entry: StepEntry,
    is_noted: AtomicBool,
    has_fired: Arc<AtomicBool>,
    effect: PhantomData<fn() -> E>,
}

impl<E: 'static> PreparedStep<E> {
    /// Returns the key for the effect: that which [`Claim::derive_key`] gives for the step's name.
    pub fn key(&self) -> String {
        self.claim.derive_key(&self.name)
    }

    /// Notes that the effect is about to fire. Call it right before the request that has the effect.
    ///
    /// # Errors
    ///
    /// The effect must not fire: the attempt has lost its lease, has no time left, the note could not be
    /// written, or an earlier call has not ended well. Return the error from the step.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped may have written the note: the step counts as one whose effect has fired, and
    /// each later call is an error.
    pub async fn firing(&self) -> Result<(), StepError<E>> {
        if self.has_fired.load(Ordering::Acquire) {
            return Ok(());
        }
        // The note that takes an earlier one back may still arrive, behind a later one.
        if self.is_noted.swap(true, Ordering::AcqRel) {
            return Err(StepError::Repeated {
                step: self.name.clone(),
            });
        }
        self.claim.inner.fire(&self.name, &self.entry).await?;
        self.has_fired.store(true, Ordering::Release);
        Ok(())
    }
}

impl Claim {
    /// Runs an effect as [`step`](Self::step) does, and lets the handler say when it fires.
    ///
    /// The work before [`firing`](PreparedStep::firing) has no effect outside: reading a token, signing,
    /// waiting for a connection. An attempt that dies there leaves no note, and the next one runs the step
    /// from its beginning, even under [`OnCrash::Interrupt`](crate::OnCrash::Interrupt). One that dies behind
    /// it may have had the effect: the step fires again with its key, or waits for an operator, as
    /// [`Step::on_crash`](crate::Step::on_crash) says. So fewer requests wait for an operator where the provider
    /// honours no keys. It costs two requests, as each step does.
    ///
    /// ```
    /// use lambda_idempotency::{Claim, OnCrash, Step, StepError};
    ///
    /// # async fn token() -> std::io::Result<String> { Ok("t".into()) }
    /// # async fn transfer(_token: &str, _cents: u64) -> std::io::Result<String> { Ok("transfer 17".into()) }
    /// async fn pay(claim: &Claim, cents: u64) -> Result<String, StepError<std::io::Error>> {
    ///     let step = Step::named("transfer").on_crash(OnCrash::Interrupt);
    ///     claim.prepared_step(step, async |step| {
    ///         let token = token().await?; // may be repeated
    ///         step.firing().await?;
    ///         Ok(transfer(&token, cents).await?)
    ///     }).await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step). An error of the effect's own becomes [`StepError::Effect`] by `?`.
    ///
    /// # Cancellation
    ///
    /// As [`step`](Self::step).
    pub async fn prepared_step<T, E, M, F, Fut>(
        &self,
        step: impl Into<Step<E>>,
        effect: F,
    ) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: HandlerError<M>,
        F: FnOnce(PreparedStep<E>) -> Fut,
        Fut: Future<Output = Result<T, StepError<E>>>,
    {
        let step = step.into();
        check_name(&step.name)?;
        let turn = match self.inner.turn(&step.name, step.crashed)? {
            Begun::Done(result) => return give_back(step.name, result),
            Begun::Turn(turn) => turn,
        };
        let has_fired = Arc::new(AtomicBool::new(false));
        let prepared = PreparedStep {
            claim: self.clone(),
            name: step.name.clone(),
            entry: turn.entry.clone(),
            is_noted: AtomicBool::new(false),
            has_fired: Arc::clone(&has_fired),
            effect: PhantomData,
        };
        let done = effect(prepared).await;
        if done.is_err() {
            name_causes_of::<E, M>();
        }
        match done {
            Ok(value) => turn.confirm(keep(&value)).await.map(|()| value),
            Err(StepError::Effect(error)) if has_fired.load(Ordering::Acquire) => {
                let unsure = turn.was_pending || step.is_unsure(&error);
                turn.fail(error_kind::<E>(), unsure).await;
                Err(StepError::Effect(error))
            }
            Err(error) => Err(error),
        }
    }
}

debug_fields!([E] PreparedStep<E> { name, has_fired });
