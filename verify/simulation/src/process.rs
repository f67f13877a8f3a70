//! A process that may die: nothing of it goes on then, whatever tasks it has.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use lambda_idempotency::protocol::packed::{LargeOutcome, Place};
use lambda_idempotency::protocol::record::{Found, RecordWrite};
use lambda_idempotency::store::transaction::{Commit, Committed, Write, WriteError};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::testing::FaultyStore;
use lambda_idempotency::{RecordId, StoreError};
use tokio::time::Instant;

/// The way of one process to the table.
#[derive(Clone, Debug)]
pub struct Process {
    table: FaultyStore,
    died: Arc<AtomicBool>,
}

impl Process {
    /// Another process, on this table.
    pub fn new(table: FaultyStore) -> Self {
        Self {
            table,
            died: Arc::default(),
        }
    }

    pub fn die(&self) {
        self.died.store(true, Ordering::Relaxed);
    }

    fn is_dead(&self) -> bool {
        self.died.load(Ordering::Relaxed)
    }

    /// Does this for as long as the process lives.
    pub async fn alive<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.is_dead() {
                Poll::Pending
            } else {
                work.as_mut().poll(context)
            }
        })
        .await
    }

    /// Sends a call: once sent, it arrives, and a dead process hears of no answer.
    async fn send<T>(&self, call: impl Future<Output = T>) -> T {
        if self.is_dead() {
            return pending().await;
        }
        let answer = call.await;
        if self.is_dead() {
            return pending().await;
        }
        answer
    }
}

impl Store for Process {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.send(self.table.write(write, deadline)).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.send(self.table.load(id, deadline)).await
    }

    fn admission(&self) -> Option<fn(&[Write], &Write) -> Result<(), WriteError>> {
        self.table.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        self.send(self.table.commit(commit, deadline)).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.send(self.table.keep(outcome, deadline)).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.send(self.table.fetch(id, place, deadline)).await
    }
}
