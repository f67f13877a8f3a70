//! Where the notes of steps go.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::clock::EpochMillis;
use crate::error::StoreError;
use crate::record::Amendment;
use crate::store::Answer;

/// What writes the journal, whatever store is behind it: a claim isn't generic.
pub(crate) trait Scribe: Send + Sync {
    /// Writes a note under the fence. `until` is when the attempt must be done.
    fn note<'a>(
        &'a self,
        amendment: &'a Amendment,
        until: EpochMillis,
        urgency: Urgency,
    ) -> BoxFuture<'a, Result<Answer, StoreError>>;
}

/// How hard to try to write a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Nothing has happened yet.
    Begin,
    /// An effect happened, and a takeover would repeat it.
    Confirm,
    /// It would be good to know.
    Tell,
}

/// Where notes go.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) scribe: Arc<dyn Scribe>,
    /// Whether a result that could not be recorded is an error.
    pub(crate) reports_unrecorded: bool,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}
