//! A store that takes everything and keeps nothing: what grows then isn't the store.

use lambda_idempotency::protocol::record::{Found, Record, RecordWrite};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{RecordId, StoreError};
use tokio::time::Instant;

#[derive(Clone, Debug, Default)]
pub struct Forgetful;

impl Store for Forgetful {
    async fn write(&self, write: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        Ok(Answer::Applied(match write {
            RecordWrite::TakeOver { claim, .. } => Some(Found::readable(Record::claimed(claim))),
            _ => None,
        }))
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Ok(None)
    }
}
