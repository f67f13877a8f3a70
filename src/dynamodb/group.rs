//! Sends many writes, or reads, in one request.
//!
//! Each statement of a group is conditional and has its own answer. One that was throttled or in
//! conflict is answered so, and holds up none of the others. One that can't leave in a group, or
//! was not settled by it, is `NotSent`, and its caller sends it alone, which is safe: where it may have
//! applied, it is marked as uncertain, and is `Unavailable` by that. All are `NotSent` where the function
//! lacks a permission that groups alone need, with one warning.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum as Code, BatchStatementResponse, KeysAndAttributes,
};
use futures_util::future::{FutureExt, join, join_all};
use tokio::time::Instant;

use super::change;
use super::client;
use super::layout::Item;
use super::statement::{Statement, Statements, Verb};
use super::store::DynamoDbStore;
use crate::dynamodb::error::{Action, DynamoDbError, Met, classify, throttled};
use crate::protocol::key::RecordId;
use crate::protocol::record::{Found, RecordWrite};
use crate::store::grouped::{self, PATIENCE};
use crate::store::{Answer, Store, StoreError};

#[cfg(test)]
mod tests;

/// [The most statements](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html)
/// in one `BatchExecuteStatement`.
const MOST_STATEMENTS: usize = 25;
/// The most keys in one `BatchGetItem`.
const MOST_KEYS: usize = 100;
/// Bounds the bytes of a request far below its limit, so that a few large outcomes fit.
const MOST_BYTES: usize = 1_024 * 1_024;
/// The longest pause before the keys that a table left out are asked for together once more.
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

pub(super) async fn write_all(
    store: &DynamoDbStore,
    writes: &[RecordWrite],
    deadline: Instant,
) -> Vec<Result<Answer, StoreError>> {
    let mut replies: Vec<Reply> = Vec::new();
    replies.resize_with(writes.len(), || Some(Err(StoreError::NotSent)));
    let (inserts, updates) = join(
        execute(store, Verb::Insert, writes, deadline),
        execute(store, Verb::Update, writes, deadline),
    )
    .await;
    for (position, reply) in inserts.into_iter().chain(updates) {
        if let Some(slot) = replies.get_mut(position) {
            *slot = reply;
        }
    }
    let hidden = writes.iter().zip(&replies);
    let hidden = hidden.filter(|(_, reply)| reply.is_none());
    let hidden: Vec<_> = hidden.map(|(write, _)| write.id().clone()).collect();
    // This read delays the other answers no longer.
    let soon = deadline.min(Instant::now() + PATIENCE);
    let met = load_all(store, &hidden, soon).await;
    let met = hidden.iter().zip(met).map(async |(id, met)| match met {
        // Boxed, as each single request is.
        Err(StoreError::NotSent) => store.load(id, soon).boxed().await,
        met => met,
    });
    let mut met = join_all(met).await.into_iter();
    // A write was refused for certain, and a read that fails doesn't change that.
    let mut refused = || Ok(Answer::Refused(met.next().and_then(Result::ok).flatten()));
    let replies = replies.into_iter();
    replies
        .map(|reply| reply.unwrap_or_else(&mut refused))
        .collect()
}

/// The reply to one statement of a group; `None` where it was refused and doesn't show the record that it
/// met: an INSERT's never does.
type Reply = Option<Result<Answer, StoreError>>;

/// Makes statements of the writes of one kind, and returns them with the writes' positions.
fn statements_of(
    store: &DynamoDbStore,
    verb: Verb,
    writes: &[RecordWrite],
) -> (Vec<usize>, Vec<Statement>) {
    let mut statements = Statements::of(verb, &store.table, &store.layout);
    let made = writes.iter().enumerate().filter_map(|(position, write)| {
        let is_chosen = Verb::of(&store.layout, write) == Some(verb);
        let change = is_chosen.then(|| change::of(&store.layout, write))?;
        Some((position, statements.make(change)?))
    });
    made.unzip()
}

