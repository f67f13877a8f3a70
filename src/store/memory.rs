//! A store that keeps its records within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, Owner, Record, RecordWrite};
use crate::protocol::transition;
use crate::store::{Answer, Store, StoreError};

/// Keeps records in the memory of one process: for unit tests, and for work that never leaves the
/// process.
///
/// It forgets everything on restart and knows nothing of other processes, so it protects nothing
/// that several Lambda environments share. Clones share their records. Expired records stay until
/// [`sweep`](Self::sweep) is called.
///
/// ```
/// use lambda_idempotency::{Idempotency, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("tests").build()?;
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    records: Arc<Mutex<HashMap<RecordId, Record>>>,
    outcomes: Arc<Mutex<HashMap<(RecordId, Owner), LargeOutcome>>>,
}

impl MemoryStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether it holds no record, not even an expired one.
    pub fn is_empty(&self) -> bool {
        lock(&self.records).is_empty()
    }

    /// Returns the number of records.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.records).len()
    }

    /// Removes what expired before `now`, as a store's own sweep would.
    pub fn sweep(&self, now: EpochMillis) {
        let now = EpochSeconds(now.0.div_euclid(1_000));
        lock(&self.records).retain(|_, record| record.expiration >= now);
        lock(&self.outcomes).retain(|_, outcome| outcome.expiration >= now);
    }
}

fn in_time(deadline: Instant) -> Result<(), StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::NotSent);
    }
    Ok(())
}

impl Store for MemoryStore {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        in_time(deadline)?;
        let mut records = lock(&self.records);
        let met = records.get(write.id());
        let Some(record) = transition(met, write) else {
            return Ok(Answer::Refused(met.cloned().map(Found::readable)));
        };
        records.insert(write.id().clone(), record.clone());
        Ok(Answer::Applied(Some(Found::readable(record))))
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        in_time(deadline)?;
        Ok(lock(&self.records).get(id).cloned().map(Found::readable))
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        in_time(deadline)?;
        let name = (outcome.id.clone(), outcome.owner.clone());
        lock(&self.outcomes).insert(name, outcome.clone());
        Ok(Place::Entry(outcome.owner.clone()))
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        in_time(deadline)?;
        let Place::Entry(owner) = place else {
            return Ok(None);
        };
        let name = (id.clone(), owner.clone());
        let outcomes = lock(&self.outcomes);
        Ok(outcomes.get(&name).map(|kept| kept.content.clone()))
    }
}
