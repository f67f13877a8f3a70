//! Commits business writes and the final record in one `TransactWriteItems`.

use std::any::Any;

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as ServiceError;
use aws_sdk_dynamodb::types::{
    CancellationReason, Put, ReturnValuesOnConditionCheckFailure as OnFailure, TransactWriteItem,
    Update,
};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::action::{MOST_BYTES, MOST_BYTES_OF_AN_ITEM, Target, action, bytes_of, fits, name_of};
use super::expression::Expressions;
use super::failure::{Met, classify, says_too_large, throttled};
use super::layout::as_item;
use super::store::DynamoDbStore;
use super::{change, client};
use crate::protocol::causes::in_words;
use crate::protocol::record::Final;
use crate::store::StoreError;
use crate::store::transaction::{Commit, Committed, Refusal, WriteError};

/// The bytes that a record may have beside what a completion writes: the names of its attributes,
/// and the values that a claim and its attempts left.
const RECORD_ROOM: usize = 2 * 1_024;

const ACTIONS: &str = "dynamodb:PutItem, UpdateItem, DeleteItem or ConditionCheckItem, as the transaction's writes need,";

/// Sends the transaction. Boxed, as [`Transact`](super::action::Transact) asks.
pub(super) fn commit<'a>(
    store: &'a DynamoDbStore,
    commit: Commit<'a>,
    deadline: Instant,
) -> BoxFuture<'a, Result<Committed, StoreError>> {
    Box::pin(send(store, commit, deadline))
}

async fn send(
    store: &DynamoDbStore,
    commit: Commit<'_>,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    let actions = actions(store, &commit)?;
    let request = store
        .client
        .transact_write_items()
        .set_transact_items(Some(actions))
        .client_request_token(commit.token)
        .customize()
        .config_override(client::sent_once(&store.client))
        .send();
    match client::in_time(deadline, Box::pin(request)).await? {
        Ok(_) => Ok(Committed::Applied),
        Err(error) => match error.as_service_error() {
            Some(ServiceError::TransactionCanceledException(cancelled)) => {
                let reasons = cancelled.cancellation_reasons();
                let judged = judge(store, commit.record.is_some(), reasons)?;
                Ok(shown(store, &commit, judged, deadline).await)
            }
            // An earlier send of the same request is at work, and may yet apply.
            Some(ServiceError::TransactionInProgressException(_)) => {
                Err(StoreError::Unavailable(in_words(&error).into()))
            }
            // The fault is a business write's or the table's: DynamoDB's words say which.
            Some(invalid) if invalid.code() == Some("ValidationException") => {
                let message = without_values(invalid.message().unwrap_or_default());
                Err(StoreError::Rejected(message.into()))
            }
            _ => {
                let tables = tables(store, &commit);
                Err(classify(&tables, &store.layout, ACTIONS, &error))
            }
        },
    }
}

/// Names the tables of the transaction: DynamoDB doesn't say which of them it means.
fn tables(store: &DynamoDbStore, commit: &Commit<'_>) -> String {
    let record = commit.record.map(|_| name_of(&store.table));
    let writes = commit.writes.iter().filter_map(|write| action(write).ok());
    let writes = writes.filter_map(Target::of).map(|target| target.name());
    let mut names = Vec::new();
    for name in record.into_iter().chain(writes) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" or ")
}

