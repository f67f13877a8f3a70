//! Commits business writes and the final record in one `TransactWriteItems`, or the record alone.

use std::any::Any;
use std::collections::HashMap;

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as ServiceError;
use aws_sdk_dynamodb::types::builders::{
    ConditionCheckBuilder, DeleteBuilder, PutBuilder, UpdateBuilder,
};
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, ConditionCheck, Delete, Put, ReturnValue,
    ReturnValuesOnConditionCheckFailure as OnFailure, TransactWriteItem, Update,
};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::dynamodb::change::Expressions;
use crate::dynamodb::error::{Met, classify, says_too_large, throttled};
use crate::dynamodb::layout::{Item, as_item};
use crate::dynamodb::store::{DynamoDbStore, Retries};
use crate::dynamodb::{change, client, item};
use crate::protocol::causes::in_words;
use crate::protocol::record::Final;
use crate::store::transaction::{Commit, Committed, Refusal, Write, WriteError};
use crate::store::{Answer, StoreError};

#[cfg(test)]
mod tests;

/// The bytes that a record may have beside what a completion writes: the names of its attributes,
/// and the values that a claim and its attempts left.
const RECORD_ROOM: usize = 2 * 1_024;
/// Bounds the bytes of a record without its outcome.
const MOST_OF_A_BARE_RECORD: usize = 8 * 1_024;

const ACTIONS: &str = "dynamodb:PutItem, UpdateItem, DeleteItem or ConditionCheckItem, as the transaction's writes need,";

/// Sends the transaction. Boxed, as [`Transact`] asks.
fn transact<'a>(
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
    let (reply, is_silent) = client::in_time(deadline, Box::pin(request)).await?;
    match reply {
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
                let error = classify(&tables, &store.layout, ACTIONS, &error);
                Err(error.uncertain_if(is_silent))
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
    // The writes alone were admitted: the outcome is left out.
    if commit.record.is_some() && actions.iter().map(bytes_of).sum::<usize>() > MOST_BYTES {
        return Err(StoreError::TooLarge);
    }
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
            let write = commit.writes.get(refusal.index);
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
            Committed::Refused(Refusal::new(refusal.index, met))
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

/// DynamoDB's words without the handler's values, some of which DynamoDB quotes: this text is logged.
pub(super) fn without_values(message: &str) -> String {
    // The words before a value, and those after the last one.
    const QUOTES: [(&str, &str); 4] = [
        ("numeric value", ""),
        ("Input collection [", "]"),
        ("AttributeValue: {", "}"),
        ("Value '", "' at '"),
    ];
    let quotes = QUOTES.into_iter().filter_map(|(begin, end)| {
        let (before, rest) = message.split_once(begin)?;
        let after = rest.rfind(end).and_then(|end| rest.get(end..));
        Some((before, begin, after.unwrap_or_default()))
    });
    match quotes.min_by_key(|(before, ..)| before.len()) {
        Some((before, begin, after)) => format!("{before}{begin}…{after}"),
        None => message.to_owned(),
    }
}

fn cancelled(what: &str, reason: &CancellationReason) -> StoreError {
    let message = without_values(reason.message().unwrap_or_default());
    match code(reason) {
        "TransactionConflict" => StoreError::Conflict,
        "ThrottlingError" | "ProvisionedThroughputExceeded" | "ThrottlingException" => {
            throttled(format!("the table of {what}"), &message)
        }
        code => StoreError::Rejected(
            format!("{what} cancelled the transaction: {code}: {message}").into(),
        ),
    }
}

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
            .map_or(0, |values| values.values().map(item::of_value).sum())
    };
    if let Some(put) = &write.put {
        item::of_item(&put.item)
    } else if let Some(update) = &write.update {
        item::of_item(&update.key) + values(&update.expression_attribute_values)
    } else {
        0
    }
}

/// [The most actions](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html)
/// in one transaction, less the record's.
const MOST_WRITES: usize = 99;

fn carrying(action: Result<TransactWriteItem, String>) -> Write {
    Write::new(Body { action, transact })
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

/// Asks for the item that a failing condition meets, unless the write has its own setting.
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
        MOST_BYTES - MOST_OF_A_BARE_RECORD,
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

/// Sends a commit, once: with business writes as a transaction, else as one conditional write of
/// the record. The engine sends it again: a retry of the SDK would hide a send that got no answer,
/// and that may apply after a later one was refused.
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
            let Body { transact, .. } =
                body(first).map_err(|error| StoreError::Rejected(error.into()))?;
            transact(store, commit, deadline).await
        }
        // For half of what it would cost in a transaction. The write has no token: a copy of one that
        // applied is refused, and its answer shows the record that the first one left.
        ([], Some(record)) => {
            let change = change::finish(&store.layout, record);
            let (id, nothing) = (&record.completion.id, ReturnValue::None);
            let answer = store.apply(id, change, nothing, Retries::Engine, deadline);
            Ok(match answer.await? {
                Answer::Applied(_) => Committed::Applied,
                Answer::Refused(found) => Committed::Fenced(found),
            })
        }
        ([], None) => Ok(Committed::Applied),
    }
}
