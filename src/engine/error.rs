//! The error of a run that gave no outcome.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use crate::protocol::causes::unlinked;
use crate::protocol::key::KeyError;
use crate::protocol::record::{Failure, Omission};
use crate::store::StoreError;
use crate::store::transaction::{Refusal, WriteError};

/// The error of a run that gave no outcome. `E` is the handler's own error.
///
/// [`kind`](Self::kind) names it, [`handler_ran`](Self::handler_ran) tells whether the handler ran
/// in this call, and [`is_retryable`](Self::is_retryable) whether the same request may come to
/// another end.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The handler failed. Its claim was released, or the failure stored, as the verdict on it
    /// said.
    #[error("the handler failed: {0}")]
    Handler(E),
    /// An earlier attempt failed permanently, and this is its failure, replayed.
    #[error("an earlier attempt failed permanently: {}{}", unlinked(&.0.message), see!("failed"))]
    Failed(Failure),
    /// Another attempt is running.
    #[error("another attempt is in flight: retry {}{}", when(*.retry_after), see!("in-flight"))]
    InFlight {
        /// The time after which to ask again: until the other attempt's lease ends, but at most
        /// [`Settings::max_retry_after`](crate::Settings::max_retry_after), since the other attempt is
        /// usually done long before.
        retry_after: Duration,
        /// The time until the other attempt's lease ends.
        lease: Duration,
    },
    /// The handler returned a success or a permanent error while its saga still compensates. Its claim was
    /// released, and the next delivery goes on with the saga; without protection it begins anew.
    #[error("the saga still compensates: retry now{}", see!("in-flight"))]
    Compensating,
    /// The key was first used with another payload. Other work needs a new key; the same work under a new
    /// key would be done twice: correct what differs.
    #[error(
        "the idempotency key was first used with another payload: for other work send a new key, else correct what differs{}", see!("mismatch")
    )]
    Mismatch,
    /// An earlier attempt crashed, or a [step](crate::Step) of it was interrupted, and the policy
    /// wants an operator to look before it is repeated.
    #[error(
        "an earlier attempt was interrupted and may have taken effect: look, then complete or release the record, or settle the step{}", see!("interrupted")
    )]
    Interrupted {
        /// The time when its lease ran out, or the step began.
        since: SystemTime,
    },
    /// An attempt crashed, and it was the last that `max_attempts` allows.
    #[error("attempt {attempts} crashed, and no other is allowed: look for the effect, then complete or release the record{}", see!("exhausted"))]
    Exhausted {
        /// The number of attempts, with those that failed.
        attempts: u32,
    },
    /// The handler outlived its lease and another attempt took the key over. A handler whose lease
    /// was renewed, or bound to a deadline, was ended. Its outcome was not stored; its effect may have
    /// happened beside the successor's.
    #[error("the lease ran out while the handler was running, and another attempt took over{}", see!("lease-lost"))]
    LeaseLost,
    /// The claim came back from the store when its time was over, because the invocation's deadline
    /// had passed before or the store answered late. It was released, and the handler didn't run.
    #[error(
        "the deadline of the invocation, or the claim's own lease, had passed when the store answered: nothing ran; retry in a new invocation{}", see!("too-late")
    )]
    TooLate,
    /// The handler was ended: [shortly before](crate::AtDeadline::End) the invocation's deadline, or
    /// when its lease could not be [renewed](crate::Builder::renewed_lease) any more. Its claim ends
    /// as after a panic: released, or left for an operator ([`OnCrash`](crate::OnCrash)). It may have had
    /// its effect.
    #[error("the handler was ended before it was done: its time was over, or its lease could not be renewed{}", see!("timed-out"))]
    TimedOut,
    /// The handler succeeded once, but its outcome was not kept, so that it can't be replayed. It
    /// is not run again. Where the reason is [`Omission::Forgotten`], it may never have run.
    #[error("already done, but its outcome was not kept: {reason}{}", see!("outcome-omitted"))]
    OutcomeOmitted {
        /// The reason.
        reason: Omission,
        /// The time when it was done, where the record has it.
        completed_at: Option<SystemTime>,
        /// The handler of this call ran, too: its lease was over, and the outcome is a successor's; or its
        /// own answer has no JSON form.
        handler_ran: bool,
    },
    /// The handler succeeded, and its outcome could not be recorded: only where the setting asks to
    /// report this. Also where the runtime shut down and cut a
    /// [detached](crate::Idempotency::run_detached) run off, whose handler may have succeeded.
    #[error("the handler succeeded, but its outcome could not be recorded: {}{}", unlinked(.0), see!("unrecorded"))]
    Unrecorded(#[source] StoreError),
    /// The condition of a business write didn't hold, and the write has no answer of the handler's
    /// own error type ([`Write::or_else`](crate::store::transaction::Write::or_else)). Nothing was
    /// written, nothing of this attempt will be, and the claim was released.
    #[error("the condition of business write {} did not hold: nothing was written{}{}", .0.index, .0.unread_answer(), see!("condition-failed"))]
    Refused(Refusal),
    /// The handler succeeded, and its transaction didn't commit: nothing was written, and nothing
    /// of this attempt will be. A retry is safe, and runs at once where the claim could be
    /// released.
    #[error("the transaction did not commit, and nothing was written: {}{}", unlinked(.0), see!("not-committed"))]
    NotCommitted(#[source] StoreError),
    /// The handler succeeded, and nothing proves whether its transaction committed, or still will: a
    /// send of it got no answer. A retry is safe, and finds out; in a run that nothing protects, it
    /// may write a second time.
    #[error("it is not known whether the transaction committed: retry to find out: {}{}", unlinked(.0), see!("outcome-unknown"))]
    OutcomeUnknown(#[source] StoreError),
    /// As many detached runs as [`detached_limit`](crate::Settings::detached_limit) allows go on, or
    /// the engine [drains](crate::Idempotency::drain). Nothing ran.
    #[error("too many detached runs at a time: retry, or raise `detached_limit`{}", see!("overloaded"))]
    Overloaded,
    /// The claimless form can't work: the store can't commit business writes, or the retention is
    /// shorter than an hour. Nothing ran.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The record can't be understood. It was left alone.
    #[error(
        "the stored record can't be read ({}): it was left alone; look at it before it expires, or the handler runs again{}", unlinked(.0), see!("unreadable")
    )]
    Unreadable(String),
    /// The key can't be used, or the payload has no fingerprint.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store failed before the handler ran, or when the outcome of an earlier attempt, which is done,
    /// was to be read. Nothing ran in this call.
    #[error("the idempotency store failed: {0}")]
    Store(#[from] StoreError),
    /// No claim could be made.
    #[error("{}{}", .0, see!("no-entropy"))]
    Entropy(io::Error),
}

/// Is the text, since Rust prints the `Debug` of the error that `main` returns. The text of an earlier
/// attempt's failure may quote the payload, and stays out of it.
impl<E: fmt::Debug + fmt::Display> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(error) => f.debug_tuple("Handler").field(error).finish(),
            Self::Failed(failure) => f.debug_tuple("Failed").field(failure).finish(),
            other => fmt::Display::fmt(other, f),
        }
    }
}

