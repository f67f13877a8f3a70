//! What can go wrong, one small enum a layer.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use crate::fingerprint::FingerprintError;
use crate::key::KeyError;
use crate::record::{EntropyError, Failure, Omission};
use crate::transaction::{Refusal, WriteError};

/// A boxed error of any kind.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// Why a run didn't give an outcome. `E` is the handler's own error.
///
/// After [`Handler`](Self::Handler), [`LeaseLost`](Self::LeaseLost), [`Unrecorded`](Self::Unrecorded), and the three that a
/// transaction ends with ([`Refused`](Self::Refused), [`NotCommitted`](Self::NotCommitted),
/// [`OutcomeUnknown`](Self::OutcomeUnknown)), the handler has run in this call; after [`Interrupted`](Self::Interrupted) it may
/// have, up to the step in question. After any other it has not, and a retry is safe; in the
/// [claimless form](crate::Idempotency::claimless) it may have run, and nothing that it wrote was committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The handler failed. Its claim was released, or the failure stored, as the verdict on it said.
    #[error("the handler failed: {0}")]
    Handler(E),
    /// An earlier attempt failed for good, and this is its failure, replayed.
    #[error("an earlier attempt failed for good: {}", .0.message)]
    Failed(Failure),
    /// Another attempt is running. Retry when its lease is over.
    #[error("another attempt is in flight: retry in {} ms", .retry_after.as_millis())]
    InFlight {
        /// How long until the other's lease ends.
        retry_after: Duration,
    },
    /// The key was first used with another payload: the sender must choose a new key.
    #[error(
        "the idempotency key was first used with another payload: send a new key with a new request"
    )]
    Mismatch,
    /// An earlier attempt crashed, or a [step](crate::Step) of it was interrupted, and the policy wants a person to look before it
    /// is repeated.
    #[error(
        "an earlier attempt was interrupted and may have taken effect: look, then release its record"
    )]
    Interrupted {
        /// When its lease ran out, or the step began.
        since: SystemTime,
    },
    /// Attempts crashed until the key had used up `max_attempts`.
    #[error("{attempts} attempts crashed: look at why, then release the record or let it expire")]
    Exhausted {
        /// How many there were.
        attempts: u32,
    },
    /// The handler outlived its lease and somebody else took the key over. Its outcome was not stored; its effect may have
    /// happened beside the successor's.
    #[error("the lease ran out while the handler was running, and another attempt took over")]
    LeaseLost,
    /// The claim came back from the store after its own lease had ended: it was released, and the handler didn't run.
    #[error("the store answered after the claim's own lease had ended: nothing ran; retry")]
    TooLate,
    /// The handler succeeded once, but its outcome was not kept, so that it can't be replayed. It is not run again.
    #[error("already done, but its outcome was not kept: {reason}")]
    OutcomeOmitted {
        /// Why.
        reason: Omission,
        /// When it was done, where the record tells.
        completed_at: Option<SystemTime>,
    },
    /// The handler succeeded, and its outcome could not be recorded: only where the setting asks to report this.
    #[error("the handler succeeded, but its outcome could not be recorded: {0}")]
    Unrecorded(#[source] StoreError),
    /// The condition of a business write didn't hold, and the write has no answer of the handler's own error type
    /// ([`Write::or_else`](crate::transaction::Write::or_else)). Nothing was written, and the claim was released.
    #[error("the condition of business write {} did not hold: nothing was written", .0.index())]
    Refused(Refusal),
    /// The handler succeeded, and its transaction didn't commit: nothing was written, and the claim was released. A retry
    /// is safe.
    #[error("the transaction did not commit, and nothing was written: {0}")]
    NotCommitted(#[source] StoreError),
    /// The handler succeeded, and nothing proves whether its transaction committed. A retry is safe, and finds out.
    #[error("it is not known whether the transaction committed: retry to find out: {0}")]
    OutcomeUnknown(#[source] StoreError),
    /// The store can't commit business writes, so that the claimless form can't work on it. Nothing ran.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The record can't be understood. It was left alone.
    #[error(
        "the stored record can't be read ({0}): it was left alone; look at it, or let it expire"
    )]
    Unreadable(String),
    /// The key can't be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The payload has no fingerprint.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
    /// The store failed; nothing ran.
    #[error("the idempotency store failed: {0}")]
    Store(#[from] StoreError),
    /// No claim could be made.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

impl<E> Error<E> {
    /// The handler's own error, where this is one.
    pub fn into_handler(self) -> Option<E> {
        match self {
            Self::Handler(error) => Some(error),
            _ => None,
        }
    }

    /// A word for logs and metrics; one of a small fixed set.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Handler(_) => "handler_failed",
            Self::Failed(_) => "failure_replayed",
            Self::InFlight { .. } => "in_flight",
            Self::Mismatch => "mismatch",
            Self::Interrupted { .. } => "interrupted",
            Self::Exhausted { .. } => "exhausted",
            Self::LeaseLost => "lease_lost",
            Self::TooLate => "too_late",
            Self::OutcomeOmitted { .. } => "outcome_omitted",
            Self::Unrecorded(_) => "unrecorded",
            Self::Refused(_) => "condition_failed",
            Self::NotCommitted(_) => "not_committed",
            Self::OutcomeUnknown(_) => "outcome_unknown",
            Self::Write(_) => "no_transactions",
            Self::Unreadable(_) => "unreadable",
            Self::Key(_) => "invalid_key",
            Self::Fingerprint(_) => "invalid_payload",
            Self::Store(_) => "store_failed",
            Self::Entropy(_) => "no_entropy",
        }
    }
}

