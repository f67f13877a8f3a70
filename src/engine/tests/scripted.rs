//! A store in memory, some of whose answers a test replaces.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, RecordWrite};
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, MemoryStore, Store, StoreError};

/// The answers of a store. Each call goes to the table unless a test says otherwise.
pub(super) trait Script: Send + Sync + 'static {
    fn write(
        &self,
        table: &MemoryStore,
        write: &RecordWrite,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        table.write(write, deadline)
    }

    fn load(
        &self,
        table: &MemoryStore,
        id: &RecordId,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Found>, StoreError>> + Send {
        table.load(id, deadline)
    }

    fn keep(
        &self,
        table: &MemoryStore,
        outcome: &LargeOutcome,
        deadline: Instant,
    ) -> impl Future<Output = Result<Place, StoreError>> + Send {
        table.keep(outcome, deadline)
    }

    fn fetch(
        &self,
        table: &MemoryStore,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send {
        table.fetch(id, place, deadline)
    }

    /// The table has no transactions, so a test that commits says what becomes of it.
    fn commit(
        &self,
        table: &MemoryStore,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Committed, StoreError>> + Send {
        table.commit(commit, deadline)
    }
}

type OnWrite = Box<dyn Fn(&RecordWrite) -> Option<Result<Answer, StoreError>> + Send + Sync>;
type OnCommit = Box<dyn Fn() -> Result<Committed, StoreError> + Send + Sync>;

/// Answers of the test's own to some calls. A timeout comes at the deadline.
pub(super) struct Replies {
    write: OnWrite,
    commit: Option<OnCommit>,
}

impl Default for Replies {
    fn default() -> Self {
        Self {
            write: Box::new(|_| None),
            commit: None,
        }
    }
}

impl Replies {
    /// Answers each write that this gives a reply to.
    pub(super) fn on_write(
        self,
        reply: impl Fn(&RecordWrite) -> Option<Result<Answer, StoreError>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            write: Box::new(reply),
            ..self
        }
    }

    /// Answers each commit.
    pub(super) fn on_commit(
        self,
        reply: impl Fn() -> Result<Committed, StoreError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            commit: Some(Box::new(reply)),
            ..self
        }
    }
}

impl Script for Replies {
    async fn write(
        &self,
        table: &MemoryStore,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let Some(reply) = (self.write)(write) else {
            return table.write(write, deadline).await;
        };
        if matches!(reply, Err(StoreError::Timeout)) {
            tokio::time::sleep_until(deadline).await;
        }
        reply
    }

    async fn commit(
        &self,
        table: &MemoryStore,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        match &self.commit {
            Some(reply) => reply(),
            None => table.commit(commit, deadline).await,
        }
    }
}

/// A table, and how it answers.
#[derive(Debug)]
pub(super) struct Scripted<P> {
    pub(super) table: MemoryStore,
    pub(super) script: Arc<P>,
}

impl<P> Clone for Scripted<P> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            script: Arc::clone(&self.script),
        }
    }
}

impl<P> Scripted<P> {
    pub(super) fn new(script: P) -> Self {
        Self {
            table: MemoryStore::new(),
            script: Arc::new(script),
        }
    }
}

impl<P: Script> Store for Scripted<P> {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.script.write(&self.table, write, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.script.load(&self.table, id, deadline).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.script.keep(&self.table, outcome, deadline).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.script.fetch(&self.table, id, place, deadline).await
    }

    fn admission(&self) -> Option<Admission> {
        Some(|_, _| Ok(()))
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        self.script.commit(&self.table, commit, deadline).await
    }
}