/// Divides the statements into as few groups as they fit in.
fn gather(statements: Vec<Statement>) -> Vec<Vec<Statement>> {
    let mut groups: Vec<Vec<Statement>> = Vec::new();
    let mut bytes = 0;
    for statement in statements {
        let size = statement.size();
        match groups.last_mut() {
            Some(group) if group.len() < MOST_STATEMENTS && bytes + size <= MOST_BYTES => {
                bytes += size;
                group.push(statement);
            }
            _ => {
                bytes = size;
                groups.push(vec![statement]);
            }
        }
    }
    groups
}

/// Sends the writes of one kind in groups; replies with their positions. Leaves out a write without a
/// group: a single request shows the record that it met.
async fn execute(
    store: &DynamoDbStore,
    verb: Verb,
    writes: &[RecordWrite],
    deadline: Instant,
) -> Vec<(usize, Reply)> {
    let (positions, statements) = statements_of(store, verb, writes);
    let mut positions = positions.into_iter();
    let groups = gather(statements).into_iter().map(|group| {
        let positions: Vec<_> = positions.by_ref().take(group.len()).collect();
        (positions, group)
    });
    let (positions, groups): (Vec<_>, Vec<_>) = groups.filter(|(_, group)| group.len() > 1).unzip();
    let sent = groups.into_iter();
    let sent = sent.map(|group| send(store, verb.into(), group, deadline));
    let replies = grouped::answers(sent.collect(), false).await;
    let replies = positions.into_iter().zip(replies);
    let replies = replies.flat_map(|(positions, replies)| {
        let left = || all(positions.len(), || StoreError::NotSent.uncertain());
        let replies = replies.unwrap_or_else(left);
        positions.into_iter().zip(replies)
    });
    replies.collect()
}

/// Replies to each statement of a group of this size with this error.
fn all(size: usize, error: impl Fn() -> StoreError) -> Vec<Reply> {
    let replies = std::iter::repeat_with(|| Some(Err(error())));
    replies.take(size).collect()
}

async fn send(
    store: &DynamoDbStore,
    action: Action,
    group: Vec<Statement>,
    deadline: Instant,
) -> Vec<Reply> {
    let size = group.len();
    let not_sent = || all(size, || StoreError::NotSent);
    // PartiQL is not documented to take a table's ARN, so the statements of a group would fail; single
    // requests take it.
    if store.denied.has(action) || store.table.starts_with("arn:") {
        return not_sent();
    }
    let Ok(statements) = group
        .into_iter()
        .map(Statement::into_request)
        .collect::<Result<Vec<_>, _>>()
    else {
        return not_sent();
    };
    let request = Box::pin(
        store
            .writes
            .batch_execute_statement()
            .set_statements(Some(statements))
            .send(),
    );
    let (reply, is_silent) = match client::in_time(deadline, request).await {
        Ok(replied) => replied,
        // No time is left for single requests.
        Err(StoreError::Timeout) => return all(size, || StoreError::Timeout),
        Err(_) => return not_sent(),
    };
    let output = match reply {
        Ok(output) => output,
        Err(error) => {
            let failed = || match classify(&store.table, &store.layout, action.name(), &error) {
                StoreError::Denied(reason) if reason.is::<DynamoDbError>() => {
                    store.denied.note(action, &store.table, &reason);
                    StoreError::NotSent
                }
                // A single request would meet the same.
                error @ (StoreError::Throttled(_)
                | StoreError::Unavailable(_)
                | StoreError::Denied(_)) => error,
                _ => StoreError::NotSent,
            };
            return all(size, || failed().uncertain_if(is_silent));
        }
    };
    // An earlier send of the group may have applied what the last one answers with an error.
    let mark = |error: StoreError| error.uncertain_if(is_silent);
    let replies = output.responses().iter().map(|response| {
        let reply = read(store, action, response)?;
        Some(reply.map_err(mark))
    });
    let mut replies: Vec<_> = replies.collect();
    replies.resize_with(size, || Some(Err(StoreError::NotSent.uncertain())));
    replies
}

