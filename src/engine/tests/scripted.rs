//! A store in memory, some of whose answers a test replaces.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, RecordWrite};
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, MemoryStore, Store, StoreError};

/// The table that a call goes to, and the call's deadline.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) table: &'a MemoryStore,
    pub(super) deadline: Instant,
}

/// The answers of a store. Each call goes to the table unless a test says otherwise.
pub(super) trait Script: Send + Sync + 'static {
    fn write(
        &self,
        at: At<'_>,
        write: &RecordWrite,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        at.table.write(write, at.deadline)
    }

    fn load(
        &self,
        at: At<'_>,
        id: &RecordId,
    ) -> impl Future<Output = Result<Option<Found>, StoreError>> + Send {
        at.table.load(id, at.deadline)
    }

    fn keep(
        &self,
        at: At<'_>,
        outcome: &LargeOutcome,
    ) -> impl Future<Output = Result<Place, StoreError>> + Send {
        at.table.keep(outcome, at.deadline)
    }

    /// The table has no transactions, so a test that commits says what becomes of it.
    fn commit(
        &self,
        at: At<'_>,
        commit: Commit<'_>,
    ) -> impl Future<Output = Result<Committed, StoreError>> + Send {
        at.table.commit(commit, at.deadline)
    }

    fn honours_tokens(&self) -> bool {
        true
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
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        let Some(reply) = (self.write)(write) else {
            return at.table.write(write, at.deadline).await;
        };
        if matches!(reply, Err(StoreError::Timeout)) {
            tokio::time::sleep_until(at.deadline).await;
        }
        reply
    }

    async fn commit(&self, at: At<'_>, commit: Commit<'_>) -> Result<Committed, StoreError> {
        match &self.commit {
            Some(reply) => reply(),
            None => at.table.commit(commit, at.deadline).await,
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

    fn at(&self, deadline: Instant) -> At<'_> {
        let table = &self.table;
        At { table, deadline }
    }
}

impl<P: Script> Store for Scripted<P> {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.script.write(self.at(deadline), write).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.script.load(self.at(deadline), id).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.script.keep(self.at(deadline), outcome).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.table.fetch(id, place, deadline).await
    }

    fn admission(&self) -> Option<Admission> {
        Some(|_, _| Ok(()))
    }

    fn honours_tokens(&self) -> bool {
        self.script.honours_tokens()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        self.script.commit(self.at(deadline), commit).await
    }
}
