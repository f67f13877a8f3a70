//! Runs a claim's steps, and notes each before its effect and after it.

use std::future::Future;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::claim::{Claim, Inner, Stop, give_back, keep};
use crate::engine::pace::Turns;
use crate::engine::persist::{is_rejected_for_now, persist};
use crate::engine::settings::Unrecorded;
use crate::engine::{Engine, LEAST_STORE_TIME, events};
use crate::protocol::causes::{HandlerError, causes_of, name_causes_of, unlinked};
use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::{
    Journal, MAX_JOURNAL_BYTES, MAX_STEP_NAME_BYTES, MAX_STEPS, SagaState, StepEntry, StepState,
    is_step_name,
};
use crate::protocol::lock::lock;
use crate::protocol::record::{Failure, Omission, RecordWrite, Status, error_kind};
use crate::protocol::{OnCrash, StepDecision, decide_step};
use crate::store::{Answer, StoreError};

impl Claim {
    /// Runs an effect at most once in all attempts that end in an orderly way, and returns its
    /// result.
    ///
    /// The step is recorded as pending before the effect fires, and its result after. An attempt
    /// that takes over is given the recorded result, and the effect doesn't fire again. A step that
    /// was pending when its attempt died may have happened: it fires again with the same key, or
    /// waits for an operator, as [`Step::on_crash`](crate::Step::on_crash) says. An error says that
    /// nothing happened: it is noted, and the next attempt, or the next call, lets the effect fire. Where
    /// an earlier attempt left the step pending, an error leaves it pending.
    ///
    /// The effect is given the key that [`derive_key`](Self::derive_key) gives for the step's name.
    /// Its result is decoded once before it is recorded. One that JSON gives back as another value
    /// (NaN, `Some(())`), or of more than 8 KiB, is not kept: an attempt which takes over gets
    /// [`StepError::ResultOmitted`](crate::StepError::ResultOmitted). Steps with different names
    /// may run side by side. Each costs two requests, a step that is skipped none.
    ///
    /// Steps with different error types need one: map it inside the effect, as in
    /// `claim.step("mail", async |key| mail(key).await.map_err(MyError::Mail))`.
    ///
    /// Where the record's [saga](Self::saga) compensates and this attempt hasn't begun it (an older version
    /// of the handler, say), no effect fires, and the step is
    /// [`StepError::Compensating`](crate::StepError::Compensating); one that is confirmed still gives its
    /// result. So begin the saga before any plain step: one before it that isn't confirmed, such as a newer
    /// version's, ends each delivery before anything is undone.
    ///
    /// Where nothing protects the run ([`is_protected`](Self::is_protected)), the effect just
    /// fires, and nothing is recorded.
    ///
    /// ```
    /// # use lambda_idempotency::{Fingerprint, Idempotency, Key, StepError, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// # async fn charge(_cents: u32, _key: String) -> Result<String, std::io::Error> { Ok("receipt-1".into()) }
    /// # async fn mail(_receipt: &str, _key: String) -> Result<(), std::io::Error> { Ok(()) }
    /// let outcome = once.run(Key::new("order", "A-17"), Fingerprint::json(b"{}"), |claim| async move {
    ///     let receipt = claim.step("charge", |key| charge(1250, key)).await?;
    ///     claim.step("mail", |key| mail(&receipt, key)).await?;
    ///     Ok::<_, StepError<std::io::Error>>(receipt)
    /// });
    /// assert_eq!(outcome.await?.into_inner(), "receipt-1");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StepError`](crate::StepError) says what happened. Return it from the handler: an attempt
    /// that lost its lease, or met an interrupted step, is reported as such.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped while the effect runs leaves the step pending.
    pub async fn step<T, E, M, F, Fut>(
        &self,
        step: impl Into<Step<E>>,
        effect: F,
    ) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: HandlerError<M>,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let step = step.into();
        let turn = match self.inner.begin(&step.name, step.crashed).await? {
            Begun::Done(result) => return give_back(step.name, result),
            Begun::Turn(turn) => turn,
        };
        match effect(self.derive_key(&step.name)).await {
            Ok(value) => turn.confirm(keep(&value)).await.map(|()| value),
            Err(error) => {
                name_causes_of::<E, M>();
                let unsure = turn.was_pending || step.is_unsure(&error);
                turn.fail(error_kind::<E>(), unsure).await;
                Err(StepError::Effect(error))
            }
        }
    }

    /// Returns whether the journal holds a step, so that an effect may exist outside.
    pub(crate) fn has_steps(&self) -> bool {
        !lock(&self.inner.steps.state).journal.is_empty()
    }

    /// Returns whether the final record of this attempt is kept as long as an outcome.
    pub(crate) fn is_to_be_kept(&self) -> bool {
        let state = lock(&self.inner.steps.state);
        state.compensated.is_some() || state.journal.is_to_be_kept()
    }

    /// Returns whether the handler of this attempt has begun or continued a saga.
    pub(crate) fn has_saga(&self) -> bool {
        lock(&self.inner.steps.state).has_saga
    }

    /// Returns whether an operator must settle a step of the saga.
    pub(crate) fn has_stuck_saga(&self) -> bool {
        let state = lock(&self.inner.steps.state);
        let saga = SagaState::of(&state.journal);
        let is_stuck = saga.is_some_and(|saga| saga.is_stuck(&state.journal));
        is_stuck && matches!(state.stop, Some(Stop::Interrupted { .. }))
    }

    /// Returns whether a saga is being undone: the run is no success, whatever its handler returns.
    pub(crate) fn goes_back(&self) -> bool {
        lock(&self.inner.steps.state).failure.is_some()
    }

    /// Returns the failure of a saga that was undone.
    pub(crate) fn compensated(&self) -> Option<Failure> {
        lock(&self.inner.steps.state).compensated.clone()
    }

    /// Returns the reason why the attempt can't go on.
    pub(crate) fn stop(&self) -> Option<Stop> {
        lock(&self.inner.steps.state).stop
    }
}

