//! A store within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::clock::{EpochMillis, EpochSeconds};
use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};
use crate::record::{
    Amendment, Completion, Found, NewClaim, Owner, RELEASED, Record, Release, Renewal, Status,
    Takeover, Version,
};
use crate::store::{Answer, Store};

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

    /// Applies `change` to the record, if it is in progress and held by the owner and `condition` holds.
    fn fenced(
        &self,
        id: &RecordId,
        owner: &Owner,
        condition: impl FnOnce(&Record) -> bool,
        change: impl FnOnce(&mut Record),
    ) -> Answer {
        match self.records().get_mut(id) {
            Some(record)
                if record.status == Status::InProgress
                    && record.owner.as_ref() == Some(owner)
                    && condition(record) =>
            {
                change(record);
                Answer::Applied(())
            }
            other => Answer::Refused(other.map(|record| Found::readable(record.clone()))),
        }
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
        in_time(deadline)?;
        let mut records = self.records();
        if let Some(record) = records.get(&claim.id) {
            return Ok(Answer::Refused(Some(Found::readable(record.clone()))));
        }
        records.insert(claim.id.clone(), Record::claimed(claim));
        Ok(Answer::Applied(()))
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        in_time(deadline)?;
        let mut records = self.records();
        match records.get_mut(&claim.id) {
            Some(record) if Version::of(record) == *seen => {
                let before = std::mem::replace(record, Record::claimed(claim));
                if mode == Takeover::Resume {
                    record.last_error = before.last_error;
                    record.journal = before.journal;
                }
                Ok(Answer::Applied(Found::readable(record.clone())))
            }
            other => Ok(Answer::Refused(
                other.map(|record| Found::readable(record.clone())),
            )),
        }
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        in_time(deadline)?;
        let always = |_: &Record| true;
        Ok(
            self.fenced(&completion.id, &completion.owner, always, |record| {
                record.complete(completion);
            }),
        )
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        in_time(deadline)?;
        let shorter = |record: &Record| record.lease.is_some_and(|lease| lease < renewal.lease);
        Ok(self.fenced(&renewal.id, &renewal.owner, shorter, |record| {
            record.lease = Some(renewal.lease);
            record.expiration = renewal.expiration;
        }))
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        in_time(deadline)?;
        let newer = |record: &Record| {
            let step = amendment.step.as_ref();
            step.is_none_or(|note| record.journal.takes(note))
        };
        Ok(
            self.fenced(&amendment.id, &amendment.owner, newer, |record| {
                if let Some(kind) = &amendment.last_error {
                    record.last_error = Some(kind.clone());
                }
                if let Some(note) = &amendment.step {
                    record.journal.put(note.clone());
                }
            }),
        )
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        in_time(deadline)?;
        let always = |_: &Record| true;
        Ok(self.fenced(&release.id, &release.owner, always, |record| {
            record.owner = Some(release.tombstone.clone());
            record.lease = Some(RELEASED);
            if let Some(kind) = &release.last_error {
                record.last_error = Some(kind.clone());
            }
            if release.forget_fingerprint {
                record.fingerprint = None;
            }
        }))
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
