//! Defines the errors of the helpers for tests.

use std::convert::Infallible;

use crate::engine::error::Error;
use crate::setup::BuildError;
use crate::store::BoxError;

/// The error of a test helper.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The namespace of the claim can't be used.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The claim was not given: the key can't be used, or the store failed.
    #[error("no claim was given: {0}")]
    Claim(#[from] Error<Infallible>),
    /// The key has an outcome, so a handler would not run.
    #[error("the key has an outcome already, so that no handler runs for it")]
    Replayed,
    /// The step of an earlier attempt could not be recorded.
    #[error("the step {step:?} of an earlier attempt could not be recorded: {reason}")]
    Step {
        /// The step's name.
        step: String,
        /// The reason.
        reason: String,
    },
    /// The attempt ended by itself, before it reached the point where it was to crash.
    #[error(
        "the attempt ended before its crash: {ended}; it came to no `crash.here()`, or never made the call to crash at: a handler with `claim.write` ends with `Call::Commit`, another with `Call::Complete`"
    )]
    NotCrashed {
        /// The attempt ended with this result, as `Debug` shows it.
        ended: String,
    },
    /// A value has no JSON form that reads back as the same value, so an outcome of it is not kept.
    #[error("{wanted} would not be kept: {reason}")]
    NotKept {
        /// The value's type.
        wanted: &'static str,
        /// The reason.
        reason: String,
    },
    /// A value is no JSON, or JSON of another type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A store broke a promise of the [`Store`](crate::store::Store) contract.
    #[error("the store breaks its contract: {case}: {detail}")]
    Violation {
        /// The check that failed, as a sentence.
        case: &'static str,
        /// The expected value, and the one that was found.
        detail: String,
    },
    /// The DynamoDB API could not be started, or refused to make a table.
    #[error("the DynamoDB API for tests: {0}")]
    DynamoDb(#[source] BoxError),
}

impl TestError {
    pub(super) fn not_kept<T: ?Sized>(reason: impl Into<String>) -> Self {
        Self::NotKept {
            wanted: std::any::type_name::<T>(),
            reason: reason.into(),
        }
    }
}

debug_by_display!(TestError);
