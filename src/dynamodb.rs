//! Keeps records in a DynamoDB table, through `aws-sdk-dynamodb`.
//!
//! # The table
//!
//! The table has one string partition key, `id` unless configured otherwise; TTL on `expiration`;
//! on-demand capacity unless you know your traffic. [`TableLayout`] takes tables with other names,
//! or with a composite key.
//!
//! # Permissions
//!
//! The function needs `dynamodb:PutItem`, `dynamodb:UpdateItem` and `dynamodb:GetItem` on the
//! table. This crate never deletes an item. Transactions need the same, and on the business tables
//! the permissions of their writes: `dynamodb:PutItem`, `UpdateItem`, `DeleteItem`,
//! `ConditionCheckItem`.
//!
//! # Business writes
//!
//! A business write ([`transaction`](crate::store::transaction)) is the SDK's own `Put`, `Update`,
//! `Delete` or `ConditionCheck`, or the builder of one. The claimless form needs no request but the
//! transaction.
//!
//! ```
//! use aws_sdk_dynamodb::types::{AttributeValue::{N, S}, Put, Update};
//! use lambda_idempotency::store::transaction::{Write, WriteError};
//! use lambda_idempotency::{Claim, Error, Fingerprint, Idempotency, Key, Outcome, dynamodb::DynamoDbStore};
//!
//! #[derive(Debug, thiserror::Error)]
//! enum OrderError {
//!     #[error("sold out")]
//!     SoldOut,
//!     #[error(transparent)]
//!     Write(#[from] WriteError),
//! }
//!
//! async fn place(once: &Idempotency, body: &[u8]) -> Result<Outcome<String>, Error<OrderError>> {
//!     once.run(Key::new("order", "cart-17"), Fingerprint::json(body), |claim| async move {
//!         let order_id = claim.derive_uuid("order");
//!         claim.write(Put::builder().table_name("orders").item("order_id", S(order_id.clone())))?;
//!         let take_one = Update::builder()
//!             .table_name("stock")
//!             .key("sku", S("tea".into()))
//!             .update_expression("SET #left = #left - :one")
//!             .condition_expression("#left >= :one")
//!             .expression_attribute_names("#left", "left")
//!             .expression_attribute_values(":one", N("1".into()));
//!         claim.write(Write::from(take_one).or_else(|_refusal| OrderError::SoldOut))?;
//!         Ok(order_id)
//!     })
//!     .await
//! }
//!
//! async fn deposit(once: &Idempotency, event_id: &str) -> Result<Outcome<()>, Error<WriteError>> {
//!     let handler = async |claim: Claim| {
//!         claim.write(
//!             Update::builder()
//!                 .table_name("accounts")
//!                 .key("account", S("a-1".into()))
//!                 .update_expression("ADD balance :five")
//!                 .expression_attribute_values(":five", N("5".into())),
//!         )
//!     };
//!     once.claimless().run(Key::new("deposit", event_id), Fingerprint::json(b"{}"), handler).await
//! }
//! ```
//!
//! # Sharing a table with Powertools for AWS Lambda
//!
//! The attributes `id`, `status`, `expiration`, `in_progress_expiration`, `data` and `validation`
//! have the names and meanings that Powertools gives them, so each side honours the other's claims
//! and replays the other's outcomes under an id that both use ([`Key::raw`](crate::Key::raw)).
//! Powertools completes and deletes without a condition, so its stale handlers can still overwrite;
//! its takeover ignores the skew margin; it raises an error on a status of `FAILED`; and its
//! `validation` is another hash, which this crate doesn't compare.

use aws_sdk_dynamodb::types::ReturnValue;
use store::Retries;
use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, Record, RecordWrite, Takeover, Version};
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, Store, StoreError};

mod change;
mod client;
mod error;
mod group;
pub mod guard;
mod item;
mod layout;
#[cfg(feature = "s3")]
mod objects;
pub mod outbox;
mod oversize;
mod statement;
mod store;
mod transaction;
#[cfg(test)]
mod wire;

pub use client::sdk_config;
pub use error::DynamoDbError;
pub use layout::TableLayout;
pub use store::DynamoDbStore;

/// No request of such a client can be signed.
fn no_region(client: &str) -> StoreError {
    let advice = "set the environment variable AWS_REGION, or give the client's configuration one";
    StoreError::Misconfigured(format!("the {client} client has no region: {advice}").into())
}

impl Store for DynamoDbStore {
    fn check(&self) -> Result<(), StoreError> {
        let checked = self.layout.check();
        checked.map_err(|error| StoreError::Misconfigured(error.into()))?;
        // It would look like a store that can't be reached, and a store that fails open would run every
        // handler unprotected.
        if self.client.config().region().is_none() {
            return Err(no_region("DynamoDB"));
        }
        #[cfg(feature = "s3")]
        if let Some(bucket) = &self.bucket
            && bucket.client.config().region().is_none()
        {
            return Err(no_region("S3"));
        }
        Ok(())
    }

    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let returning = match write {
            RecordWrite::TakeOver { .. } => ReturnValue::AllNew,
            _ => ReturnValue::None,
        };
        let change = change::of(&self.layout, write);
        let answer = self
            .apply(write.id(), change, returning, Retries::Sdk, deadline)
            .await?;
        Ok(match write {
            // A PutItem shows no new item: the record is the claim's.
            RecordWrite::TakeOver {
                mode: Takeover::Fresh,
                claim,
                ..
            } if answer.is_applied() => {
                Answer::Applied(Some(Found::readable(Record::claimed(claim))))
            }
            // Without it the journal is unknown, and a confirmed step would fire again.
            RecordWrite::TakeOver { .. } if matches!(answer, Answer::Applied(None)) => {
                let reason = "the answer to the takeover has no record";
                Answer::Applied(Some(Found::unreadable(Version::default(), reason)))
            }
            _ => answer,
        })
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        let item = self.get(id.as_str(), deadline).await?;
        Ok(item.map(|item| self.layout.read(&item)))
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        group::write_all(self, writes, deadline).await
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        group::load_all(self, ids, deadline).await
    }

    fn max_id_bytes(&self) -> usize {
        self.layout.max_id_bytes()
    }

    fn admission(&self) -> Option<Admission> {
        Some(transaction::admit)
    }

    fn honours_tokens(&self) -> bool {
        true
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        transaction::commit(self, commit, deadline).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        oversize::keep(self, outcome, deadline).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        oversize::fetch(self, id, place, deadline).await
    }
}