/// Checks that a step may have this name.
pub(super) fn check_name<E: 'static>(name: &str) -> Result<(), StepError<E>> {
    if is_step_name(name) {
        return Ok(());
    }
    let step = name.to_owned();
    Err(StepError::Name { step })
}

pub(super) enum Begun<'a> {
    Done(Result<String, Omission>),
    Turn(Turn<'a>),
}

impl Inner {
    /// Begins a step of the handler.
    pub(super) async fn begin<E: 'static>(
        &self,
        name: &str,
        crashed: OnCrash,
    ) -> Result<Begun<'_>, StepError<E>> {
        check_name(name)?;
        self.begin_named(name, crashed).await
    }

    /// Begins a step, or a compensation.
    pub(super) async fn begin_named<E: 'static>(
        &self,
        name: &str,
        crashed: OnCrash,
    ) -> Result<Begun<'_>, StepError<E>> {
        let begun = self.turn(name, crashed)?;
        if let Begun::Turn(turn) = &begun {
            self.fire(name, &turn.entry).await?;
        }
        Ok(begun)
    }

    /// Returns a step's turn, or the result that it has.
    pub(super) fn turn<E: 'static>(
        &self,
        name: &str,
        crashed: OnCrash,
    ) -> Result<Begun<'_>, StepError<E>> {
        if self.hold.is_some() && self.steps.engine.is_none() {
            return Err(StepError::NoJournal);
        }
        self.may_fire()?;
        let begun = self.decide(name, crashed)?;
        if matches!(begun, Begun::Done(_)) {
            events::step("step_skipped", &self.subject, name);
        }
        Ok(begun)
    }

    /// Tells whether an effect may fire: what the record says of a step may be another attempt's matter
    /// now.
    fn may_fire<E: 'static>(&self) -> Result<(), StepError<E>> {
        if self.is_over() {
            return Err(StepError::OutOfTime);
        }
        if lock(&self.steps.state).stop == Some(Stop::LeaseLost) {
            return Err(StepError::LeaseLost);
        }
        Ok(())
    }

    /// Notes that a step's effect is about to fire.
    pub(super) async fn fire<E: 'static>(
        &self,
        name: &str,
        entry: &StepEntry,
    ) -> Result<(), StepError<E>> {
        self.may_fire()?;
        let was_pending = is_pending(lock(&self.steps.state).journal.get(name));
        let (error, why) = match self.note(name, entry, Urgency::Begin).await {
            Ok(true) => match self.may_fire() {
                Ok(()) => {
                    events::step("step_begun", &self.subject, name);
                    return Ok(());
                }
                Err(error @ StepError::OutOfTime) => (error, "out of time"),
                Err(error) => (error, "not begun"),
            },
            Ok(false) => return Err(StepError::LeaseLost),
            Err(error) => (StepError::Store(error), "not begun"),
        };
        // The note may have applied, and the effect will not fire. Where an earlier attempt left the step
        // pending, its effect may have happened.
        if !was_pending {
            let entry = entry.ended(StepState::Failed, Some(why), self.clock.now());
            let _ = self.note(name, &entry, Urgency::Tell).await;
        }
        Err(error)
    }

    /// Returns whether no later attempt could begin a step that this error kept from beginning. What is pending
    /// may leave room in the journal.
    pub(super) fn never_begins<E: 'static>(&self, error: &StepError<E>) -> bool {
        match error {
            StepError::Name { .. } | StepError::Repeated { .. } => true,
            StepError::Full { .. } => {
                let state = lock(&self.steps.state);
                let mut journal = state.journal.iter();
                !journal.any(|(_, entry)| is_pending(Some(entry)))
            }
            _ => false,
        }
    }

    /// Decides what to do about a step: returns its turn, or the result that it has.
    fn decide<E: 'static>(&self, name: &str, crashed: OnCrash) -> Result<Begun<'_>, StepError<E>> {
        let step = || name.to_owned();
        let mut state = lock(&self.steps.state);
        state.named.insert(step());
        if state.busy.contains(name) || state.given.contains(name) {
            return Err(StepError::Repeated { step: step() });
        }
        let known = state.journal.get(name);
        match decide_step(known, crashed) {
            StepDecision::Skip(result) => {
                let result = result.clone();
                state.given.insert(step());
                Ok(Begun::Done(result))
            }
            StepDecision::Interrupted { since } => {
                state.stop.get_or_insert(Stop::Interrupted { since });
                drop(state);
                events::step("step_interrupted", &self.subject, name);
                Err(StepError::Interrupted {
                    step: step(),
                    since: since.into(),
                })
            }
            StepDecision::Fire
                if state.failure.is_some()
                    && !state.has_saga
                    && !is_beside(&state.journal, name) =>
            {
                Err(StepError::Compensating { step: step() })
            }
            // A compensation fires, however full the journal is.
            StepDecision::Fire
                if is_step_name(name) && !state.journal.has_room_for(name, state.busy.iter()) =>
            {
                Err(StepError::Full { step: step() })
            }
            StepDecision::Fire => {
                let entry = StepEntry::begun(known, self.clock.now());
                let was_pending = is_pending(known);
                state.busy.insert(step());
                Ok(Begun::Turn(Turn {
                    inner: self,
                    name: step(),
                    entry,
                    was_pending,
                }))
            }
        }
    }

    /// Writes an entry; returns `false` where the fence was lost.
    pub(super) async fn note(
        &self,
        name: &str,
        entry: &StepEntry,
        urgency: Urgency,
    ) -> Result<bool, StoreError> {
        lock(&self.steps.state).journal.put(name, entry.clone());
        let (Some(engine), Some(hold), Some(until)) =
            (&self.steps.engine, &self.hold, self.until())
        else {
            return Ok(true);
        };
        let amendment = RecordWrite::Amend {
            id: self.subject.id.clone(),
            owner: hold.owner.clone(),
            step: name.to_owned(),
            entry: entry.clone(),
        };
        let met = match engine.write_note(&amendment, until, urgency).await? {
            Answer::Applied(_) => return Ok(true),
            Answer::Refused(met) => met,
        };
        let met = met.and_then(|found| found.content.ok());
        match met.filter(|record| record.owner.as_ref() == Some(&hold.owner)) {
            // An earlier send of the same note may have applied, its reply lost.
            Some(own) if own.journal.get(name) == Some(entry) => Ok(true),
            Some(own) if own.status == Status::InProgress => Err(StoreError::Rejected(
                "the record has a newer entry of the step".into(),
            )),
            _ => {
                self.lose();
                Ok(false)
            }
        }
    }
}

