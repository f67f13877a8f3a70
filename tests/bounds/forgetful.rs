//! A store that takes everything and keeps nothing: what grows then isn't the store.

use lambda_idempotency::record::{
    Amendment, Completion, Found, NewClaim, Record, Release, Renewal, Takeover, Version,
};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{RecordId, StoreError};
use tokio::time::Instant;

#[derive(Clone, Debug, Default)]
pub struct Forgetful;

impl Store for Forgetful {
    async fn create(&self, _: &NewClaim, _: Instant) -> Result<Answer, StoreError> {
        Ok(Answer::Applied(()))
    }

    async fn take_over(
        &self,
        _: &Version,
        claim: &NewClaim,
        _: Takeover,
        _: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        Ok(Answer::Applied(Found::readable(Record::claimed(claim))))
    }

    async fn complete(&self, _: &Completion, _: Instant) -> Result<Answer, StoreError> {
        Ok(Answer::Applied(()))
    }

    async fn renew(&self, _: &Renewal, _: Instant) -> Result<Answer, StoreError> {
        Ok(Answer::Applied(()))
    }

    async fn amend(&self, _: &Amendment, _: Instant) -> Result<Answer, StoreError> {
        Ok(Answer::Applied(()))
    }

    async fn release(&self, _: &Release, _: Instant) -> Result<Answer, StoreError> {
        Ok(Answer::Applied(()))
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Ok(None)
    }
}
