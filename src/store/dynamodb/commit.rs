//! How a commit leaves: with business writes as a transaction, else as one conditional write of the record.

use tokio::time::Instant;

use super::DynamoDbStore;
use super::change;
use super::write::transaction_of;
use crate::error::StoreError;
use crate::store::Answer;
use crate::transaction::{Commit, Committed, Final};

pub(super) async fn commit(
    store: &DynamoDbStore,
    commit: Commit<'_>,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::Timeout);
    }
    match (commit.writes, commit.record) {
        ([first, ..], _) => {
            // By way of the write, and not by name: a program that makes no writes is linked without transactions.
            let transact =
                transaction_of(first).map_err(|error| StoreError::Rejected(error.into()))?;
            transact(store, commit, deadline).await
        }
        ([], Some(record)) => finish(store, record, deadline).await,
        ([], None) => Ok(Committed::Applied),
    }
}

/// The record alone: half of what it would cost in a transaction. It has no token, so that a copy of a write that applied is
/// refused, and shows the record that the write itself left.
async fn finish(
    store: &DynamoDbStore,
    record: &Final,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    let change = change::finish(&store.layout, record);
    let answer = if change::is_whole(&store.layout, record) {
        store.put(change, deadline).await?
    } else {
        store.change(change, deadline).await?
    };
    Ok(match answer {
        Answer::Applied(()) => Committed::Applied,
        Answer::Refused(found) => Committed::Fenced(found),
    })
}

#[cfg(test)]
mod tests;