/// A turn is a step between its two notes. A step whose turn is dropped stays pending.
pub(super) struct Turn<'a> {
    inner: &'a Inner,
    name: String,
    /// The entry of the first note.
    pub(super) entry: StepEntry,
    /// An earlier attempt left the step pending: its effect may have happened, whatever this one meets.
    pub(super) was_pending: bool,
}

fn is_pending(known: Option<&StepEntry>) -> bool {
    known.is_some_and(|entry| entry.state == StepState::Pending)
}

/// Returns whether a step is the handler's own matter: it is pending, and not one that its saga must undo.
fn is_beside(journal: &Journal, name: &str) -> bool {
    let saga = SagaState::of(journal).filter(|_| is_pending(journal.get(name)));
    saga.is_some_and(|saga| !saga.confirmed.iter().any(|listed| listed == name))
}

impl Turn<'_> {
    /// Confirms the step; its result is recorded, or this is an error.
    pub(super) async fn confirm_surely<E: 'static>(
        self,
        result: Result<String, Omission>,
    ) -> Result<(), StepError<E>> {
        self.note_confirmed::<E>(result).await?;
        lock(&self.inner.steps.state)
            .given
            .insert(self.name.clone());
        Ok(())
    }

    pub(super) async fn confirm<E: 'static>(
        self,
        result: Result<String, Omission>,
    ) -> Result<(), StepError<E>> {
        let Inner { subject, steps, .. } = self.inner;
        let omitted = result.as_ref().err().copied();
        if let Some(reason) = omitted {
            events::step_failed("step_omitted", subject, &self.name, &reason);
        }
        let noted = self.note_confirmed(result).await;
        lock(&steps.state).given.insert(self.name.clone());
        let settings = steps.settings();
        let is_strict = settings.is_some_and(|settings| settings.is_strict);
        let reports = settings.is_some_and(|settings| settings.unrecorded == Unrecorded::Fail);
        match (noted, omitted) {
            (Ok(()), Some(reason @ Omission::NotSerializable)) if is_strict => {
                let step = self.name.clone();
                Err(StepError::ResultOmitted { step, reason })
            }
            (Err(StepError::Unrecorded(_)), _) if !reports => Ok(()),
            (noted, _) => noted,
        }
    }

    async fn note_confirmed<E: 'static>(
        &self,
        result: Result<String, Omission>,
    ) -> Result<(), StepError<E>> {
        let confirmed = StepState::Confirmed(result);
        match self.end(confirmed, None, Urgency::Confirm).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(StepError::LeaseLost),
            Err(error) => {
                events::step_failed("step_unrecorded", &self.inner.subject, &self.name, &error);
                Err(StepError::Unrecorded(error))
            }
        }
    }

    pub(super) async fn fail(self, error: &str, unsure: bool) {
        let state = if unsure {
            StepState::Pending
        } else {
            StepState::Failed
        };
        events::step_failed("step_failed", &self.inner.subject, &self.name, &error);
        // Unwritten it stays pending, which is the safe side.
        let _ = self.end(state, Some(error), Urgency::Tell).await;
    }

    async fn end(
        &self,
        state: StepState,
        error: Option<&str>,
        urgency: Urgency,
    ) -> Result<bool, StoreError> {
        let entry = self.entry.ended(state, error, self.inner.clock.now());
        self.inner.note(&self.name, &entry, urgency).await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.inner.steps.state).busy.remove(&self.name);
    }
}

