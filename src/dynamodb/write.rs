//! Converts the SDK's writes into business writes, and decides whether one may join the others.
//! Nothing is sent here.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::builders::{
    ConditionCheckBuilder, DeleteBuilder, PutBuilder, UpdateBuilder,
};
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure as OnFailure,
    TransactWriteItem, Update,
};

use super::action::{Body, MOST_BYTES, MOST_BYTES_OF_AN_ITEM, Target, action, bytes_of, fits};
use super::transaction;
use crate::store::transaction::{Refusal, Write, WriteError};

/// [The most actions](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html)
/// in one transaction, less the record's.
const MOST_WRITES: usize = 99;

fn carrying(action: Result<TransactWriteItem, String>) -> Write {
    Write::new(Body {
        action,
        transact: transaction::commit,
    })
}

macro_rules! write_from {
    ($($field:ident: $item:ty, $builder:ty);* $(;)?) => {$(
        impl From<$item> for Write {
            fn from(write: $item) -> Self {
                Self::from(TransactWriteItem::builder().$field(write).build())
            }
        }

        /// [`Claim::write`](crate::Claim::write) refuses a builder that lacks something.
        impl From<$builder> for Write {
            fn from(write: $builder) -> Self {
                match write.build() {
                    Ok(write) => write.into(),
                    Err(error) => carrying(Err(error.to_string())),
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

/// Asks for the item that a failing condition meets, unless the write has a setting of its own.
impl From<TransactWriteItem> for Write {
    fn from(mut write: TransactWriteItem) -> Self {
        macro_rules! ask {
            ($($field:ident),*) => {$(
                if let Some(write) = &mut write.$field {
                    let wish = &mut write.return_values_on_condition_check_failure;
                    wish.get_or_insert(OnFailure::AllOld);
                }
            )*};
        }
        ask!(put, update, delete, condition_check);
        carrying(Ok(write))
    }
}

impl Refusal {
    /// The item that the condition met; `None` where there was none, or where the write asked for
    /// no item.
    pub fn item(&self) -> Option<&HashMap<String, AttributeValue>> {
        self.met()
    }
}

/// Decides whether a write may join those of the transaction.
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
        .find(|other| other.is_key && other.name() == target.name())
        .map(|other| other.item);
    let mut targets = others().filter_map(Target::of);
    match targets.position(|other| target.is_same(&other, keys)) {
        Some(first) => Err(WriteError::SameTarget { first }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
