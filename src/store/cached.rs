//! A store with a memory of what is final.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};
use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};
use crate::record::{
    Amendment, Completion, Found, LAYOUT, NewClaim, Record, Release, Renewal, Status, Takeover,
    Version,
};
use crate::store::{Answer, Store};
use crate::transaction::{Admission, Basis, Commit, Committed, Final};

mod groups;
mod shelf;

use shelf::Shelf;

/// How many records it remembers, unless [`CachedStore::max_entries`] says otherwise.
const MAX_ENTRIES: usize = 1_000;

/// How many bytes they take, unless [`CachedStore::max_bytes`] says otherwise.
const MAX_BYTES: usize = 4 * 1_024 * 1_024;

/// Another store, and a memory of the records that are final: a duplicate that this process has met before costs no request.
///
/// Put it around a store where bursts of duplicates reach the same process: redelivered batches, clients that retry in a
/// loop. It saves requests, never safety: a claim is always written to the store, and what is remembered is decided upon as if
/// the store had answered it. So another payload is still a mismatch, and an expired outcome is still absent.
///
/// - Remembered: completed and failed records, of this crate's layout, whether this process completed them or met them. They
///   never change until they expire. Never answered from memory: a claim, a release, anything in progress.
/// - Forgotten: the least recently used, when a bound is reached; a record when it expires, by this process's clock and without
///   the skew margin, before any other process may take it over; everything when the process ends.
/// - Not seen: what a person, or another library, changes or deletes in the table before it expires; a failure, say, that is to
///   be tried again after a fix. Processes that remember it go on replaying it; new ones don't.
///
/// ```
/// use lambda_idempotency::store::{CachedStore, MemoryStore};
/// use lambda_idempotency::{Fingerprint, Idempotency, Key};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In a function: around `DynamoDbStore::from_env().await?`.
/// let store = CachedStore::new(MemoryStore::new()).max_entries(500).max_bytes(1024 * 1024);
/// let once = Idempotency::builder(store).namespace("payments").build()?;
/// let charge = || once.run(Key::new("charge", "1"), Fingerprint::json(b"{}"), |_| async { Ok::<_, std::io::Error>(7) });
///
/// charge().await?; // two requests
/// assert!(charge().await?.is_replayed()); // none
/// # Ok(()) }
/// ```
///
/// Clones share their memory.
#[derive(Clone, Debug)]
pub struct CachedStore<S> {
    inner: S,
    shelf: Arc<Mutex<Shelf>>,
    clock: Arc<dyn Clock>,
}

impl<S> CachedStore<S> {
    /// Around this store. It remembers up to 1,000 records in up to 4 MiB.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            shelf: Arc::new(Mutex::new(Shelf::new(MAX_ENTRIES, MAX_BYTES))),
            clock: Arc::new(SystemClock),
        }
    }

    /// How many records are remembered. Default: 1,000.
    #[must_use]
    pub fn max_entries(self, entries: usize) -> Self {
        self.shelf().max_entries = entries;
        self
    }

    /// How many bytes they may take: ids, outcomes and all the rest, with what it takes to keep them in order. Default: 4 MiB.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.shelf().max_bytes = bytes;
        self
    }

    /// Where the time comes from: give it the clock that the engine has. Default: the machine's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The store behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// A panic elsewhere can't leave it in disorder: nothing that it calls panics.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of a final record that nobody may have taken over. After its deadline a call is for the store to
    /// refuse.
    fn remembered(&self, id: &RecordId, deadline: Instant) -> Option<Found> {
        if Instant::now() >= deadline {
            return None;
        }
        let now = self.clock.now();
        self.shelf().outcome(id, now).map(Found::readable)
    }

    /// Remembers a record that was met, if it is final. Another library's is not believed to stay.
    fn met(&self, id: &RecordId, found: Option<&Found>) {
        if let Some(Ok(record)) = found.map(|found| &found.content)
            && record.status != Status::InProgress
            && record.layout == Some(LAYOUT)
        {
            self.shelf().put_outcome(id, record.as_ref().clone());
        }
    }

    fn created(&self, claim: &NewClaim, answer: &Result<Answer, StoreError>) {
        match answer {
            Ok(Answer::Applied(())) => self.shelf().put_claim(&claim.id, Record::claimed(claim)),
            Ok(Answer::Refused(found)) => self.met(&claim.id, found.as_ref()),
            Err(_) => {}
        }
    }

    fn completed(&self, completion: &Completion, answer: &Result<Answer, StoreError>) {
        match answer {
            Ok(Answer::Applied(())) => {
                let mut memory = self.shelf();
                if let Some(mut record) = memory.take_claim(&completion.id, &completion.owner) {
                    record.complete(completion);
                    memory.put_outcome(&completion.id, record);
                }
            }
            Ok(Answer::Refused(found)) => self.met(&completion.id, found.as_ref()),
            // It will be sent again, or it is lost.
            Err(_) => {}
        }
    }

    fn committed(&self, written: &Final, answer: &Committed) {
        let completion = &written.completion;
        match (answer, &written.basis) {
            (Committed::Applied, Basis::Claimed) => {
                self.completed(completion, &Ok(Answer::Applied(())));
            }
            (Committed::Applied, Basis::Absent(claim)) => {
                let mut record = Record::claimed(claim);
                record.complete(completion);
                self.shelf().put_outcome(&completion.id, record);
            }
            // It may have kept something that isn't known here.
            (Committed::Applied, Basis::Version { .. }) => self.shelf().forget(&completion.id),
            (Committed::Fenced(found), _) => self.met(&completion.id, found.as_ref()),
            (Committed::Refused(_), _) => {}
        }
    }

    fn released(&self, release: &Release, answer: &Result<Answer, StoreError>) {
        match answer {
            Ok(Answer::Refused(found)) => self.met(&release.id, found.as_ref()),
            _ => drop(self.shelf().take_claim(&release.id, &release.owner)),
        }
    }
}

