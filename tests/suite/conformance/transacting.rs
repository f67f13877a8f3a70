//! The store's other way to commit: the suite's commits have a record alone, these have a business write beside it.

use aws_sdk_dynamodb::types::{AttributeValue, Put};
use lambda_idempotency::packed::{LargeOutcome, Place};
use lambda_idempotency::transaction::Write;

use super::*;

/// Adds a business write to each commit.
struct Transacting {
    inner: DynamoDbStore,
    business: String,
}

impl Store for Transacting {
    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        // One token, one request: its copies write the same item.
        let put = Put::builder()
            .table_name(&self.business)
            .item("id", AttributeValue::S(commit.token.to_owned()));
        let writes = [Write::from(put)];
        let commit = Commit {
            writes: &writes,
            ..commit
        };
        self.inner.commit(commit, deadline).await
    }

    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        self.inner.create(claim, deadline).await
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        self.inner.take_over(seen, claim, mode, deadline).await
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        self.inner.complete(completion, deadline).await
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        self.inner.renew(renewal, deadline).await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        self.inner.amend(amendment, deadline).await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        self.inner.release(release, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.inner.load(id, deadline).await
    }

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

on_each_server! {
    async fn its_transactions_keep_the_contract(server: Server) {
        let store = Transacting {
            inner: server.store().await,
            business: server.table_with_key("business", "id").await,
        };
        conformance(&store).await.unwrap();
    }
}
