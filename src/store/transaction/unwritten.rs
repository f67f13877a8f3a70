//! The record of a run without a claim, which its transaction writes.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::clock::{Clock, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::RecordId;
use crate::protocol::record::{Found, Owner};
use crate::protocol::{Asking, Decision, Rules, decide};

/// The record of a run in the claimless form, as a store with open transactions sees it while the
/// handler runs: [`Claim::unwritten`](crate::Claim::unwritten) gives it.
///
/// Such a store puts the record's id into the transaction that it opens for the handler, before the
/// handler's own statements. Where another record is in its place, the store tells it to
/// [`meet`](Self::meet).
pub struct Unwritten {
    pub(crate) id: RecordId,
    pub(crate) owner: Owner,
    pub(crate) expiration: EpochSeconds,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) rules: Rules,
    pub(crate) wait: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) met: Mutex<Option<Found>>,
    /// Of the keys that the record lets the handler derive, as far as it is known.
    pub(crate) generation: AtomicU32,
}

impl Unwritten {
    /// Returns the id of the record.
    pub fn id(&self) -> &RecordId {
        &self.id
    }

    /// Returns the owner that the record will have.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the expiration that the record will have if it is completed in this second.
    pub fn expiration(&self) -> EpochSeconds {
        self.expiration
    }

    /// Returns the time for which the run may wait for another one of the same key:
    /// [`InFlight`](crate::InFlight) says so. Zero where it must not.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Notes the record that the transaction met in the place of its own, and tells whether the
    /// handler may go on: it may where the record has expired, or was released.
    ///
    /// Where it may not, the handler's result doesn't count: the run ends with what the record says,
    /// the outcome of an earlier run or an obstacle.
    #[must_use = "the handler must not go on where this is false"]
    pub fn meet(&self, found: Found) -> bool {
        let asking = Asking::new(&self.owner, self.fingerprint.as_ref(), self.clock.now());
        let decision = decide(Some(&found), asking, &self.rules);
        let may_go_on = matches!(decision, Decision::Create | Decision::TakeOver { .. });
        let generation = decision.key_generation(Some(&found));
        self.generation.store(generation, Ordering::Relaxed);
        *self.met.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        may_go_on
    }

    pub(crate) fn key_generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Takes the record that was met last.
    pub(crate) fn take_met(&self) -> Option<Found> {
        self.met
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwritten")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