type Unsure<E> = Box<dyn Fn(&E) -> bool + Send + Sync>;

/// A step has a name, and a policy for an attempt that dies in the middle. A plain `&str` is a
/// step, too.
///
/// ```
/// use lambda_idempotency::{OnCrash, Step};
/// # #[derive(Debug)] enum GatewayError { TimedOut, Declined }
///
/// // For a provider that honours no idempotency keys: what may have happened is not repeated.
/// let charge = Step::named("charge")
///     .on_crash(OnCrash::Interrupt)
///     .unsure_after(|error: &GatewayError| matches!(error, GatewayError::TimedOut));
/// ```
#[must_use = "a step does nothing until a claim runs it"]
pub struct Step<E> {
    pub(crate) name: String,
    pub(crate) crashed: OnCrash,
    pub(crate) unsure: Option<Unsure<E>>,
}

impl<E> Step<E> {
    /// Makes a step of this name: 1 to 64 letters, digits, `-`, `_` or `.`, one name for each
    /// effect of the request.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            crashed: OnCrash::RunAgain,
            unsure: None,
        }
    }

    /// Sets what to do where the effect may have happened, because its attempt died before it noted
    /// a result. Default: [`OnCrash::RunAgain`], which is safe where the provider honours the key
    /// that the effect is given.
    pub fn on_crash(mut self, policy: OnCrash) -> Self {
        self.crashed = policy;
        self
    }

    /// Sets the errors of the effect, or of its compensation, after which it isn't known whether it
    /// happened: a timeout, say. The step then counts as one whose attempt died. Default: none; an error
    /// says that nothing happened, except of the effect of a [`queried_step`](crate::Saga::queried_step),
    /// whose provider is asked after each error that isn't permanent.
    pub fn unsure_after(mut self, unsure: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.unsure = Some(Box::new(unsure));
        self
    }

    pub(super) fn is_unsure(&self, error: &E) -> bool {
        self.unsure.as_ref().is_some_and(|unsure| unsure(error))
    }
}