/// The engine's own reason why a request gave no outcome; it has no handler's error.
pub(crate) type Obstacle = Error<Infallible>;

impl Obstacle {
    /// Converts an obstacle to an error beside a handler's own.
    pub(crate) fn widen<E>(self) -> Error<E> {
        match self {
            Self::Handler(never) => match never {},
            Self::Failed(failure) => Error::Failed(failure),
            Self::InFlight { retry_after, lease } => Error::InFlight { retry_after, lease },
            Self::Compensating => Error::Compensating,
            Self::Mismatch => Error::Mismatch,
            Self::Interrupted { since } => Error::Interrupted { since },
            Self::Exhausted { attempts } => Error::Exhausted { attempts },
            Self::LeaseLost => Error::LeaseLost,
            Self::TooLate => Error::TooLate,
            Self::TimedOut => Error::TimedOut,
            Self::OutcomeOmitted {
                reason,
                completed_at,
                handler_ran,
            } => Error::OutcomeOmitted {
                reason,
                completed_at,
                handler_ran,
            },
            Self::Unrecorded(error) => Error::Unrecorded(error),
            Self::Refused(refusal) => Error::Refused(refusal),
            Self::NotCommitted(error) => Error::NotCommitted(error),
            Self::OutcomeUnknown(error) => Error::OutcomeUnknown(error),
            Self::Overloaded => Error::Overloaded,
            Self::Write(error) => Error::Write(error),
            Self::Unreadable(reason) => Error::Unreadable(reason),
            Self::Key(error) => Error::Key(error),
            Self::Store(error) => Error::Store(error),
            Self::Entropy(error) => Error::Entropy(error),
        }
    }
}

