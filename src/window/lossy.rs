//! A store that has nothing but a window.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::Unit;
use tokio::time::Instant;

use super::{Seen, Window};
use crate::protocol::clock::EpochSeconds;
use crate::protocol::key::RecordId;
use crate::protocol::record::{
    Found, LAYOUT, Omission, Record, RecordWrite, Status, StoredOutcome,
};
use crate::protocol::transition;
use crate::store::{Answer, Store, StoreError};

const LOSSY_DROPS: &str = "idempotency_lossy_drops";
const LOSSY_RATE: &str = "idempotency_lossy_rate";

/// The end of the year 9999: a record of a window never expires, it is forgotten.
const NEVER: EpochSeconds = EpochSeconds(253_402_300_799);

/// A store of nothing but a [`Window`], for work whose loss is harmless. [`Window::lossy`] makes it.
///
/// - A new message whose key the window takes for met is **lost**: its handler never runs. The share of
///   them is at most the one that the store was made with.
/// - A duplicate that comes after `keys` others, that reaches another process, or that comes after a
///   restart, runs again.
/// - A duplicate gets no outcome: `run` returns [`Error::OutcomeOmitted`](crate::Error::OutcomeOmitted),
///   a batch takes the message for done. Another payload under the same key is a duplicate, too.
/// - What failed runs again. Permanent failures are remembered like successes.
///
/// It counts in `idempotency_lossy_drops` the messages that it took for met without being certain, and has
/// the rate that it was made with, in percent, in the gauge `idempotency_lossy_rate`. So the messages that were lost are
/// about `rate × idempotency_executions`; where drops are many more than that, they were duplicates.
///
/// ```
/// use lambda_idempotency::window::Window;
/// use lambda_idempotency::{Error, Idempotency, Key, Outcome};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // One of 10,000 new log lines is lost.
/// let store = Window::lossy(100_000, 0.000_1)?;
/// let once = Idempotency::builder(store).namespace("access-log").build()?;
/// let count = || once.run(Key::new("line", "17"), None, async |_| Ok::<_, std::io::Error>(()));
/// assert!(matches!(count().await, Ok(Outcome::Executed(()))));
/// assert!(matches!(count().await, Err(Error::OutcomeOmitted { .. })));
/// # Ok(()) }
/// ```
///
/// Clones share the window.
#[derive(Clone)]
pub struct LossyStore {
    window: Window,
    /// What runs, and what failed in a way that may pass.
    claims: Arc<Mutex<HashMap<RecordId, Record>>>,
}

/// Shows the number of claims and no key.
impl fmt::Debug for LossyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossyStore")
            .field("window", &self.window)
            .field("claims", &self.claims().len())
            .finish()
    }
}

impl LossyStore {
    pub(super) fn new(window: Window) -> Self {
        metrics::describe_counter!(
            LOSSY_DROPS,
            Unit::Count,
            "messages that were probably duplicates, and may have been new"
        );
        metrics::describe_gauge!(LOSSY_RATE, Unit::Percent, "of new messages that are lost");
        metrics::gauge!(LOSSY_RATE).set(100.0 * window.rate());
        Self {
            window,
            claims: Arc::default(),
        }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<RecordId, Record>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of a record: its claim, or that it was final.
    fn met(&self, claims: &HashMap<RecordId, Record>, id: &RecordId) -> Option<Record> {
        if let Some(claim) = claims.get(id) {
            return Some(claim.clone());
        }
        match self.window.look(id) {
            Seen::No => return None,
            Seen::Probably => metrics::counter!(LOSSY_DROPS).increment(1),
            Seen::Yes => {}
        }
        let mut record = Record::new(Status::Completed, NEVER);
        record.outcome = Some(StoredOutcome::Omitted(Omission::Forgotten));
        record.layout = Some(LAYOUT);
        Some(record)
    }
}

impl Store for LossyStore {
    async fn write(&self, write: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        let mut claims = self.claims();
        let met = self.met(&claims, write.id());
        let Some(record) = transition(met.as_ref(), write) else {
            return Ok(Answer::Refused(met.map(Found::readable)));
        };
        if record.status == Status::InProgress && !record.is_released() {
            claims.insert(write.id().clone(), record.clone());
        } else {
            claims.remove(write.id());
        }
        if record.status != Status::InProgress {
            self.window.insert(write.id());
        }
        Ok(Answer::Applied(Some(Found::readable(record))))
    }

    async fn load(&self, id: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Ok(self.met(&self.claims(), id).map(Found::readable))
    }
}
