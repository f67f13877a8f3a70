//! A store that remembers final records.

use std::mem::size_of;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lru::LruCache;
use tokio::time::{Instant, timeout};

use crate::protocol::clock::{Clock, EpochMillis, SystemClock};
use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Final, Found, LAYOUT, Record, RecordWrite, Status, StoredOutcome};
use crate::protocol::{transition, transition_to_final};
use crate::store;
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, Store, StoreError};

#[cfg(test)]
mod tests;

/// The number of bytes that the records may take, unless [`CachedStore::max_bytes`] says otherwise.
const MAX_BYTES: usize = 4 * 1_024 * 1_024;

/// The longest that answers from memory are held back for those of the inner store: a slow store takes less.
const PATIENCE: Duration = Duration::from_secs(2);

/// Remembers the final records of another store: a duplicate that this process has met before costs
/// no request.
///
/// Put it around a store where bursts of duplicates reach the same process: redelivered batches,
/// clients that retry in a loop. It saves requests, never safety: a claim is always written to the
/// store, and what is remembered is decided upon as if the store had answered it. So another
/// payload is still a mismatch, and an expired outcome is still absent.
///
/// - Remembered: completed and failed records, of this crate's layout, whether this process
///   completed them or met them. They never change until they expire. Never answered from memory: a
///   claim, a release, anything in progress.
/// - Forgotten: the least recently used, when the bound is reached; a record when it expires, by this
///   process's clock and without the skew margin, before any other process may take it over;
///   everything when the process ends.
/// - Not seen: what an operator, or another library, changes or deletes in the store before it
///   expires; a failure, say, that is to be tried again after a fix. Processes that remember it go
///   on replaying it; new ones don't.
///
/// ```
/// use lambda_idempotency::store::{CachedStore, MemoryStore};
/// use lambda_idempotency::{Fingerprint, Idempotency, Key};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In a function: around `DynamoDbStore::from_env().await?`.
/// let store = CachedStore::new(MemoryStore::new()).max_bytes(1024 * 1024);
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
pub struct CachedStore {
    inner: Arc<dyn store::DynStore>,
    memory: Arc<Mutex<Memory>>,
    clock: Arc<dyn Clock>,
}

impl CachedStore {
    /// Makes a cached store around this one. Its records take up to 4 MiB.
    pub fn new(inner: impl Store) -> Self {
        Self {
            inner: Arc::new(inner),
            memory: Arc::new(Mutex::new(Memory::new(MAX_BYTES))),
            clock: Arc::new(SystemClock),
        }
    }

