//! A store in memory, some of whose answers a test replaces.

use std::future::Future;

use tokio::time::Instant;

use crate::error::StoreError;
use crate::key::RecordId;
use crate::record::{Amendment, Completion, Found, NewClaim, Release, Renewal, Takeover, Version};
use crate::store::{Answer, MemoryStore, Store};
use crate::transaction::{Admission, Commit, Committed};

/// How a store answers. Each call goes to the table unless a test says otherwise.
pub(super) trait Script: Send + Sync + 'static {
    fn take_over(
        &self,
        table: &MemoryStore,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer<Found>, StoreError>> + Send {
        table.take_over(seen, claim, mode, deadline)
    }

    fn amend(
        &self,
        table: &MemoryStore,
        amendment: &Amendment,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        table.amend(amendment, deadline)
    }

    fn release(
        &self,
        table: &MemoryStore,
        release: &Release,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        table.release(release, deadline)
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

/// A table, and how it answers.
#[derive(Debug)]
pub(super) struct Scripted<P> {
    pub(super) table: MemoryStore,
    pub(super) script: P,
}

impl<P> Scripted<P> {
    pub(super) fn new(script: P) -> Self {
        Self {
            table: MemoryStore::new(),
            script,
        }
    }
}

impl<P: Script> Store for Scripted<P> {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        self.table.create(claim, deadline).await
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let Self { table, script } = self;
        script.take_over(table, seen, claim, mode, deadline).await
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        self.table.complete(completion, deadline).await
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        self.table.renew(renewal, deadline).await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        self.script.amend(&self.table, amendment, deadline).await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        self.script.release(&self.table, release, deadline).await
    }

    fn admission(&self) -> Option<Admission> {
        Some(|_, _| Ok(()))
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        self.script.commit(&self.table, commit, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.table.load(id, deadline).await
    }
}
