//! Steps that are undone, in reverse order, when one of them fails permanently.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::claim::steps::{Begun, SagaError, Step, StepError, Urgency};
use crate::engine::claim::{Claim, Stop, give_back, keep};
use crate::engine::events;
use crate::protocol::OnCrash;
use crate::protocol::causes::{HandlerError, name_causes_of};
use crate::protocol::journal::{
    BY_HAND, SAGA, SagaState, StepEntry, StepState, is_step_name, is_undone, undo_of,
};
use crate::protocol::lock::lock;
use crate::protocol::record::{Failure, error_kind};

/// The longest time that the question about a step of unknown fate may take.
const ASKING: Duration = Duration::from_secs(10);

type Permanent<'a, E> = Box<dyn Fn(&E) -> bool + Send + Sync + 'a>;
type Undo<'a, E> = Box<dyn FnOnce(String) -> BoxFuture<'a, Result<(), E>> + Send + 'a>;

/// Steps that are undone, in reverse order, when one of them fails permanently. [`Claim::saga`] begins it.
///
/// Each [`step`](Self::step) has an effect and a compensation. After a [permanent](Self::permanent)
/// error, the saga is first recorded as *compensating*: from then on no delivery goes forward again.
/// Then the confirmed steps are compensated in reverse order. Each compensation is itself a step,
/// `{step}/undo`, with its own key. The same happens when no delivery can begin a later step, or when a
/// step's result can't be kept. Any other error ends the attempt, and the next delivery resumes where
/// the attempt stopped, forward or backward.
///
/// The handler runs again in each delivery, and must name the same steps in the same order, up to the
/// step at which the last attempt stopped. Confirmed steps return their results from the record.
///
/// ```
/// # use lambda_idempotency::{Idempotency, Key, SagaError, store::MemoryStore};
/// #[derive(Debug, thiserror::Error)]
/// enum ShopError {
///     #[error("the card was declined")]
///     Declined,
///     #[error("no answer")]
///     Down,
/// }
///
/// # async fn reserve(_key: String) -> Result<u32, ShopError> { Ok(17) }
/// # async fn release(_key: String, _reservation: u32) -> Result<(), ShopError> { Ok(()) }
/// # async fn charge(_key: String) -> Result<u32, ShopError> { Err(ShopError::Declined) }
/// # async fn refund(_key: String, _charge: u32) -> Result<(), ShopError> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let ended = once.run(Key::new("checkout", "order-17"), None, |claim| async move {
///     let mut saga = claim.saga()?.permanent(|error| matches!(error, ShopError::Declined));
///     saga.step("reserve", reserve, release).await?;
///     saga.step("charge", charge, refund).await?;
///     saga.finish().await
/// });
/// let error = ended.await.unwrap_err();
/// assert!(error.to_string().contains("reserve"), "undone: {error}");
/// # Ok(()) }
/// ```
#[must_use = "a saga does nothing until its steps run"]
pub struct Saga<'a, E> {
    claim: Claim,
    permanent: Permanent<'a, E>,
    state: SagaState,
    is_noted: bool,
    /// The saga's own steps that this attempt has named.
    own: Vec<String>,
    undos: Vec<(Step<E>, Undo<'a, E>)>,
    /// Steps that may have been done in this attempt, of which the next delivery asks the provider.
    to_ask: Vec<String>,
    /// Steps whose compensation was begun in this attempt.
    going_back: Vec<String>,
}

impl Claim {
    /// Begins a saga: steps that are undone when one of them fails permanently.
    ///
    /// # Errors
    ///
    /// [`SagaError::Nested`] where this claim has one already. [`SagaError::Step`] with
    /// [`StepError::NoJournal`] in the claimless form, which keeps no journal.
    pub fn saga<'a, E: 'static>(&self) -> Result<Saga<'a, E>, SagaError<E>> {
        if self.inner.hold.is_some() && self.inner.steps.engine.is_none() {
            return Err(SagaError::Step(StepError::NoJournal));
        }
        let mut steps = lock(&self.inner.steps.state);
        if std::mem::replace(&mut steps.has_saga, true) {
            return Err(SagaError::Nested);
        }
        let known = SagaState::of(&steps.journal);
        let is_noted = known.is_some();
        let state = known.unwrap_or_default();
        Ok(Saga {
            claim: self.clone(),
            permanent: Box::new(|_| false),
            state,
            is_noted,
            own: Vec::new(),
            undos: Vec::new(),
            to_ask: Vec::new(),
            going_back: Vec::new(),
        })
    }
}