impl<E> From<&str> for Step<E> {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

impl<E> From<String> for Step<E> {
    fn from(name: String) -> Self {
        Self::named(name)
    }
}

debug_fields!([E] Step<E> { name, crashed });

/// The error of a step that gave no result. `E` is the effect's own error.
///
/// After [`Effect`](Self::Effect), [`LeaseLost`](Self::LeaseLost) and
/// [`Unrecorded`](Self::Unrecorded) the effect may have fired in this call; after any other it has
/// not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError<E: 'static> {
    /// The effect failed. That is noted in the journal, and a retry lets it fire again, with the
    /// same key.
    #[error("the step's effect failed: {0}{causes}", causes = causes_of(.0))]
    Effect(E),
    /// The effect may have happened before an attempt died, and the step's policy wants an operator to
    /// look. A handler that can find out by itself may go on from here; one that returns an error
    /// is answered as [`Error::Interrupted`](crate::Error::Interrupted).
    #[error(
        "step `{step}` was interrupted and may have taken effect: look, then settle it in its record{}", see!("step-interrupted")
    )]
    Interrupted {
        /// The step.
        step: String,
        /// The time when it began.
        since: SystemTime,
    },
    /// Another attempt has taken the key over, or may at once, since this one has failed: stop.
    #[error("the lease ran out and another attempt took over, or this attempt has failed{}", see!("step-lease-lost"))]
    LeaseLost,
    /// The attempt's time is over, so that nothing may begin any more.
    #[error("the attempt's time is over: the step was not begun{}", see!("step-out-of-time"))]
    OutOfTime,
    /// The record's saga compensates, and this attempt hasn't [begun](crate::Claim::saga) it: an effect
    /// that goes forward would stand beside what is undone. A delivery to a handler with the saga goes on
    /// undoing.
    #[error(
        "step `{step}` was not begun: a saga compensates that this handler has not begun{}", see!("in-flight")
    )]
    Compensating {
        /// The step.
        step: String,
    },
    /// The claimless form has no record to keep a journal in, and each duplicate runs the handler:
    /// the effect would fire each time.
    #[error("the claimless form keeps no journal: use the claimed form for effects outside{}", see!("step-without-journal"))]
    NoJournal,
    /// The name can't be used.
    #[error(
        "the step's name `{step}` can't be used: take 1 to {MAX_STEP_NAME_BYTES} letters, digits, `-`, `_` or `.`{}", see!("step-name")
    )]
    Name {
        /// The name as given.
        step: String,
    },
    /// The attempt has had a step of this name: the second would get the first one's result. Or the step
    /// has called [`firing`](crate::PreparedStep::firing) before, and that did not end well.
    #[error("step `{step}` was run already in this attempt: give each effect its own name{}", see!("step-repeated"))]
    Repeated {
        /// The name.
        step: String,
    },
    /// The journal has no room for another step.
    #[error(
        "the journal has no room for step `{step}`: it takes {MAX_STEPS} steps and {MAX_JOURNAL_BYTES} bytes; keep results small{}", see!("step-journal-full")
    )]
    Full {
        /// The step.
        step: String,
    },
    /// The effect happened in an earlier attempt, but its result was not kept.
    #[error("step `{step}` is done, but its result was not kept: {reason}{}", see!("step-result-omitted"))]
    ResultOmitted {
        /// The step.
        step: String,
        /// The reason.
        reason: Omission,
    },
    /// The effect happened in an earlier attempt, and its result no longer decodes.
    #[error("the recorded result of step `{step}` can't be read: {reason}{}", see!("step-unreadable"))]
    Unreadable {
        /// The step.
        step: String,
        /// The decoding error.
        reason: String,
    },
    /// The step could not be recorded as pending, so its effect didn't fire.
    #[error("the step could not be recorded, and was not begun: {}{}", unlinked(.0), see!("step-not-recorded"))]
    Store(#[source] StoreError),
    /// The effect happened, but its result could not be recorded. Returned only under
    /// [`Unrecorded::Fail`](crate::Unrecorded::Fail).
    #[error("the step's effect happened, but its result could not be recorded: {}{}", unlinked(.0), see!("step-unrecorded"))]
    Unrecorded(#[source] StoreError),
}

impl<E: 'static> From<E> for StepError<E> {
    fn from(error: E) -> Self {
        Self::Effect(error)
    }
}