/// Collects the record's action first, then the business writes.
fn actions(
    store: &DynamoDbStore,
    commit: &Commit<'_>,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let invalid = |error: WriteError| StoreError::Rejected(error.into());
    let mut actions = Vec::with_capacity(commit.writes.len() + 1);
    if let Some(record) = commit.record {
        let own = of_record(store, record).map_err(|error| StoreError::Rejected(error.into()))?;
        // An outcome that leaves no room for the rest is another error than a business item that is
        // too large.
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
        let key = store.layout.key_item(record.completion.id.as_str());
        let own = Target {
            table: &store.table,
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

fn of_record(store: &DynamoDbStore, record: &Final) -> Result<TransactWriteItem, BuildError> {
    let change = change::finish(&store.layout, record);
    let expressions = Expressions::of(&store.layout, &change);
    let action = TransactWriteItem::builder();
    if change.is_whole {
        let put = Put::builder()
            .table_name(&store.table)
            .set_item(Some(change.item(&store.layout)))
            .condition_expression(expressions.condition)
            .set_expression_attribute_names(Some(expressions.names))
            .set_expression_attribute_values(expressions.values)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        return Ok(action.put(put.build()?).build());
    }
    let update = Update::builder()
        .table_name(&store.table)
        .set_key(Some(as_item(change.key)))
        .set_update_expression(expressions.update)
        .condition_expression(expressions.condition)
        .set_expression_attribute_names(Some(expressions.names))
        .set_expression_attribute_values(expressions.values)
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    Ok(action.update(update.build()?).build())
}

/// Translates the reasons for a cancellation. The record's comes first: where the record's
/// condition failed, no business condition matters, because an earlier send of this very
/// transaction may be what it met.
fn judge(
    store: &DynamoDbStore,
    has_record: bool,
    reasons: &[CancellationReason],
) -> Result<Committed, StoreError> {
    let (record, business) = reasons.split_at(usize::from(has_record).min(reasons.len()));
    for reason in record {
        match code(reason) {
            "None" | "" => {}
            "ConditionalCheckFailed" => {
                let Met(met) = Met::of(reason.item.as_ref());
                return Ok(Committed::Fenced(met.map(|met| store.layout.read(&met))));
            }
            // The record would be too large, with what it has already.
            _ if says_too_large(reason.message().unwrap_or_default()) => {
                return Err(StoreError::TooLarge);
            }
            _ => return Err(cancelled("the record", reason)),
        }
    }
    let failed = |reason: &CancellationReason| code(reason) == "ConditionalCheckFailed";
    if let Some(index) = business.iter().position(failed) {
        let Met(met) = Met::of(business.get(index).and_then(|reason| reason.item.as_ref()));
        let met = met.map(|item| Box::new(item) as Box<dyn Any + Send + Sync>);
        return Ok(Committed::Refused(Refusal::new(index, met)));
    }
    let mut others = business.iter().enumerate();
    Err(
        match others.find(|(_, reason)| !matches!(code(reason), "None" | "")) {
            Some((index, reason)) => cancelled(&format!("write {index}"), reason),
            None => StoreError::Conflict,
        },
    )
}

/// Reads the item that a failed condition met, where the answer leaves it out.
async fn shown(
    store: &DynamoDbStore,
    commit: &Commit<'_>,
    judged: Committed,
    deadline: Instant,
) -> Committed {
    match (judged, commit.record) {
        (Committed::Fenced(found), Some(record)) => {
            Committed::Fenced(store.met(found, &record.completion.id, deadline).await)
        }
        (Committed::Refused(refusal), _) if refusal.item().is_none() => {
            let write = commit.writes.get(refusal.index());
            let action = write.and_then(|write| action(write).ok());
            // The key of a `Put` isn't known: its table's schema isn't.
            let target = action
                .filter(|action| asks_for_item(action))
                .and_then(Target::of)
                .filter(|target| target.is_key);
            let Some(target) = target else {
                return Committed::Refused(refusal);
            };
            let request = store
                .client
                .get_item()
                .table_name(target.table)
                .set_key(Some(target.item.clone()))
                .consistent_read(true);
            let read = timeout_at(deadline, Box::pin(request.send())).await;
            let item = read
                .ok()
                .and_then(Result::ok)
                .and_then(|output| output.item);
            let Met(met) = Met::of(item.as_ref());
            let met = met.map(|item| Box::new(item) as Box<dyn Any + Send + Sync>);
            Committed::Refused(Refusal::new(refusal.index(), met))
        }
        (judged, _) => judged,
    }
}

fn asks_for_item(action: &TransactWriteItem) -> bool {
    macro_rules! wish {
        ($($field:ident),*) => {
            None$(.or(action.$field.as_ref().and_then(|write| {
                write.return_values_on_condition_check_failure.as_ref()
            })))*
        };
    }
    wish!(update, delete, condition_check) == Some(&OnFailure::AllOld)
}

fn code(reason: &CancellationReason) -> &str {
    reason.code().unwrap_or_default()
}

/// DynamoDB's words without the handler's values: DynamoDB quotes an invalid number, and this text
/// is logged.
fn without_values(message: &str) -> String {
    const QUOTES: &str = "numeric value";
    match message.split_once(QUOTES) {
        Some((before, _)) => format!("{before}{QUOTES}"),
        None => message.to_owned(),
    }
}

fn cancelled(what: &str, reason: &CancellationReason) -> StoreError {
    match code(reason) {
        "TransactionConflict" => StoreError::Conflict,
        "ThrottlingError" | "ProvisionedThroughputExceeded" | "ThrottlingException" => throttled(),
        code => {
            let message = without_values(reason.message().unwrap_or_default());
            StoreError::Rejected(
                format!("{what} cancelled the transaction: {code}: {message}").into(),
            )
        }
    }
}

#[cfg(test)]
mod tests;