impl<'a, E: fmt::Display + 'static> Saga<'a, E> {
    /// Sets the errors of an effect, or of a compensation, that no retry will fix. Default: none, so that
    /// nothing is undone unless the handler [aborts](Self::abort).
    pub fn permanent<M>(mut self, permanent: impl Fn(&E) -> bool + Send + Sync + 'a) -> Self
    where
        E: HandlerError<M>,
    {
        name_causes_of::<E, M>();
        self.permanent = Box::new(permanent);
        self
    }

    /// Runs an effect that can be undone, and returns its result.
    ///
    /// The effect is given the key of the step, its compensation the key of `{step}/undo` and the effect's
    /// result. Both keys are the same in every attempt. Where an attempt died in the middle, the effect, or
    /// the compensation, fires again with its key, or the saga is stuck, as [`Step::on_crash`] says for both.
    ///
    /// # Errors
    ///
    /// [`SagaError`] says what happened. Return it from the handler. A result that can't be kept, and a step
    /// that no delivery could begin (its name, a full journal), undo the saga.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped while an effect runs leaves its step pending.
    pub async fn step<T, F, Fut, U, UndoFut>(
        &mut self,
        step: impl Into<Step<E>>,
        effect: F,
        undo: U,
    ) -> Result<T, SagaError<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        U: FnOnce(String, T) -> UndoFut + Send + 'a,
        UndoFut: Future<Output = Result<(), E>> + Send + 'a,
    {
        self.run(
            step.into(),
            None::<fn(String) -> std::future::Ready<_>>,
            effect,
            undo,
        )
        .await
    }

    /// Runs an effect that can be undone, and whose provider can be asked about it: where an attempt died
    /// in the middle, or the effect failed with an error that isn't [permanent](Self::permanent), `query`
    /// is given the step's key and returns the result of the effect, or `None` where it did not happen. It
    /// has 10 seconds. It isn't asked about the compensation, which has to honour its key, or needs
    /// [`OnCrash::Interrupt`] and [`Step::unsure_after`].
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step). A query that fails or takes too long ends the attempt; the next one asks
    /// again.
    ///
    /// # Cancellation
    ///
    /// As [`step`](Self::step).
    pub async fn queried_step<T, Q, QueryFut, F, Fut, U, UndoFut>(
        &mut self,
        step: impl Into<Step<E>>,
        query: Q,
        effect: F,
        undo: U,
    ) -> Result<T, SagaError<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        Q: FnOnce(String) -> QueryFut,
        QueryFut: Future<Output = Result<Option<T>, E>>,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        U: FnOnce(String, T) -> UndoFut + Send + 'a,
        UndoFut: Future<Output = Result<(), E>> + Send + 'a,
    {
        self.run(step.into(), Some(query), effect, undo).await
    }

    /// Undoes what was done, since the handler can't go on.
    ///
    /// It returns the error that the handler is to return: [`SagaError::Compensated`], or what came in
    /// between.
    pub async fn abort<M>(&mut self, error: &E) -> SagaError<E>
    where
        E: HandlerError<M>,
    {
        name_causes_of::<E, M>();
        self.undo_after(Failure::of(error)).await
    }

    async fn undo_after(&mut self, failure: Failure) -> SagaError<E> {
        match self.fail(failure).await {
            Ok(()) => self.go_back().await,
            Err(error) => error,
        }
    }

    /// Ends the saga behind its last step.
    ///
    /// # Errors
    ///
    /// That of the compensation, where an earlier delivery began to undo.
    pub async fn finish(mut self) -> Result<(), SagaError<E>> {
        self.fail_again().await?;
        if self.state.failure.is_some() {
            return Err(self.go_back().await);
        }
        Ok(())
    }

    async fn run<T, Q, QueryFut, F, Fut, U, UndoFut>(
        &mut self,
        step: Step<E>,
        query: Option<Q>,
        effect: F,
        undo: U,
    ) -> Result<T, SagaError<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        Q: FnOnce(String) -> QueryFut,
        QueryFut: Future<Output = Result<Option<T>, E>>,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        U: FnOnce(String, T) -> UndoFut + Send + 'a,
        UndoFut: Future<Output = Result<(), E>> + Send + 'a,
    {
        self.fail_again().await?;
        let claim = self.claim.clone();
        let inner = &*claim.inner;
        let name = step.name.clone();
        self.own.push(name.clone());
        let known = lock(&inner.steps.state).journal.get(&name).cloned();
        let known = known.map(|entry| entry.state);
        let is_confirmed = matches!(known, Some(StepState::Confirmed(_)));
        let is_unknown = known == Some(StepState::Pending);
        let can_ask = query.is_some();
        let goes_back = self.state.failure.is_some() && !is_confirmed;
        let may_be_done = is_unknown && self.state.confirmed.contains(&name);
        if goes_back && !(can_ask && may_be_done) {
            return Err(self.go_back().await);
        }
        self.note_once().await?;
        // The provider tells the next delivery whether the effect happened, wherever this one ends.
        if can_ask {
            self.to_ask.push(name.clone());
        }
        let asked = match query.filter(|_| is_unknown) {
            Some(query) => {
                let asking = tokio::time::timeout(ASKING, query(claim.derive_key(&name)));
                match asking.await {
                    Ok(Ok(answer)) => Some(answer),
                    Ok(Err(error)) => return Err(StepError::Effect(error).into()),
                    Err(_) => return Err(SagaError::Unanswered { step: name }),
                }
            }
            None => None,
        };
        // An answered query tells whether the effect happened.
        let policy = asked.as_ref().map_or(step.crashed, |_| OnCrash::RunAgain);
        let (result, live) = match inner.begin(&name, policy).await {
            Ok(Begun::Done(result)) => (result, None),
            Ok(Begun::Turn(turn)) => {
                let done = match asked.flatten() {
                    Some(value) => Ok(value),
                    None if goes_back => {
                        turn.fail("not done", false).await;
                        return Err(self.go_back().await);
                    }
                    None => effect(claim.derive_key(&name)).await,
                };
                match done {
                    Ok(value) => {
                        let result = keep(&value);
                        turn.confirm_surely(result.clone()).await?;
                        (result, Some(value))
                    }
                    Err(error) => {
                        let is_permanent = !step.is_unsure(&error) && (self.permanent)(&error);
                        let may_be_done = can_ask || turn.was_pending;
                        let unsure = step.is_unsure(&error) || (may_be_done && !is_permanent);
                        if is_permanent {
                            // Nothing goes forward from here, also where this is dropped in the next write.
                            lock(&inner.steps.state).failure = Some(Failure::of(&error));
                        }
                        turn.fail(error_kind::<E>(), unsure).await;
                        if !is_permanent {
                            return Err(StepError::Effect(error).into());
                        }
                        return Err(self.undo_after(Failure::of(&error)).await);
                    }
                }
            }
            Err(StepError::Interrupted { step, .. }) => return Err(self.get_stuck(step).await),
            // What was done can't stay until then. Another step of its name is not this one.
            Err(error) if !self.undos.is_empty() && inner.never_begins(&error) => {
                self.own.pop();
                let failure = Failure {
                    kind: "NotBegun".to_owned(),
                    ..Failure::of(&error)
                };
                return Err(self.undo_after(failure).await);
            }
            Err(error) => return Err(error.into()),
        };
        let back = |value: T| -> Undo<'a, E> { Box::new(move |key| Box::pin(undo(key, value))) };
        if let Err(reason) = &result {
            // A later attempt could not undo it, so that this one does.
            let failure = Failure {
                kind: "ResultOmitted".to_owned(),
                message: format!("the result of step `{name}` could not be kept: {reason}"),
            };
            self.undos.extend(live.map(|live| (step, back(live))));
            return Err(self.undo_after(failure).await);
        }
        let to_undo = match give_back::<T, E>(name.clone(), result.clone()) {
            // As one that is not named: only an operator can undo it.
            Err(_) if self.state.failure.is_some() => return Err(self.go_back().await),
            given => given?,
        };
        let value = match live {
            Some(live) => live,
            None => give_back::<T, E>(name.clone(), result)?,
        };
        self.undos.push((step, back(to_undo)));
        Ok(value)
    }

    /// Notes that there is a saga, before its first effect.
    async fn note_once(&mut self) -> Result<(), SagaError<E>> {
        if self.is_noted {
            return Ok(());
        }
        note(&self.claim, &self.state).await?;
        self.is_noted = true;
        Ok(())
    }

    /// Repeats the note of a failure that has no answer: it may have applied.
    async fn fail_again(&mut self) -> Result<(), SagaError<E>> {
        let failure = lock(&self.claim.inner.steps.state).failure.clone();
        match failure {
            Some(failure) => self.fail(failure).await,
            None => Ok(()),
        }
    }

    /// Writes down that the saga is compensating: nothing goes forward from then on.
    async fn fail(&mut self, failure: Failure) -> Result<(), SagaError<E>> {
        if self.state.failure.is_some() {
            return Ok(());
        }
        let confirmed = self.undos.iter().map(|(step, _)| &step.name);
        let mut confirmed: Vec<_> = confirmed.cloned().collect();
        {
            let state = lock(&self.claim.inner.steps.state);
            let is_one = |names: &[String], name: &str| names.iter().any(|other| other == name);
            for (name, entry) in state.journal.iter() {
                let may_be_done = entry.state != StepState::Failed;
                // The handler's own matter.
                let is_beside = state.named.contains(name) && !is_one(&self.own, name);
                // Only an operator can undo what this attempt has no result of, or has not named.
                if may_be_done && is_step_name(name) && !is_beside && !is_one(&confirmed, name) {
                    confirmed.push(name.to_owned());
                }
            }
        }
        let failed = SagaState {
            failure: Some(failure.clone()),
            confirmed,
            stuck: None,
            is_erased: false,
        };
        // The run ends as not final from now on: the note may apply, whatever is heard of it, and the next
        // delivery reads it.
        lock(&self.claim.inner.steps.state).failure = Some(failure);
        note(&self.claim, &failed).await?;
        self.state = failed;
        self.is_noted = true;
        events::saga("saga_compensating", self.claim.subject());
        Ok(())
    }

    /// Returns whether the step's entry has this state.
    fn is(&self, name: &str, state: &StepState) -> bool {
        let steps = lock(&self.claim.inner.steps.state);
        let entry = steps.journal.get(name);
        entry.is_some_and(|entry| entry.state == *state)
    }

    /// Compensates what was confirmed, in reverse order.
    async fn go_back(&mut self) -> SagaError<E> {
        let claim = self.claim.clone();
        let inner = &*claim.inner;
        let is_undone = |name: &String| is_undone(&lock(&inner.steps.state).journal, name);
        // One that failed for now is repeated by the next delivery.
        if let Some(name) = self.going_back.iter().find(|name| !is_undone(name)) {
            let step = undo_of(name);
            if self.state.stuck.as_ref() == Some(&step) {
                return self.get_stuck(step).await;
            }
            return SagaError::Unanswered { step };
        }
        let names: Vec<_> = self
            .undos
            .iter()
            .map(|(step, _)| step.name.clone())
            .collect();
        if let Some(step) = self
            .to_ask
            .iter()
            .find(|name| self.is(name, &StepState::Pending))
        {
            return SagaError::Unanswered { step: step.clone() };
        }
        // Those whose result was not kept, and those that the handler doesn't name any more.
        let confirmed = self.state.confirmed.iter();
        let unknown = confirmed.filter(|name| !names.contains(name) && !is_undone(name));
        for unknown in unknown.cloned().collect::<Vec<_>>() {
            let undo_name = undo_of(&unknown);
            match inner.begin_named(&undo_name, OnCrash::Interrupt).await {
                Ok(Begun::Done(_)) => continue,
                Ok(Begun::Turn(turn)) => turn.fail(BY_HAND, true).await,
                Err(StepError::Interrupted { .. }) => {}
                Err(error) => return error.into(),
            }
            return self.get_stuck(undo_name).await;
        }
        while let Some((step, undo)) = self.undos.pop() {
            let undo_name = undo_of(&step.name);
            self.going_back.push(step.name.clone());
            let policy = match self.policy_of(&undo_name, step.crashed).await {
                Ok(policy) => policy,
                Err(error) => return error.into(),
            };
            let turn = match inner.begin_named(&undo_name, policy).await {
                Ok(Begun::Done(_)) => continue,
                Ok(Begun::Turn(turn)) => turn,
                Err(StepError::Interrupted { step, .. }) => return self.get_stuck(step).await,
                Err(error) => return error.into(),
            };
            let undoing = AssertUnwindSafe(async { undo(claim.derive_key(&undo_name)).await });
            match undoing.catch_unwind().await {
                Ok(Ok(())) => {
                    if let Err(error) = turn.confirm_surely(Ok("null".to_owned())).await {
                        return error.into();
                    }
                }
                Ok(Err(error)) => {
                    let is_permanent = (self.permanent)(&error);
                    let unsure = step.is_unsure(&error);
                    let may_be_done = is_permanent || unsure || turn.was_pending;
                    turn.fail(error_kind::<E>(), may_be_done).await;
                    if is_permanent {
                        return self.get_stuck(undo_name).await;
                    }
                    return StepError::Effect(error).into();
                }
                Err(_) => {
                    turn.fail("panic", true).await;
                    return self.get_stuck(undo_name).await;
                }
            }
        }
        let confirmed = self.state.confirmed.iter();
        let undone = confirmed.filter(|name| !self.is(name, &StepState::Failed));
        let undone: Vec<_> = undone.rev().cloned().collect();
        let Some(failure) = self.state.failure.clone() else {
            return SagaError::Nested;
        };
        let told = match undone.as_slice() {
            [] => "nothing was to be undone".to_owned(),
            undone => format!("undone: {}", undone.join(", ")),
        };
        let message = format!("{}; {told}", failure.message);
        lock(&inner.steps.state).compensated = Some(Failure {
            kind: failure.kind.clone(),
            message,
        });
        events::saga("saga_compensated", claim.subject());
        SagaError::Compensated { failure, undone }
    }

    /// Returns whether a compensation whose attempt died fires again. One that got stuck waits for an
    /// operator, and is as before once that one has settled it.
    async fn policy_of(&mut self, undo: &str, crashed: OnCrash) -> Result<OnCrash, StepError<E>> {
        if self.state.stuck.as_deref() != Some(undo) {
            return Ok(crashed);
        }
        if self.is(undo, &StepState::Pending) {
            return Ok(OnCrash::Interrupt);
        }
        self.state.stuck = None;
        note(&self.claim, &self.state).await?;
        Ok(crashed)
    }

    /// Writes down that an operator must settle a step.
    async fn get_stuck(&mut self, step: String) -> SagaError<E> {
        let claim = self.claim.clone();
        let inner = &*claim.inner;
        if self.state.stuck.as_ref() != Some(&step) {
            self.state.stuck = Some(step.clone());
            if let Err(error) = note(&self.claim, &self.state).await {
                return error.into();
            }
        }
        let began = lock(&inner.steps.state)
            .journal
            .get(&step)
            .map(|entry| entry.at);
        let since = began.unwrap_or_else(|| inner.clock.now());
        // A claim that was lost meanwhile stays lost.
        let interrupted = Stop::Interrupted { since };
        lock(&inner.steps.state).stop.get_or_insert(interrupted);
        events::saga_stuck(claim.subject(), &step);
        SagaError::Stuck { step }
    }
}

/// Writes a state under the fence.
async fn note<E: 'static>(claim: &Claim, state: &SagaState) -> Result<(), StepError<E>> {
    let inner = &*claim.inner;
    if claim.is_over() {
        return Err(StepError::OutOfTime);
    }
    let text = serde_json::to_string(state).unwrap_or_default();
    let now = inner.clock.now();
    let begun = StepEntry::begun(lock(&inner.steps.state).journal.get(SAGA), now);
    let entry = begun.ended(StepState::Confirmed(Ok(text)), None, now);
    match inner.note(SAGA, &entry, Urgency::Begin).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(StepError::LeaseLost),
        Err(error) => Err(StepError::Store(error)),
    }
}

impl<E> fmt::Debug for Saga<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.undos.iter().map(|(step, _)| &step.name);
        f.debug_struct("Saga")
            .field("confirmed", &steps.collect::<Vec<_>>())
            .field("is_compensating", &self.state.failure.is_some())
            .finish_non_exhaustive()
    }
}
