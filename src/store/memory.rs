//! A store within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::clock::{EpochMillis, EpochSeconds};
use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};
use crate::record::{
    Amendment, Completion, Found, NewClaim, Owner, Record, Release, Renewal, Takeover, Version,
};
use crate::store::{Answer, Store, transition};

/// Records in the memory of one process: for unit tests, and for work that never leaves the process.
///
/// It forgets everything on restart and knows nothing of other processes, so it protects nothing that several Lambda
/// environments share. Clones share their records. Expired records stay until [`sweep`](Self::sweep) is called.
///
/// ```
/// use lambda_idempotency::{Idempotency, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("tests").build()?;
/// # Ok::<(), lambda_idempotency::KeyError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    records: Arc<Mutex<HashMap<RecordId, Record>>>,
    outcomes: Arc<Mutex<HashMap<(RecordId, Owner), LargeOutcome>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many records it holds, expired ones among them.
    pub fn len(&self) -> usize {
        self.records().len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    /// Removes what expired before `now`, as DynamoDB's TTL would.
    pub fn sweep(&self, now: EpochMillis) {
        let now = EpochSeconds(now.0.div_euclid(1_000));
        self.records().retain(|_, record| record.expiration >= now);
        self.outcomes()
            .retain(|_, outcome| outcome.expiration >= now);
    }

    /// A panic elsewhere can't leave a record half-written: each change below is one assignment.
    fn records(&self) -> MutexGuard<'_, HashMap<RecordId, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> MutexGuard<'_, HashMap<(RecordId, Owner), LargeOutcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what `transition` makes of the record, if it makes anything.
    fn write(
        &self,
        id: &RecordId,
        deadline: Instant,
        transition: impl FnOnce(Option<&Record>) -> Option<Record>,
    ) -> Result<Answer<Found>, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::Timeout);
        }
        let mut records = self.records();
        let met = records.get(id);
        let Some(record) = transition(met) else {
            return Ok(Answer::Refused(met.cloned().map(Found::readable)));
        };
        records.insert(id.clone(), record.clone());
        Ok(Answer::Applied(Found::readable(record)))
    }
}

fn in_time(deadline: Instant) -> Result<(), StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::Timeout);
    }
    Ok(())
}

impl Store for MemoryStore {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        let write = |met: Option<&_>| transition::create(met, claim);
        self.write(&claim.id, deadline, write)
            .map(|answer| answer.map(drop))
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let write = |met: Option<&_>| transition::take_over(met, seen, claim, mode);
        self.write(&claim.id, deadline, write)
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let write = |met: Option<&_>| transition::complete(met, completion);
        self.write(&completion.id, deadline, write)
            .map(|answer| answer.map(drop))
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        let write = |met: Option<&_>| transition::renew(met, renewal);
        self.write(&renewal.id, deadline, write)
            .map(|answer| answer.map(drop))
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        let write = |met: Option<&_>| transition::amend(met, amendment);
        self.write(&amendment.id, deadline, write)
            .map(|answer| answer.map(drop))
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        let write = |met: Option<&_>| transition::release(met, release);
        self.write(&release.id, deadline, write)
            .map(|answer| answer.map(drop))
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        in_time(deadline)?;
        Ok(self.records().get(id).cloned().map(Found::readable))
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        in_time(deadline)?;
        let name = (outcome.id.clone(), outcome.owner.clone());
        self.outcomes().insert(name, outcome.clone());
        Ok(Place::Item(outcome.owner.clone()))
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        in_time(deadline)?;
        let Place::Item(owner) = place else {
            return Ok(None);
        };
        let name = (id.clone(), owner.clone());
        let found = self.outcomes().get(&name).map(|kept| kept.content.clone());
        Ok(found)
    }
}