impl<E> Error<E> {
    /// Returns the kind, and the word for logs and metrics.
    fn kind_and_code(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::Handler(_) => (ErrorKind::HandlerFailed, "handler_failed"),
            Self::Failed(_) => (ErrorKind::Failed, "failure_replayed"),
            Self::InFlight { .. } | Self::Compensating => (ErrorKind::InFlight, "in_flight"),
            Self::Mismatch => (ErrorKind::Mismatch, "mismatch"),
            Self::Interrupted { .. } => (ErrorKind::Interrupted, "interrupted"),
            Self::Exhausted { .. } => (ErrorKind::Exhausted, "exhausted"),
            Self::LeaseLost => (ErrorKind::LeaseLost, "lease_lost"),
            Self::TooLate => (ErrorKind::TooLate, "too_late"),
            Self::TimedOut => (ErrorKind::TimedOut, "timed_out"),
            Self::OutcomeOmitted { .. } => (ErrorKind::OutcomeOmitted, "outcome_omitted"),
            Self::Unrecorded(_) => (ErrorKind::Unrecorded, "unrecorded"),
            Self::Refused(_) => (ErrorKind::ConditionFailed, "condition_failed"),
            Self::NotCommitted(_) => (ErrorKind::NotCommitted, "not_committed"),
            Self::OutcomeUnknown(_) => (ErrorKind::OutcomeUnknown, "outcome_unknown"),
            Self::Overloaded => (ErrorKind::Overloaded, "overloaded"),
            Self::Unreadable(_) => (ErrorKind::Unreadable, "unreadable"),
            Self::Write(WriteError::RetentionTooShort { .. }) => {
                (ErrorKind::Misconfigured, "retention_too_short")
            }
            Self::Write(_) => (ErrorKind::Misconfigured, "no_transactions"),
            Self::Key(error) => (ErrorKind::of_key(error), error.code()),
            Self::Store(StoreError::Denied(_) | StoreError::Misconfigured(_)) => {
                (ErrorKind::Misconfigured, "store_failed")
            }
            Self::Store(_) => (ErrorKind::StoreUnavailable, "store_failed"),
            Self::Entropy(_) => (ErrorKind::StoreUnavailable, "no_entropy"),
        }
    }

    /// Returns the kind of the error.
    ///
    /// ```
    /// use lambda_idempotency::{Error, ErrorKind, KeyError};
    ///
    /// let error = Error::<std::io::Error>::from(KeyError::Missing);
    /// assert_eq!(error.kind(), ErrorKind::KeyMissing);
    /// assert!(!error.is_retryable() && !error.handler_ran());
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.kind_and_code().0
    }

    /// Returns whether each request fails like this until an operator corrects the set-up.
    #[cfg(feature = "batch")]
    pub(crate) fn is_misconfigured(&self) -> bool {
        match self {
            Self::Unrecorded(error) | Self::NotCommitted(error) | Self::OutcomeUnknown(error) => {
                matches!(error, StoreError::Denied(_) | StoreError::Misconfigured(_))
            }
            error => error.kind() == ErrorKind::Misconfigured,
        }
    }

    /// Returns whether the same request, sent again with the same key, may come to another end.
    pub fn is_retryable(&self) -> bool {
        self.kind().facts().0
    }

    /// Returns whether the handler ran in this call, or may have. In the
    /// [claimless form](crate::Idempotency::claimless) it may have run after any error, and nothing
    /// that it wrote was committed.
    pub fn handler_ran(&self) -> bool {
        match self {
            Self::Compensating => true,
            Self::OutcomeOmitted { handler_ran, .. } => *handler_ran,
            error => error.kind().facts().1,
        }
    }

    /// Returns a word for logs and metrics, one of a small fixed set.
    pub fn code(&self) -> &'static str {
        self.kind_and_code().1
    }
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The handler failed.
    HandlerFailed,
    /// An earlier attempt failed permanently.
    Failed,
    /// Another attempt is running, or a saga still compensates.
    InFlight,
    /// The key was first used with another payload.
    Mismatch,
    /// An earlier attempt was interrupted, and an operator must look.
    Interrupted,
    /// The last attempt that is allowed has crashed.
    Exhausted,
    /// Another attempt took over while the handler ran.
    LeaseLost,
    /// The time was over before the handler began.
    TooLate,
    /// The handler was ended before it was done.
    TimedOut,
    /// The work is done, and its outcome was not kept.
    OutcomeOmitted,
    /// The work is done, and its outcome could not be recorded.
    Unrecorded,
    /// The condition of a business write did not hold.
    ConditionFailed,
    /// The transaction did not commit.
    NotCommitted,
    /// It is not known whether the transaction committed.
    OutcomeUnknown,
    /// Too many detached runs go on.
    Overloaded,
    /// The request has no key.
    KeyMissing,
    /// The request's key can't be used.
    UnusableKey,
    /// The settings, the table or the permissions are wrong.
    Misconfigured,
    /// The stored record can't be read.
    Unreadable,
    /// The store could not be reached, or refused.
    StoreUnavailable,
}