/// The error of a saga: of a step that gave no result, or of one that was undone. `E` is the effect's own
/// error.
///
/// Return it from the handler: what became of the saga counts, whatever error the handler makes of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SagaError<E: 'static> {
    /// The saga failed permanently, and what was done is undone. The failure is stored, with what was undone,
    /// and duplicates get it for the [retention](crate::Builder::retention). A handler that returns a
    /// success from here has that one stored.
    #[error("{}; undone: {}", .failure.message, list(.undone))]
    Compensated {
        /// The failure.
        failure: Failure,
        /// The steps that were compensated, in reverse order.
        undone: Vec<String>,
    },
    /// An operator must settle a step or compensation (`{step}/undo`): its effect is unknown, the
    /// compensation failed permanently, or the handler can't compensate a confirmed step, which it no longer
    /// names or whose result it lacks. The next delivery then resumes.
    #[error("the saga is stuck at `{step}`: look whether it took effect, then settle it in its record{}", see!("saga-stuck"))]
    Stuck {
        /// The step, or the compensation.
        step: String,
    },
    /// The question about a step took too long. The next attempt asks again.
    #[error("whether step `{step}` happened could not be found out in time{}", see!("saga-unanswered"))]
    Unanswered {
        /// The step.
        step: String,
    },
    /// The claim has a saga already.
    #[error("the claim has a saga already: give the second one its own key, derived from this claim's{}", see!("saga-nested"))]
    Nested,
    /// A step gave no result. The next delivery resumes there.
    #[error(transparent)]
    Step(#[from] StepError<E>),
}

fn list(steps: &[String]) -> String {
    if steps.is_empty() {
        return "nothing".to_owned();
    }
    steps.join(", ")
}

/// The urgency decides how often and how long a note is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Nothing has happened yet.
    Begin,
    /// An effect happened, and a takeover would repeat it.
    Confirm,
    /// A later attempt can do without the note.
    Tell,
}

impl Engine {
    /// Writes a note under the fence. `until` is when the attempt must be done.
    async fn write_note(
        &self,
        amendment: &RecordWrite,
        until: EpochMillis,
        urgency: Urgency,
    ) -> Result<Answer, StoreError> {
        let limit = match urgency {
            Urgency::Begin | Urgency::Confirm => self.settings.store_timeout,
            Urgency::Tell => LEAST_STORE_TIME,
        };
        let deadline = self.moment().store_deadline(until, limit, None);
        let again = |error: &StoreError| match urgency {
            Urgency::Confirm => error.is_transient(),
            // The SDK does not retry these errors. A store that can't be reached is not asked
            // again: the caller gets the error.
            Urgency::Begin | Urgency::Tell => is_rejected_for_now(error),
        };
        let turns = Turns::End(&self.pace, amendment.id());
        let send = || self.store.write(amendment, deadline);
        // Boxed, so that a step's future, which the handler holds, stays small.
        Box::pin(persist(turns, deadline, again, send)).await
    }
}
