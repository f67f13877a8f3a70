//! The way by which the notes of steps reach the store.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::protocol::clock::EpochMillis;
use crate::protocol::record::RecordWrite;
use crate::store::{Answer, StoreError};

/// A scribe writes the journal to a store of any type: a claim isn't generic.
pub(crate) trait Scribe: Send + Sync {
    /// Writes a note under the fence. `until` is when the attempt must be done.
    fn note<'a>(
        &'a self,
        amendment: &'a RecordWrite,
        until: EpochMillis,
        urgency: Urgency,
    ) -> BoxFuture<'a, Result<Answer, StoreError>>;
}

/// The urgency decides how often and how long a note is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Nothing has happened yet.
    Begin,
    /// An effect happened, and a takeover would repeat it.
    Confirm,
    /// A later attempt can do without the note.
    Tell,
}

/// The scribe of a claim, and the policy for results that it can't record.
#[derive(Clone)]
pub(crate) struct Notes {
    pub(crate) scribe: Arc<dyn Scribe>,
    /// A result that could not be recorded is an error.
    pub(crate) reports_unrecorded: bool,
    /// A result that does not read back from JSON is an error: in tests.
    pub(crate) is_strict: bool,
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes").finish_non_exhaustive()
    }
}