impl<S: Store> Store for CachedStore<S> {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        if let Some(found) = self.remembered(&claim.id, deadline) {
            return Ok(Answer::Refused(Some(found)));
        }
        let answer = self.inner.create(claim, deadline).await;
        self.created(claim, &answer);
        answer
    }

    /// Whoever takes over believes the record to have ended; what is remembered of it has ended, too.
    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        self.shelf().forget(&claim.id);
        let answer = self.inner.take_over(seen, claim, mode, deadline).await?;
        match &answer {
            Answer::Applied(Found {
                content: Ok(record),
                ..
            }) => self.shelf().put_claim(&claim.id, record.as_ref().clone()),
            Answer::Applied(_) => {}
            Answer::Refused(found) => self.met(&claim.id, found.as_ref()),
        }
        Ok(answer)
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = self.inner.complete(completion, deadline).await;
        self.completed(completion, &answer);
        answer
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        // Lease and expiration alone: a completion writes both anew.
        self.inner.renew(renewal, deadline).await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        drop(self.shelf().take_claim(&amendment.id, &amendment.owner));
        self.inner.amend(amendment, deadline).await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        let answer = self.inner.release(release, deadline).await;
        self.released(release, &answer);
        answer
    }

    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        if let Some(Final {
            basis: Basis::Absent(claim),
            ..
        }) = commit.record
            && let Some(found) = self.remembered(&claim.id, deadline)
        {
            return Ok(Committed::Fenced(Some(found)));
        }
        let answer = self.inner.commit(commit, deadline).await?;
        if let Some(record) = commit.record {
            self.committed(record, &answer);
        }
        Ok(answer)
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        if let Some(found) = self.remembered(id, deadline) {
            return Ok(Some(found));
        }
        let found = self.inner.load(id, deadline).await?;
        self.met(id, found.as_ref());
        Ok(found)
    }

    /// Not remembered: it is large.
    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.inner.keep(outcome, deadline).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.fetch(id, place, deadline).await
    }

    async fn create_all(
        &self,
        claims: &[NewClaim],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        self.create_group(claims, deadline).await
    }

    async fn complete_all(
        &self,
        completions: &[Completion],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        self.complete_group(completions, deadline).await
    }

    async fn release_all(
        &self,
        releases: &[Release],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        self.release_group(releases, deadline).await
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        self.load_group(ids, deadline).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn by_default_a_thousand_records_are_remembered_in_four_mebibytes() {
        let store = CachedStore::new(MemoryStore::new());
        assert_eq!(store.shelf().max_entries, 1_000);
        assert_eq!(store.shelf().max_bytes, 4 * 1_024 * 1_024);
        let smaller = store.max_entries(7).max_bytes(70);
        assert_eq!(smaller.shelf().max_entries, 7);
        assert_eq!(smaller.shelf().max_bytes, 70);
    }
}