    /// Sets how many bytes the records may take: ids, outcomes and all the rest, which is about 600
    /// bytes for each record. Default: 4 MiB.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        lock(&self.memory).max_bytes = bytes;
        self
    }

    /// Sets the clock: give it the engine's. Default: the machine's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the final record of this id, which no process may have taken over. After its
    /// deadline a call is for the store to refuse.
    fn remembered(&self, id: &RecordId, deadline: Instant) -> Option<Found> {
        if Instant::now() >= deadline {
            return None;
        }
        let now = self.clock.now();
        lock(&self.memory).outcome(id, now).map(Found::readable)
    }

    /// Returns the final record that a claim would meet.
    fn in_the_way(&self, write: &RecordWrite, deadline: Instant) -> Option<Found> {
        match write {
            RecordWrite::Create(claim) => self.remembered(&claim.id, deadline),
            _ => None,
        }
    }

    /// Remembers a record that was met, if it is final. Another library's is not believed to stay.
    fn met(&self, id: &RecordId, found: Option<&Found>) {
        if let Some(record) = found.and_then(Found::record)
            && record.status != Status::InProgress
            && record.layout == Some(LAYOUT)
        {
            lock(&self.memory).put(id, record.clone());
        }
    }

    /// Notes the record that a write left. A process's own claim is remembered until it ends, since
    /// its outcome is the claim's record, completed.
    fn written(&self, write: &RecordWrite, answer: &Result<Answer, StoreError>) {
        let id = write.id();
        let mut memory = lock(&self.memory);
        match answer {
            Ok(Answer::Applied(shown)) => {
                let shown = shown.as_ref().and_then(Found::record);
                let left = match (shown, write) {
                    (Some(record), _) => Some(record.clone()),
                    (None, RecordWrite::Create(_)) => transition(None, write),
                    (None, _) => transition(memory.claim(id), write),
                };
                match left.filter(|record| !record.is_released()) {
                    Some(record) => memory.put(id, record),
                    None => memory.forget(id),
                }
            }
            Ok(Answer::Refused(found)) => {
                // The remembered record had expired, or the takeover would not have been tried.
                if matches!(write, RecordWrite::TakeOver { .. }) {
                    memory.forget(id);
                }
                drop(memory);
                self.met(id, found.as_ref());
            }
            // It will be sent again.
            Err(_) if matches!(write, RecordWrite::Complete(_)) => {}
            Err(_) => memory.forget(id),
        }
    }

    fn committed(&self, record: &Final, answer: &Committed) {
        let id = &record.completion.id;
        match answer {
            Committed::Applied => {
                let mut memory = lock(&self.memory);
                // The parts that a takeover keeps are not known here.
                let claim = memory.claim(id).filter(|_| record.claim.is_none());
                match transition_to_final(claim, record) {
                    Some(left) => memory.put(id, left),
                    None => memory.forget(id),
                }
            }
            Committed::Fenced(found) => self.met(id, found.as_ref()),
            Committed::Refused(_) => {}
        }
    }
}

impl Store for CachedStore {
    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }

    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        if let Some(found) = self.in_the_way(write, deadline) {
            return Ok(Answer::Refused(Some(found)));
        }
        let answer = self.inner.write(write, deadline).await;
        self.written(write, &answer);
        answer
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        if let Some(found) = self.remembered(id, deadline) {
            return Ok(Some(found));
        }
        let found = self.inner.load(id, deadline).await?;
        self.met(id, found.as_ref());
        Ok(found)
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let known = writes.iter().map(|write| self.in_the_way(write, deadline));
        let (known, rest) = split(writes, known.collect());
        let call = self.inner.write_all(&rest, deadline);
        let left = || StoreError::NotSent.uncertain();
        let answers = answers(known.len(), rest.len(), call, left).await;
        for (write, answer) in rest.iter().zip(&answers) {
            self.written(write, answer);
        }
        weave(known, answers, |found| Answer::Refused(Some(found)))
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        let known = ids.iter().map(|id| self.remembered(id, deadline));
        let (known, rest) = split(ids, known.collect());
        let call = self.inner.load_all(&rest, deadline);
        let answers = answers(known.len(), rest.len(), call, || StoreError::NotSent).await;
        for (id, answer) in rest.iter().zip(&answers) {
            if let Ok(found) = answer {
                self.met(id, found.as_ref());
            }
        }
        weave(known, answers, Some)
    }

    fn max_id_bytes(&self) -> usize {
        self.inner.max_id_bytes()
    }

    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    fn honours_tokens(&self) -> bool {
        self.inner.honours_tokens()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        if let Some(claim) = commit.record.and_then(|record| record.claim.as_ref())
            && let Some(found) = self.in_the_way(claim, deadline)
        {
            return Ok(Committed::Fenced(Some(found)));
        }
        let answer = self.inner.commit(commit, deadline).await?;
        if let Some(record) = commit.record {
            self.committed(record, &answer);
        }
        Ok(answer)
    }

    /// Passes an outcome on, and does not remember it: it is large.
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
}

/// Splits off the requests for which no record is remembered.
fn split<R: Clone>(requests: &[R], known: Vec<Option<Found>>) -> (Vec<Option<Found>>, Vec<R>) {
    let unknown = requests.iter().zip(&known);
    let rest = unknown.filter(|(_, known)| known.is_none());
    let rest = rest.map(|(request, _)| request.clone()).collect();
    (known, rest)
}

