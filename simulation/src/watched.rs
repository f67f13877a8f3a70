//! The table, with somebody who writes down each change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lambda_idempotency::RecordId;
use lambda_idempotency::StoreError;
use lambda_idempotency::packed::{LargeOutcome, Place};
use lambda_idempotency::record::{
    Amendment, Completion, Found, NewClaim, Owner, Record, Release, Renewal, Takeover, Version,
};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::transaction::{Admission, Commit, Committed};
use tokio::time::Instant;

use crate::broken::Mutation;
use crate::scenario::Scenario;
use crate::world::World;

mod transactions;

use transactions::Book;
pub use transactions::Booking;

/// A write that applied.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: i64,
    pub id: RecordId,
    pub kind: Kind,
    /// Who sent it; `None` for TTL.
    pub by: Option<Owner>,
    pub before: Option<Record>,
    pub after: Option<Record>,
    /// Whether it is a transaction that arrived when nobody waited for its answer any more.
    pub late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Create,
    /// A takeover of what had expired.
    Replace,
    /// A takeover of what was released, or crashed.
    Resume,
    Complete,
    /// A completion with business writes, under the fence or in the claimless form.
    Commit,
    Renew,
    Amend,
    Release,
    Swept,
}

#[derive(Clone, Debug)]
pub struct Watched {
    table: MemoryStore,
    world: World,
    mutation: Mutation,
    book: Arc<Mutex<Book>>,
    dice: Arc<Mutex<fastrand::Rng>>,
    trouble: f64,
    season: i64,
    /// So late may a transaction be: a request's signature is refused long before a record expires.
    latest: i64,
    changes: Arc<Mutex<Vec<Change>>>,
}

impl Watched {
    pub fn new(world: World, mutation: Mutation, seed: u64, scenario: &Scenario) -> Self {
        Self {
            table: MemoryStore::new(),
            world,
            mutation,
            book: Arc::default(),
            dice: Arc::new(Mutex::new(fastrand::Rng::with_seed(!seed))),
            trouble: scenario.trouble,
            season: scenario.season,
            latest: scenario.retention.min(scenario.failure_retention),
            changes: Arc::default(),
        }
    }

    /// Every change, once.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut *self.changes.lock().expect("not poisoned"))
    }

    /// The bookings that stand, and what else was reached, once.
    pub fn take_book(&self) -> (Vec<(i64, Booking)>, BTreeMap<&'static str, u64>) {
        let book = std::mem::take(&mut *self.book());
        (book.entries, book.reached)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("not poisoned")
    }

    fn reach(&self, what: &'static str) {
        *self.book().reached.entry(what).or_default() += 1;
    }

    pub async fn record(&self, id: &RecordId) -> Option<Record> {
        let far = Instant::now() + std::time::Duration::from_secs(1);
        let found = self.table.load(id, far).await.expect("a table in memory");
        found.map(|found| *found.content.expect("a record that this crate wrote"))
    }

    /// TTL comes by.
    pub async fn sweep(&self, ids: &[RecordId]) {
        let mut before = Vec::new();
        for id in ids {
            before.push(self.record(id).await);
        }
        self.table
            .sweep(lambda_idempotency::EpochMillis(self.world.now()));
        for (id, before) in ids.iter().zip(before) {
            if before.is_some() && self.record(id).await.is_none() {
                self.note(id, Kind::Swept, None, before, None, false);
            }
        }
    }

    fn note(
        &self,
        id: &RecordId,
        kind: Kind,
        by: Option<&Owner>,
        before: Option<Record>,
        after: Option<Record>,
        late: bool,
    ) {
        self.changes.lock().expect("not poisoned").push(Change {
            at: self.world.now(),
            id: id.clone(),
            kind,
            by: by.cloned(),
            before,
            after,
            late,
        });
    }

    async fn watch<T>(
        &self,
        id: &RecordId,
        kind: Kind,
        by: &Owner,
        write: impl Future<Output = Result<Answer<T>, StoreError>>,
    ) -> Result<Answer<T>, StoreError> {
        self.arrivals().await;
        // Nothing in memory waits, so nobody comes between.
        let before = self.record(id).await;
        let answer = write.await?;
        if matches!(answer, Answer::Applied(_)) {
            let after = self.record(id).await;
            self.note(id, kind, Some(by), before, after, false);
        }
        Ok(answer)
    }
}

impl Store for Watched {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        let sent = self.mutation.claim(claim);
        let write = self.table.create(&sent, deadline);
        self.watch(&claim.id, Kind::Create, &claim.owner, write)
            .await
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let kind = match mode {
            Takeover::Fresh => Kind::Replace,
            _ => Kind::Resume,
        };
        let current = self.record(&claim.id).await;
        let (seen, sent) = self.mutation.takeover(seen, claim, current.as_ref());
        let mode = match self.mutation {
            Mutation::JournalForgotten => Takeover::Fresh,
            _ => mode,
        };
        let write = self.table.take_over(&seen, &sent, mode, deadline);
        self.watch(&claim.id, kind, &claim.owner, write).await
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        if self.mutation == Mutation::CompletionForgotten {
            return Ok(Answer::Applied(()));
        }
        let current = self.record(&completion.id).await;
        let sent = self.mutation.completion(completion, current.as_ref());
        let write = self.table.complete(&sent, deadline);
        self.watch(&completion.id, Kind::Complete, &completion.owner, write)
            .await
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        let write = self.table.renew(renewal, deadline);
        self.watch(&renewal.id, Kind::Renew, &renewal.owner, write)
            .await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        let write = self.table.amend(amendment, deadline);
        self.watch(&amendment.id, Kind::Amend, &amendment.owner, write)
            .await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        let current = self.record(&release.id).await;
        let sent = self.mutation.release(release, current.as_ref());
        let write = self.table.release(&sent, deadline);
        self.watch(&release.id, Kind::Release, &release.owner, write)
            .await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.arrivals().await;
        self.table.load(id, deadline).await
    }

    fn admission(&self) -> Option<Admission> {
        Some(|_, _| Ok(()))
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::Timeout);
        }
        self.arrivals().await;
        self.carry(commit, deadline).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.table.keep(outcome, deadline).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.table.fetch(id, place, deadline).await
    }
}
