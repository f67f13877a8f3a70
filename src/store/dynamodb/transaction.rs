//! Business writes and the final record, in one `TransactWriteItems`.

use std::any::Any;
use std::collections::HashMap;

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as ServiceError;
use aws_sdk_dynamodb::types::builders::{
    ConditionCheckBuilder, DeleteBuilder, PutBuilder, UpdateBuilder,
};
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, ConditionCheck, Delete, Put,
    ReturnValuesOnConditionCheckFailure as OnFailure, TransactWriteItem, Update,
};
use tokio::time::{Instant, timeout_at};

use super::change::{self, Change};
use super::expression::Expressions;
use super::failure::classify;
use super::layout::Item;
use super::{DynamoDbStore, item, size};
use crate::error::StoreError;
use crate::record::Takeover;
use crate::transaction::{Basis, Commit, Committed, Final, Refusal, Write, WriteError};

/// [The most actions](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html) in one
/// transaction, less the record's.
const MOST_WRITES: usize = 99;
/// The most bytes that all its items have together.
const MOST_BYTES: usize = 4 * 1_024 * 1_024;
/// The most bytes that one item has.
const MOST_BYTES_OF_AN_ITEM: usize = 400 * 1_024;

/// What a record may have beside what a completion writes: the names of its attributes, and what a claim and its attempts left.
const RECORD_ROOM: usize = 2 * 1_024;

const ACTIONS: &str = "dynamodb:PutItem, UpdateItem, DeleteItem or ConditionCheckItem, as the transaction's writes need,";

/// A write as it is kept until the transaction: in order, or why it isn't.
struct Body(Result<TransactWriteItem, String>);

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
                    Err(error) => Self::new(Body(Err(error.to_string()))),
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
        Self::new(Body(Ok(write)))
    }
}

impl Refusal {
    /// The item that the condition met; `None` where there was none, or the write asked not to be told.
    pub fn item(&self) -> Option<&HashMap<String, AttributeValue>> {
        self.met()
    }
}

/// Where a write goes.
struct Target<'a> {
    table: &'a str,
    /// The key, or the whole item where it is a `Put`.
    item: &'a Item,
    is_key: bool,
}

