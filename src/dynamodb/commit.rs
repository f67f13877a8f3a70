//! Sends a commit, once: with business writes as a transaction, else as one conditional write of
//! the record. The engine sends it again: a retry of the SDK would hide a send that got no answer,
//! and that may apply after a later one was refused.

use aws_sdk_dynamodb::types::ReturnValue;
use tokio::time::Instant;

use super::action::transaction_of;
use super::change;
use super::store::{DynamoDbStore, Retries};
use crate::protocol::record::Final;
use crate::store::transaction::{Commit, Committed};
use crate::store::{Answer, StoreError};

pub(super) async fn commit(
    store: &DynamoDbStore,
    commit: Commit<'_>,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::NotSent);
    }
    match (commit.writes, commit.record) {
        ([first, ..], _) => {
            // The write has the function's address: a program that makes no writes is linked
            // without transactions.
            let transact =
                transaction_of(first).map_err(|error| StoreError::Rejected(error.into()))?;
            transact(store, commit, deadline).await
        }
        ([], Some(record)) => finish(store, record, deadline).await,
        ([], None) => Ok(Committed::Applied),
    }
}

/// Writes the record alone, for half of what it would cost in a transaction. The write has no
/// token: a copy of one that applied is refused, and its answer shows the record that the first one
/// left.
async fn finish(
    store: &DynamoDbStore,
    record: &Final,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    let change = change::finish(&store.layout, record);
    let answer = store
        .apply(
            &record.completion.id,
            change,
            ReturnValue::None,
            Retries::Engine,
            deadline,
        )
        .await?;
    Ok(match answer {
        Answer::Applied(_) => Committed::Applied,
        Answer::Refused(found) => Committed::Fenced(found),
    })
}

#[cfg(test)]
mod tests;