/// Why a store could not do what it was asked. A condition that failed is no error: it is an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer before the deadline. The write may have applied.
    #[error("no answer before the deadline")]
    Timeout,
    /// The table, or the account, is over its throughput.
    #[error("throttled: raise the table's capacity, or use on-demand")]
    Throttled,
    /// Another write was under way on the same item.
    #[error("another transaction was under way on the same item")]
    Conflict,
    /// The service could not be reached, or failed. The write may have applied.
    #[error("the store could not be reached: {0}")]
    Unavailable(#[source] BoxError),
    /// The function may not do this.
    #[error("access denied to table `{table}`: allow the function {action} on it")]
    AccessDenied {
        /// The table.
        table: String,
        /// The IAM action that is missing.
        action: &'static str,
    },
    /// There is no such table.
    #[error(
        "table `{table}` does not exist in this account and region: create it, or correct its name"
    )]
    TableNotFound {
        /// The table.
        table: String,
    },
    /// The table's key is not what the store was told, or the request was otherwise refused as invalid.
    #[error(
        "table `{table}` refused the request: the store expects {expected}; DynamoDB said: {message}"
    )]
    Schema {
        /// The table.
        table: String,
        /// The key schema that the store was configured with.
        expected: String,
        /// What the service said.
        message: String,
    },
    /// The record would be larger than the store takes.
    #[error("the record is larger than the store takes: lower the inline limit")]
    TooLarge,
    /// Anything else that a retry will not change.
    #[error("the store refused the request: {0}")]
    Rejected(#[source] BoxError),
}

impl StoreError {
    /// Whether the store gave no answer, so that a write may have applied.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Timeout | Self::Unavailable(_))
    }

    /// Whether the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Timeout | Self::Throttled | Self::Conflict | Self::Unavailable(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misconfiguration_is_not_transient() {
        let denied = StoreError::AccessDenied {
            table: "t".into(),
            action: "dynamodb:PutItem",
        };
        assert!(!denied.is_transient());
        assert!(denied.to_string().contains("dynamodb:PutItem"));
        assert!(StoreError::Throttled.is_transient());
    }

    #[test]
    fn a_handlers_error_comes_back_out() {
        assert_eq!(Error::Handler("mine").into_handler(), Some("mine"));
        assert_eq!(Error::<&str>::Mismatch.into_handler(), None);
    }
}
