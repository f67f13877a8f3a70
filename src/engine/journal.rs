//! Writes the notes of steps into the record.

use crate::engine::pace::Turns;
use crate::engine::persist::{is_rejected_for_now, persist};
use crate::engine::{Engine, LEAST_STORE_TIME};
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::RecordWrite;
use crate::store::{Answer, StoreError};

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

impl Engine {
    /// Writes a note under the fence. `until` is when the attempt must be done.
    pub(super) async fn write_note(
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
            // What the SDK does not retry. A store that can't be reached is not asked again: the
            // caller gets the error.
            Urgency::Begin | Urgency::Tell => is_rejected_for_now(error),
        };
        let turns = Turns::End(&self.pace, amendment.id());
        let send = || self.store.write(amendment, deadline);
        // Boxed, so that a step's future, which the handler holds, stays small.
        Box::pin(persist(turns, deadline, again, send)).await
    }
}
