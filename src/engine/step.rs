//! A step of a handler, as its author describes it, and the error of one that gave no result.

use std::fmt;
use std::time::SystemTime;

use crate::protocol::OnCrash;
use crate::protocol::journal::{MAX_JOURNAL_BYTES, MAX_STEP_NAME_BYTES, MAX_STEPS};
use crate::protocol::record::{Failure, Omission};
use crate::protocol::unlinked::unlinked;
use crate::store::StoreError;

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

    /// Sets the errors of the effect after which it isn't known whether it happened: a timeout,
    /// say. The step then counts as one whose attempt died. Default: none; an error says that
    /// nothing happened.
    pub fn unsure_after(mut self, unsure: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.unsure = Some(Box::new(unsure));
        self
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

impl<E> fmt::Debug for Step<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("name", &self.name)
            .field("crashed", &self.crashed)
            .finish_non_exhaustive()
    }
}

/// The error of a step that gave no result. `E` is the effect's own error.
///
/// After [`Effect`](Self::Effect), [`LeaseLost`](Self::LeaseLost) and
/// [`Unrecorded`](Self::Unrecorded) the effect may have fired in this call; after any other it has
/// not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError<E> {
    /// The effect failed. That is noted in the journal, and a retry lets it fire again, with the
    /// same key.
    #[error("the step's effect failed: {0}")]
    Effect(E),
    /// The effect may have happened before an attempt died, and the step's policy wants a person to
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
    /// Another attempt has taken the key over: stop.
    #[error("the lease ran out, and another attempt took over{}", see!("step-lease-lost"))]
    LeaseLost,
    /// The attempt's time is over, so that nothing may begin any more.
    #[error("the attempt's time is over: the step was not begun{}", see!("step-out-of-time"))]
    OutOfTime,
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
    /// The attempt has had a step of this name: the second would get the first one's result.
    #[error("step `{step}` was run already in this attempt: give each effect a name of its own{}", see!("step-repeated"))]
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
        /// The reason.
        reason: String,
    },
    /// The step could not be recorded as pending, so its effect didn't fire.
    #[error("the step could not be recorded, and was not begun: {}{}", unlinked(.0), see!("step-not-recorded"))]
    Store(#[source] StoreError),
    /// The effect happened, and its result could not be recorded: only where the
    /// [setting](crate::Builder::unrecorded) asks to report this.
    #[error("the step's effect happened, but its result could not be recorded: {}{}", unlinked(.0), see!("step-unrecorded"))]
    Unrecorded(#[source] StoreError),
}

impl<E> From<E> for StepError<E> {
    fn from(error: E) -> Self {
        Self::Effect(error)
    }
}

impl<E> StepError<E> {
    /// Returns the effect's own error, where this is one.
    pub fn into_effect(self) -> Option<E> {
        match self {
            Self::Effect(error) => Some(error),
            _ => None,
        }
    }
}

/// The error of a saga: of a step that gave no result, or of one that was undone. `E` is the effect's own
/// error.
///
/// Return it from the handler: what became of the saga counts, whatever error the handler makes of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SagaError<E> {
    /// The saga failed for good, and what was done is undone. The failure is stored, with what was undone,
    /// and duplicates get it for the [retention](crate::Builder::retention). A handler that returns a
    /// success from here has that one stored.
    #[error("{}; undone: {}", .failure.message, list(.undone))]
    Compensated {
        /// The failure.
        failure: Failure,
        /// The steps that were undone, the last first.
        undone: Vec<String>,
    },
    /// A person must settle a step, or a compensation (`{step}/undo`): whether it happened is not known, or
    /// it failed for good. The next delivery goes on once it is settled.
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
    #[error("the claim has a saga already: give the second one a key of its own, derived from this claim's{}", see!("saga-nested"))]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effects_own_error_comes_back_out() {
        assert_eq!(StepError::Effect("mine").into_effect(), Some("mine"));
        let other = StepError::<&str>::Store(StoreError::Timeout);
        assert_eq!(other.into_effect(), None);
    }
}
