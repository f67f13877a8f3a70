//! Business writes as `DynamoDbStore` takes them, and whether one may join the others. Nothing is sent here.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::builders::{
    ConditionCheckBuilder, DeleteBuilder, PutBuilder, UpdateBuilder,
};
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure as OnFailure,
    TransactWriteItem, Update,
};

use super::layout::Item;
use super::size;
use super::transaction::{self, Transact};
use crate::transaction::{Refusal, Write, WriteError};

/// [The most actions](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html) in one
/// transaction, less the record's.
const MOST_WRITES: usize = 99;
/// The most bytes that all its items have together.
pub(super) const MOST_BYTES: usize = 4 * 1_024 * 1_024;
/// The most bytes that one item has.
pub(super) const MOST_BYTES_OF_AN_ITEM: usize = 400 * 1_024;

/// A write as it is kept until the transaction.
struct Body {
    /// In order, or why it isn't.
    action: Result<TransactWriteItem, String>,
    /// What commits it, and those that it stands with. Nothing else leads there, so that only a program that makes writes is
    /// linked with the SDK's transactions.
    transact: Transact,
}

impl Body {
    fn write(action: Result<TransactWriteItem, String>) -> Write {
        Write::new(Self {
            action,
            transact: transaction::commit,
        })
    }
}

macro_rules! write_from {
    ($($field:ident: $item:ty, $builder:ty);* $(;)?) => {$(
        impl From<$item> for Write {
            fn from(write: $item) -> Self {
                Self::from(TransactWriteItem::builder().$field(write).build())
            }
        }

        /// A builder that lacks something is refused by [`Claim::write`](crate::Claim::write).
        impl From<$builder> for Write {
            fn from(write: $builder) -> Self {
                match write.build() {
                    Ok(write) => write.into(),
                    Err(error) => Body::write(Err(error.to_string())),
                }
            }
        }
    )*};
}

write_from! {
    put: Put, PutBuilder;
    update: Update, UpdateBuilder;
    delete: Delete, DeleteBuilder;
    condition_check: ConditionCheck, ConditionCheckBuilder;
}

/// Asks for the item that a failing condition meets, unless the write says otherwise.
impl From<TransactWriteItem> for Write {
    fn from(mut write: TransactWriteItem) -> Self {
        let wish = if let Some(put) = &mut write.put {
            Some(&mut put.return_values_on_condition_check_failure)
        } else if let Some(update) = &mut write.update {
            Some(&mut update.return_values_on_condition_check_failure)
        } else if let Some(delete) = &mut write.delete {
            Some(&mut delete.return_values_on_condition_check_failure)
        } else if let Some(check) = &mut write.condition_check {
            Some(&mut check.return_values_on_condition_check_failure)
        } else {
            None
        };
        if let Some(wish) = wish {
            wish.get_or_insert(OnFailure::AllOld);
        }
        Body::write(Ok(write))
    }
}

impl Refusal {
    /// The item that the condition met; `None` where there was none, or the write asked not to be told.
    pub fn item(&self) -> Option<&HashMap<String, AttributeValue>> {
        self.met()
    }
}

/// Where a write goes.
pub(super) struct Target<'a> {
    pub(super) table: &'a str,
    /// The key, or the whole item where it is a `Put`.
    pub(super) item: &'a Item,
    pub(super) is_key: bool,
}

impl<'a> Target<'a> {
    pub(super) fn of(write: &'a TransactWriteItem) -> Option<Self> {
        let of_key = |table, item| Self {
            table: name_of(table),
            item,
            is_key: true,
        };
        if let Some(put) = &write.put {
            Some(Self {
                is_key: false,
                ..of_key(&put.table_name, &put.item)
            })
        } else if let Some(update) = &write.update {
            Some(of_key(&update.table_name, &update.key))
        } else if let Some(delete) = &write.delete {
            Some(of_key(&delete.table_name, &delete.key))
        } else {
            let check = write.condition_check.as_ref()?;
            Some(of_key(&check.table_name, &check.key))
        }
    }

    /// `keys` are the names of the table's keys, where another write tells them: of a `Put` alone they aren't known. Two that only
    /// DynamoDB can tell to be the same are refused there, and nothing is written.
    pub(super) fn is_same(&self, other: &Self, keys: Option<&Item>) -> bool {
        let agree = |names: &Item| {
            let mut names = names.keys();
            names.all(|name| {
                self.item.contains_key(name) && self.item.get(name) == other.item.get(name)
            })
        };
        self.table == other.table
            && match (self.is_key, other.is_key, keys) {
                (true, ..) => agree(self.item),
                (false, true, _) => agree(other.item),
                (false, false, Some(keys)) => agree(keys),
                (false, false, None) => self.item == other.item,
            }
    }
}

/// A table goes by its name or its ARN.
pub(super) fn name_of(table: &str) -> &str {
    table.rsplit('/').next().unwrap_or(table)
}

pub(super) fn action(write: &Write) -> Result<&TransactWriteItem, WriteError> {
    body(write)?
        .action
        .as_ref()
        .map_err(|reason| WriteError::Incomplete(reason.clone()))
}

/// What commits this write.
pub(super) fn transaction_of(write: &Write) -> Result<Transact, WriteError> {
    Ok(body(write)?.transact)
}

fn body(write: &Write) -> Result<&Body, WriteError> {
    write.body().ok_or(WriteError::NotSupported)
}

/// Whether a write may join those that are there.
pub(super) fn admit(writes: &[Write], new: &Write) -> Result<(), WriteError> {
    let new = action(new)?;
    let target = Target::of(new).ok_or_else(|| {
        WriteError::Incomplete("it is no put, update, delete or check".to_owned())
    })?;
    if writes.len() >= MOST_WRITES {
        return Err(WriteError::TooMany { max: MOST_WRITES });
    }
    fits(bytes_of(new), MOST_BYTES_OF_AN_ITEM)?;
    let others = || writes.iter().filter_map(|write| action(write).ok());
    fits(
        bytes_of(new) + others().map(bytes_of).sum::<usize>(),
        MOST_BYTES,
    )?;
    let mut targets = others().filter_map(Target::of);
    let keys = targets
        .find(|other| other.is_key && other.table == target.table)
        .map(|other| other.item);
    let mut targets = others().filter_map(Target::of);
    match targets.position(|other| target.is_same(&other, keys)) {
        Some(first) => Err(WriteError::SameItem { first }),
        None => Ok(()),
    }
}

pub(super) fn fits(bytes: usize, max: usize) -> Result<(), WriteError> {
    if bytes > max {
        return Err(WriteError::TooLarge { bytes, max });
    }
    Ok(())
}

/// What a write sends of its item. How large an update leaves it, only DynamoDB knows.
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

#[cfg(test)]
mod tests;