fn read(store: &DynamoDbStore, action: Action, response: &BatchStatementResponse) -> Reply {
    let Some(error) = response.error() else {
        return Some(Ok(Answer::Applied(None)));
    };
    let message = error.message().unwrap_or_default();
    Some(Err(match error.code() {
        Some(Code::DuplicateItem) => return None,
        Some(Code::ConditionalCheckFailed) => {
            let Met(met) = Met::of(error.item());
            return met.map(|item| Ok(Answer::Refused(Some(store.layout.read(&item)))));
        }
        Some(
            Code::ThrottlingError
            | Code::ProvisionedThroughputExceeded
            | Code::RequestLimitExceeded,
        ) => throttled(format!("table `{}`", store.table), message),
        Some(Code::TransactionConflict) => StoreError::Conflict,
        Some(Code::AccessDenied) => {
            store.denied.note(action, &store.table, &message);
            StoreError::NotSent
        }
        // By itself its answer says more.
        Some(
            Code::ValidationError | Code::ResourceNotFound | Code::ItemCollectionSizeLimitExceeded,
        ) => StoreError::NotSent,
        // It may have applied: its owner shows that when it is sent again.
        _ => StoreError::NotSent.uncertain(),
    }))
}

pub(super) async fn load_all(
    store: &DynamoDbStore,
    ids: &[RecordId],
    deadline: Instant,
) -> Vec<Result<Option<Found>, StoreError>> {
    let groups = ids
        .chunks(MOST_KEYS)
        .map(|group| load_group(store, group, deadline));
    join_all(groups).await.into_iter().flatten().collect()
}

async fn load_group(
    store: &DynamoDbStore,
    ids: &[RecordId],
    deadline: Instant,
) -> Vec<Result<Option<Found>, StoreError>> {
    if let [id] = ids {
        return vec![store.load(id, deadline).await];
    }
    let Some((mut found, unread)) = read_group(store, ids, deadline).await else {
        return ids.iter().map(|_| Err(StoreError::NotSent)).collect();
    };
    let answer = |id: &RecordId| {
        if unread.contains(id.as_str()) {
            let message = "none (a read of several left the key out)";
            Err(throttled(format!("table `{}`", store.table), message))
        } else {
            Ok(found.remove(id.as_str()))
        }
    };
    ids.iter().map(answer).collect()
}

/// Reads the records by id, and returns them with the ids that the table left out, since it throttles
/// their partition. `None` where single requests must read all of them.
async fn read_group(
    store: &DynamoDbStore,
    ids: &[RecordId],
    mut deadline: Instant,
) -> Option<(HashMap<String, Found>, HashSet<String>)> {
    let distinct = ids.iter().collect::<HashSet<_>>().len() == ids.len();
    if !distinct || store.denied.has(Action::Get) {
        return None;
    }
    let key = |id: &RecordId| store.layout.key_item(id.as_str());
    let mut keys: Vec<Item> = ids.iter().map(key).collect();
    let id_of = |item: &Item| match item.get(store.layout.id_attribute()) {
        Some(AttributeValue::S(id)) => Some(id.clone()),
        _ => None,
    };
    let (mut records, mut unread) = (HashMap::new(), HashSet::new());
    let mut pause = Duration::from_millis(10);
    loop {
        let wanted = KeysAndAttributes::builder()
            .set_keys(Some(keys))
            .consistent_read(true)
            .build()
            .ok()?;
        let request = Box::pin(
            store
                .client
                .batch_get_item()
                .request_items(&store.table, wanted)
                .send(),
        );
        let output = match store.call(Action::Get.name(), deadline, request).await {
            Ok(Ok(output)) => output,
            // An earlier reply has the others.
            _ if !unread.is_empty() => return Some((records, unread)),
            Err(StoreError::Denied(reason)) if reason.is::<DynamoDbError>() => {
                store.denied.note(Action::Get, &store.table, &reason);
                return None;
            }
            _ => return None,
        };
        // One table was asked for. The reply may name it otherwise than the request did.
        for item in output.responses.unwrap_or_default().into_values().flatten() {
            if let Some(id) = id_of(&item) {
                records.insert(id, store.layout.read(&item));
            }
        }
        let rest = output.unprocessed_keys.unwrap_or_default().into_values();
        keys = rest.flat_map(|rest| rest.keys).collect();
        unread = keys.iter().filter_map(id_of).collect();
        deadline = deadline.min(Instant::now() + PATIENCE);
        if keys.is_empty() || pause > LONGEST_PAUSE || Instant::now() + pause >= deadline {
            return Some((records, unread));
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}