/// Awaits the inner store's answers. If some requests were answered from memory, gives up after
/// [`PATIENCE`] and answers the rest with `left`.
async fn answers<A>(
    all: usize,
    rest: usize,
    call: BoxFuture<'_, Vec<Result<A, StoreError>>>,
    left: fn() -> StoreError,
) -> Vec<Result<A, StoreError>> {
    if rest == 0 {
        return Vec::new();
    }
    if rest == all {
        return call.await;
    }
    let answers = timeout(PATIENCE, call).await;
    answers.unwrap_or_else(|_| (0..rest).map(|_| Err(left())).collect())
}

/// Merges the answers to all requests, in their order.
fn weave<A>(
    known: Vec<Option<Found>>,
    answers: Vec<Result<A, StoreError>>,
    answer: impl Fn(Found) -> A,
) -> Vec<Result<A, StoreError>> {
    let mut answers = answers.into_iter();
    let next = |known| match known {
        Some(found) => Some(Ok(answer(found))),
        None => answers.next(),
    };
    known.into_iter().map_while(next).collect()
}

/// The bytes that an entry takes besides strings: id, record, 56 for its place in the map and in the order
/// of use, 72 for the headers of shared strings, and 16 for each of six allocations.
const OVERHEAD: usize = size_of::<RecordId>() + size_of::<Record>() + 224;

#[derive(Debug)]
struct Memory {
    max_bytes: usize,
    /// Final records, and this process's own claims: a claim answers no request, but the record
    /// that its completion leaves is made from it.
    entries: LruCache<RecordId, Record>,
    bytes: usize,
}

impl Memory {
    fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            entries: LruCache::unbounded(),
            bytes: 0,
        }
    }

    /// Returns the final record of this id, while no other process may have taken it over: its
    /// expiration comes before the skew margin, and a takeover after it.
    fn outcome(&mut self, id: &RecordId, now: EpochMillis) -> Option<Record> {
        let record = self.entries.get(id)?;
        if record.status == Status::InProgress {
            return None;
        }
        if now < record.expiration.to_millis() {
            return Some(record.clone());
        }
        self.forget(id);
        None
    }

    /// Returns the claim of this id, where one is remembered.
    fn claim(&self, id: &RecordId) -> Option<&Record> {
        let record = self.entries.peek(id)?;
        (record.status == Status::InProgress).then_some(record)
    }

    fn forget(&mut self, id: &RecordId) {
        if let Some(record) = self.entries.pop(id) {
            self.bytes = self.bytes.saturating_sub(size(id, &record));
        }
    }

    fn put(&mut self, id: &RecordId, record: Record) {
        self.forget(id);
        let size = size(id, &record);
        // It would drive out everything else, and then not fit.
        if size > self.max_bytes {
            return;
        }
        self.bytes += size;
        self.entries.put(id.clone(), record);
        while self.bytes > self.max_bytes {
            let Some((id, record)) = self.entries.pop_lru() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(self::size(&id, &record));
        }
    }
}

/// Tells how many bytes an entry takes.
fn size(id: &RecordId, record: &Record) -> usize {
    let outcome = match &record.outcome {
        Some(StoredOutcome::Inline(text)) => text.len(),
        Some(StoredOutcome::Packed(packed)) => packed.size(),
        _ => 0,
    };
    let owner = record
        .owner
        .as_ref()
        .map_or(0, |owner| owner.as_str().len());
    let fingerprint = record
        .fingerprint
        .as_ref()
        .map_or(0, |print| print.as_str().len());
    let last_error = record.last_error.as_ref().map_or(0, String::len);
    let texts = id.as_str().len() + id.hash().len() + outcome + owner + fingerprint + last_error;
    OVERHEAD + texts + record.journal.size()
}
