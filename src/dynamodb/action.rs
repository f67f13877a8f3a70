//! The action of a business write: where it goes, how large it is, and what commits it.

use aws_sdk_dynamodb::types::TransactWriteItem;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::layout::Item;
use super::size;
use super::store::DynamoDbStore;
use crate::store::StoreError;
use crate::store::transaction::{Commit, Committed, Write, WriteError};

/// Bounds the bytes of all items of a transaction together.
pub(super) const MOST_BYTES: usize = 4 * 1_024 * 1_024;
/// Bounds the bytes of one item.
pub(super) const MOST_BYTES_OF_AN_ITEM: usize = 400 * 1_024;

/// Commits business writes. Each of them carries it.
pub(super) type Transact = for<'a> fn(
    &'a DynamoDbStore,
    Commit<'a>,
    Instant,
) -> BoxFuture<'a, Result<Committed, StoreError>>;

/// A write keeps this until its transaction.
pub(super) struct Body {
    /// The action; or the reason why the write is none.
    pub(super) action: Result<TransactWriteItem, String>,
    /// Commits this write together with the others of its transaction. No other path leads to the
    /// SDK's transactions, so that only a program that makes writes is linked with them.
    pub(super) transact: Transact,
}

/// The item that a write concerns.
pub(super) struct Target<'a> {
    /// By its name or its ARN, as the write has it.
    pub(super) table: &'a str,
    /// The key, or the whole item where it is a `Put`.
    pub(super) item: &'a Item,
    pub(super) is_key: bool,
}

impl<'a> Target<'a> {
    pub(super) fn of(write: &'a TransactWriteItem) -> Option<Self> {
        let put = write.put.as_ref();
        let put = put.map(|put| (&put.table_name, &put.item, false));
        let update = write.update.as_ref();
        let update = update.map(|update| (&update.table_name, &update.key, true));
        let delete = write.delete.as_ref();
        let delete = delete.map(|delete| (&delete.table_name, &delete.key, true));
        let check = write.condition_check.as_ref();
        let check = check.map(|check| (&check.table_name, &check.key, true));
        let (table, item, is_key) = put.or(update).or(delete).or(check)?;
        Some(Self {
            table,
            item,
            is_key,
        })
    }

    /// The name of the table.
    pub(super) fn name(&self) -> &'a str {
        name_of(self.table)
    }

    /// Compares two targets. `keys` are the names of the table's keys, where another write shows
    /// them: a `Put` alone doesn't. DynamoDB refuses a transaction with two targets that are the
    /// same to it alone, and writes nothing.
    pub(super) fn is_same(&self, other: &Self, keys: Option<&Item>) -> bool {
        let agree = |names: &Item| {
            let mut names = names.keys();
            names.all(|name| {
                self.item.contains_key(name) && self.item.get(name) == other.item.get(name)
            })
        };
        self.name() == other.name()
            && match (self.is_key, other.is_key, keys) {
                (true, ..) => agree(self.item),
                (false, true, _) => agree(other.item),
                (false, false, Some(keys)) => agree(keys),
                (false, false, None) => self.item == other.item,
            }
    }
}

/// The name of a table that is given by its name or its ARN.
pub(super) fn name_of(table: &str) -> &str {
    table.rsplit('/').next().unwrap_or(table)
}

pub(super) fn action(write: &Write) -> Result<&TransactWriteItem, WriteError> {
    body(write)?
        .action
        .as_ref()
        .map_err(|reason| WriteError::Incomplete(reason.clone()))
}

/// The function that commits this write.
pub(super) fn transaction_of(write: &Write) -> Result<Transact, WriteError> {
    Ok(body(write)?.transact)
}

fn body(write: &Write) -> Result<&Body, WriteError> {
    write.body().ok_or(WriteError::NotSupported)
}

pub(super) fn fits(bytes: usize, max: usize) -> Result<(), WriteError> {
    if bytes > max {
        return Err(WriteError::TooLarge { bytes, max });
    }
    Ok(())
}

/// The bytes that a write sends of its item. Only DynamoDB knows how large an update leaves it.
pub(super) fn bytes_of(write: &TransactWriteItem) -> usize {
    let values = |values: &Option<Item>| {
        values
            .as_ref()
            .map_or(0, |values| values.values().map(size::of_value).sum())
    };
    if let Some(put) = &write.put {
        size::of_item(&put.item)
    } else if let Some(update) = &write.update {
        size::of_item(&update.key) + values(&update.expression_attribute_values)
    } else {
        0
    }
}
