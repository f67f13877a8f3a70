//! A step whose handler says when its effect fires.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Claim;
use super::results::{give_back, keep};
use super::steps::{Begun, check_name};
use crate::engine::step::{Step, StepError};
use crate::protocol::journal::StepEntry;
use crate::protocol::record::error_kind;

/// A step that is being prepared, and whose effect has not fired yet. [`Claim::prepared_step`] makes it.
pub struct PreparedStep<E> {
    claim: Claim,
    name: String,
    entry: StepEntry,
    has_fired: Arc<AtomicBool>,
    effect: PhantomData<fn() -> E>,
}

impl<E> PreparedStep<E> {
    /// Returns the key for the effect: that which [`Claim::derive_key`] gives for the step's name.
    pub fn key(&self) -> String {
        self.claim.derive_key(&self.name)
    }

    /// Notes that the effect is about to fire. Call it right before the request that has the effect.
    ///
    /// # Errors
    ///
    /// The effect must not fire: the attempt has lost its lease, has no time left, or the note could not be
    /// written. Return the error from the step.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped may have written the note: the step counts as one whose effect has fired.
    pub async fn firing(&self) -> Result<(), StepError<E>> {
        if self.has_fired.load(Ordering::Acquire) {
            return Ok(());
        }
        self.claim.inner.fire(&self.name, &self.entry).await?;
        self.has_fired.store(true, Ordering::Release);
        Ok(())
    }

    /// Counts the effect as one that its provider knew already, as [`Claim::duplicate_at_provider`] does.
    pub fn duplicate_at_provider(&self) {
        self.claim.duplicate_at_provider(&self.name);
    }
}

impl Claim {
    /// Runs an effect as [`step`](Self::step) does, and lets the handler say when it fires.
    ///
    /// What comes before [`firing`](PreparedStep::firing) has no effect outside: reading a token, signing,
    /// waiting for a connection. An attempt that dies there leaves no note, and the next one runs the step
    /// from its beginning, even under [`OnCrash::Interrupt`](crate::OnCrash::Interrupt). One that dies behind
    /// it may have had the effect: the step fires again with its key, or waits for a person, as
    /// [`Step::on_crash`](crate::Step::on_crash) says. So fewer requests wait for a person where the provider
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
    pub async fn prepared_step<T, E, F, Fut>(
        &self,
        step: impl Into<Step<E>>,
        effect: F,
    ) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
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
            has_fired: Arc::clone(&has_fired),
            effect: PhantomData,
        };
        match effect(prepared).await {
            Ok(value) => turn.confirm(keep(&value)).await.map(|()| value),
            Err(StepError::Effect(error)) if has_fired.load(Ordering::Acquire) => {
                let unsure = step.unsure.is_some_and(|unsure| unsure(&error));
                turn.fail(error_kind::<E>(), unsure).await;
                Err(StepError::Effect(error))
            }
            Err(error) => Err(error),
        }
    }
}

impl<E> fmt::Debug for PreparedStep<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedStep")
            .field("name", &self.name)
            .field("has_fired", &self.has_fired)
            .finish_non_exhaustive()
    }
}