impl ErrorKind {
    /// A key that is unusable by the settings is no fault of the request.
    fn of_key(error: &KeyError) -> Self {
        match error {
            KeyError::EmptyOperation
            | KeyError::OperationControlCharacter
            | KeyError::RawIdWithScope
            | KeyError::InvalidPayload { .. } => Self::Misconfigured,
            KeyError::Missing | KeyError::MissingAt { .. } => Self::KeyMissing,
            _ => Self::UnusableKey,
        }
    }

    /// Returns three facts: whether an error of this kind is [retryable](Error::is_retryable), whether the
    /// [handler ran](Error::handler_ran), and its `errorType` for Lambda's caller, which is empty for the
    /// handler's own error.
    pub(crate) fn facts(self) -> (bool, bool, &'static str) {
        match self {
            Self::HandlerFailed => (true, true, ""),
            Self::Failed => (false, false, "Idempotency.Failed"),
            Self::InFlight => (true, false, "Idempotency.InFlight"),
            Self::Mismatch => (false, false, "Idempotency.Mismatch"),
            Self::Interrupted => (false, true, "Idempotency.Interrupted"),
            Self::Exhausted => (false, false, "Idempotency.Exhausted"),
            Self::LeaseLost => (true, true, "Idempotency.LeaseLost"),
            Self::TooLate => (true, false, "Idempotency.TooLate"),
            Self::TimedOut => (true, true, "Idempotency.TimedOut"),
            Self::OutcomeOmitted => (false, false, "Idempotency.OutcomeOmitted"),
            Self::Unrecorded => (true, true, "Idempotency.Unrecorded"),
            Self::ConditionFailed => (false, true, "Idempotency.ConditionFailed"),
            Self::NotCommitted => (true, true, "Idempotency.NotCommitted"),
            Self::OutcomeUnknown => (true, true, "Idempotency.OutcomeUnknown"),
            Self::Overloaded => (true, false, "Idempotency.Overloaded"),
            Self::KeyMissing => (false, false, "Idempotency.KeyMissing"),
            Self::UnusableKey => (false, false, "Idempotency.UnusableKey"),
            Self::Misconfigured => (false, false, "Idempotency.Misconfigured"),
            Self::Unreadable => (false, false, "Idempotency.Unreadable"),
            Self::StoreUnavailable => (true, false, "Idempotency.StoreUnavailable"),
        }
    }
}

/// Returns the words for when to retry, in minutes and whole seconds, rounded up.
fn when(retry_after: Duration) -> String {
    let seconds = retry_after.as_millis().div_ceil(1_000);
    match (seconds / 60, seconds % 60) {
        (0, 0) => "now".to_owned(),
        (0, seconds) => format!("in {seconds} s"),
        (minutes, 0) => format!("in {minutes} min"),
        (minutes, seconds) => format!("in {minutes} min {seconds} s"),
    }
}

/// Makes the error of a commit whose last answer is not an error, while an earlier send of it got
/// no answer.
pub(super) fn unanswered() -> StoreError {
    StoreError::Unavailable("a send of the transaction got no answer, and may still arrive".into())
}

#[cfg(test)]
mod tests {
    use super::{Error, *};
    use crate::protocol::record::Failure;

    #[test]
    fn a_request_in_flight_says_when_to_retry_in_minutes_and_seconds() {
        for (millis, expected) in [
            (0, "now"),
            (1, "in 1 s"),
            (59_001, "in 1 min"),
            (896_452, "in 14 min 57 s"),
            (u64::MAX, "in 307445734561825 min 52 s"),
        ] {
            let retry_after = Duration::from_millis(millis);
            let in_flight = Error::<&str>::InFlight {
                retry_after,
                lease: retry_after,
            };
            let said = unlinked(&in_flight);
            assert_eq!(
                said,
                format!("another attempt is in flight: retry {expected}")
            );
        }
    }

    #[test]
    fn what_main_prints_of_an_error_is_its_text_but_for_a_failure_that_may_quote_the_payload() {
        let mismatch = Error::<&str>::Mismatch;
        assert_eq!(format!("{mismatch:?}"), mismatch.to_string());
        let own = Error::Handler("mine");
        assert_eq!(format!("{own:?}"), "Handler(\"mine\")");
        let failed = Error::<&str>::Failed(Failure::of(&"card 4111 declined"));
        assert!(!format!("{failed:?}").contains("4111"), "{failed:?}");
    }

    #[test]
    fn a_passed_deadline_is_named() {
        let said = Error::<&str>::TooLate.to_string();
        assert!(said.starts_with("the deadline of the invocation"), "{said}");
    }
}