impl<'a> Target<'a> {
    fn of(write: &'a TransactWriteItem) -> Option<Self> {
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
        } else if let Some(check) = &write.condition_check {
            Some(of_key(&check.table_name, &check.key))
        } else {
            None
        }
    }

    /// `keys` are the names of the table's keys, where another write tells them: of a `Put` alone they aren't known. Two that only
    /// DynamoDB can tell to be the same are refused there, and nothing is written.
    fn is_same(&self, other: &Self, keys: Option<&Item>) -> bool {
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
fn name_of(table: &str) -> &str {
    table.rsplit('/').next().unwrap_or(table)
}

fn action(write: &Write) -> Result<&TransactWriteItem, WriteError> {
    let Body(body) = write.body().ok_or(WriteError::NotSupported)?;
    body.as_ref()
        .map_err(|reason| WriteError::Incomplete(reason.clone()))
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

fn fits(bytes: usize, max: usize) -> Result<(), WriteError> {
    if bytes > max {
        return Err(WriteError::TooLarge { bytes, max });
    }
    Ok(())
}

/// What a write sends of its item. How large an update leaves it, only DynamoDB knows.
fn bytes_of(write: &TransactWriteItem) -> usize {
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

pub(super) async fn commit(
    store: &DynamoDbStore,
    commit: Commit<'_>,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::Timeout);
    }
    let actions = actions(store, &commit)?;
    let request = store
        .client
        .transact_write_items()
        .set_transact_items(Some(actions))
        .client_request_token(commit.token)
        .send();
    match timeout_at(deadline, Box::pin(request)).await {
        Err(_) => Err(StoreError::Timeout),
        Ok(Ok(_)) => Ok(Committed::Applied),
        Ok(Err(error)) => match error.as_service_error() {
            Some(ServiceError::TransactionCanceledException(cancelled)) => {
                let reasons = cancelled.cancellation_reasons();
                judge(store, commit.record.is_some(), reasons)
            }
            // An earlier send of the same request is at work.
            Some(ServiceError::TransactionInProgressException(_)) => Err(StoreError::Conflict),
            // The business writes' fault as well as the table's: DynamoDB's words tell which.
            Some(invalid) if invalid.code() == Some("ValidationException") => {
                let message = invalid.message().unwrap_or_default().to_owned();
                Err(StoreError::Rejected(message.into()))
            }
            _ => Err(classify(&store.table, &store.layout, ACTIONS, error)),
        },
    }
}

/// The record's action first, then the business writes.
fn actions(
    store: &DynamoDbStore,
    commit: &Commit<'_>,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let invalid = |error: WriteError| StoreError::Rejected(error.into());
    let mut actions = Vec::with_capacity(commit.writes.len() + 1);
    if let Some(record) = commit.record {
        let own = of_record(store, record).map_err(|error| StoreError::Rejected(error.into()))?;
        // An outcome that leaves no room for the rest is told from a business item that is too large.
        if bytes_of(&own) + RECORD_ROOM > MOST_BYTES_OF_AN_ITEM {
            return Err(StoreError::TooLarge);
        }
        actions.push(own);
    }
    for write in commit.writes {
        actions.push(action(write).map_err(invalid)?.clone());
    }
    fits(actions.iter().map(bytes_of).sum(), MOST_BYTES).map_err(invalid)?;
    if let Some(record) = commit.record {
        let key = store.layout.key_of(&record.completion.id);
        let own = Target {
            table: name_of(&store.table),
            item: &key,
            is_key: true,
        };
        let mut targets = actions.iter().skip(1).filter_map(Target::of);
        if targets.any(|target| target.is_same(&own, None)) {
            let reason =
                "a business write concerns the idempotency record itself: leave it to this crate";
            return Err(StoreError::Rejected(reason.into()));
        }
    }
    Ok(actions)
}

/// A PutItem where nothing of an old item stays. In a table with two keys an update takes its place, as it does for a claim.
fn of_record(store: &DynamoDbStore, record: &Final) -> Result<TransactWriteItem, BuildError> {
    let change = change::finish(&store.layout, record);
    let is_whole = match &record.basis {
        Basis::Claimed => false,
        Basis::Absent(_) => !store.layout.is_composite(),
        Basis::Version { mode, .. } => *mode == Takeover::Fresh,
    };
    let action = TransactWriteItem::builder();
    Ok(if is_whole {
        action.put(put(store, &change)?).build()
    } else {
        action.update(update(store, change)?).build()
    })
}

fn put(store: &DynamoDbStore, change: &Change) -> Result<Put, BuildError> {
    let expressions = Expressions::of_put(&store.layout, change);
    Put::builder()
        .table_name(&store.table)
        .set_item(Some(change.item(&store.layout)))
        .condition_expression(expressions.condition)
        .set_expression_attribute_names(Some(expressions.names))
        .set_expression_attribute_values(expressions.values)
        .return_values_on_condition_check_failure(OnFailure::AllOld)
        .build()
}

fn update(store: &DynamoDbStore, change: Change) -> Result<Update, BuildError> {
    let expressions = Expressions::of_update(&store.layout, &change);
    Update::builder()
        .table_name(&store.table)
        .set_key(Some(change.key))
        .set_update_expression(expressions.update)
        .condition_expression(expressions.condition)
        .set_expression_attribute_names(Some(expressions.names))
        .set_expression_attribute_values(expressions.values)
        .return_values_on_condition_check_failure(OnFailure::AllOld)
        .build()
}

/// Why a transaction was cancelled. The record speaks first: where it isn't what it must be, nothing that a business
/// condition met matters, and an earlier send of this very transaction may be what it met.
fn judge(
    store: &DynamoDbStore,
    has_record: bool,
    reasons: &[CancellationReason],
) -> Result<Committed, StoreError> {
    let code = |reason: &CancellationReason| reason.code.clone().unwrap_or_default();
    let (record, business) = reasons.split_at(usize::from(has_record).min(reasons.len()));
    for reason in record {
        match code(reason).as_str() {
            "None" | "" => {}
            "ConditionalCheckFailed" => {
                let met = reason.item.as_ref();
                let found = met.map(|met| item::decode(&store.layout, met));
                return Ok(Committed::Fenced(found));
            }
            other => return Err(cancelled(other, "the record", reason)),
        }
    }
    let failed = |reason: &CancellationReason| code(reason) == "ConditionalCheckFailed";
    if let Some(index) = business.iter().position(failed) {
        let met = business.get(index).and_then(|reason| reason.item.clone());
        let met = met.map(|item| Box::new(item) as Box<dyn Any + Send + Sync>);
        return Ok(Committed::Refused(Refusal::new(index, met)));
    }
    let mut others = business
        .iter()
        .enumerate()
        .filter(|(_, reason)| !matches!(code(reason).as_str(), "None" | ""));
    Err(match others.next() {
        Some((index, reason)) => cancelled(&code(reason), &format!("write {index}"), reason),
        None => StoreError::Conflict,
    })
}

fn cancelled(code: &str, what: &str, reason: &CancellationReason) -> StoreError {
    match code {
        "TransactionConflict" => StoreError::Conflict,
        "ThrottlingError" | "ProvisionedThroughputExceeded" | "ThrottlingException" => {
            StoreError::Throttled
        }
        _ => {
            let message = reason.message.as_deref().unwrap_or_default();
            StoreError::Rejected(
                format!("{what} cancelled the transaction: {code}: {message}").into(),
            )
        }
    }
}

#[cfg(test)]
mod tests;
