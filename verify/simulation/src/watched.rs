//! The table, with somebody who writes down each change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lambda_idempotency::RecordId;
use lambda_idempotency::StoreError;
use lambda_idempotency::protocol::packed::{LargeOutcome, Place};
use lambda_idempotency::protocol::record::{
    Ended, Found, Intervention, Owner, Record, RecordWrite, Takeover,
};
use lambda_idempotency::store::transaction::{Commit, Committed, Write, WriteError};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use tokio::time::Instant;

use crate::broken::{Mutation, fences_off};
use crate::operator::Act;
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
    /// The owner that sent it; `None` for TTL.
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
    /// By an operator.
    Operator(Act),
    Swept,
}

impl Kind {
    fn of(write: &RecordWrite) -> Self {
        match write {
            RecordWrite::Create(_) => Self::Create,
            RecordWrite::TakeOver {
                mode: Takeover::Fresh,
                ..
            } => Self::Replace,
            RecordWrite::TakeOver { .. } => Self::Resume,
            RecordWrite::Complete(_) => Self::Complete,
            RecordWrite::Renew { .. } => Self::Renew,
            RecordWrite::Amend { .. } => Self::Amend,
            RecordWrite::Release(_) => Self::Release,
            RecordWrite::Intervene(intervention) => Self::Operator(act(intervention)),
            other => panic!("a write that nobody watches: {other:?}"),
        }
    }
}

/// Returns the act that an operator wanted: a redaction leaves an outcome, and the others say it in the record's error.
fn act(intervention: &Intervention) -> Act {
    match &intervention.end {
        Ended::Released {
            last_error: Some(error),
        } => Act::of(error),
        _ => Act::Redact,
    }
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
    /// The longest delay of a transaction: a request's signature is refused long before a record expires.
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

    /// Takes the bookings that stand, and the number of times that each other event was reached.
    pub fn take_book(&self) -> (Vec<(i64, Booking)>, BTreeMap<&'static str, u64>) {
        let book = std::mem::take(&mut *self.book());
        (book.entries, book.reached)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("not poisoned")
    }

    pub fn reach(&self, what: &'static str) {
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
}

/// Returns whether it releases a run that was dropped.
fn is_of_a_drop(write: &RecordWrite) -> bool {
    match write {
        RecordWrite::Release(release) => release.last_error.as_deref() == Some("dropped"),
        _ => false,
    }
}

impl Store for Watched {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        if self.mutation.forgets(write) {
            return Ok(Answer::Applied(None));
        }
        self.arrivals().await;
        // Nothing in memory waits, so nobody comes between.
        let before = self.record(write.id()).await;
        let sent = self.mutation.write(write, before.as_ref());
        let answer = self.table.write(&sent, deadline).await?;
        if answer.is_applied() {
            if fences_off(write) {
                self.reach("a key that is fenced off");
            }
            if is_of_a_drop(write) {
                self.reach("a release of a run that was dropped");
            }
            let after = self.record(write.id()).await;
            self.note(
                write.id(),
                Kind::of(write),
                Some(write.owner()),
                before,
                after,
                false,
            );
        }
        Ok(answer)
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.arrivals().await;
        self.table.load(id, deadline).await
    }

    fn admission(&self) -> Option<fn(&[Write], &Write) -> Result<(), WriteError>> {
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
