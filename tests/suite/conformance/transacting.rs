//! The store's other way to commit: the suite's commits have a record alone, these have a business write beside it.

use aws_sdk_dynamodb::types::{AttributeValue, Put};
use lambda_idempotency::protocol::packed::{LargeOutcome, Place};

use super::*;

/// Adds a business write to each commit.
struct Transacting {
    inner: DynamoDbStore,
    business: String,
}

impl Store for Transacting {
    fn admission(&self) -> Option<fn(&[Write], &Write) -> Result<(), WriteError>> {
        self.inner.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        // One token, one request: its copies write the same item.
        let put = Put::builder()
            .table_name(&self.business)
            .item("id", AttributeValue::S(commit.token.to_owned()));
        let writes = [Write::from(put)];
        let commit = Commit::new(commit.token, commit.record, &writes);
        self.inner.commit(commit, deadline).await
    }

    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.inner.write(write, deadline).await
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

on_each_server!(its_transactions_keep_the_contract);
async fn its_transactions_keep_the_contract(server: Server) {
    let store = Transacting {
        inner: server.store().await,
        business: server.table_with_key("business", "id").await,
    };
    conformance(&store).await.unwrap();
}
