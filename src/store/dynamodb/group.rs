//! Many writes, or reads, in one request.
//!
//! Each statement of a group is conditional and answers for itself. What a group can't settle, because one statement was
//! throttled, say, is sent again as a single request, which says in words what is wrong. Where the function lacks a
//! permission that only groups need, single requests do the work, with one warning.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum as Code, BatchStatementResponse, KeysAndAttributes,
};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::time::Instant;

use super::change::{self, Change};
use super::layout::Item;
use super::statement::{Statement, Statements, Verb};
use super::{DynamoDbStore, item};
use crate::error::StoreError;
use crate::key::RecordId;
use crate::record::{Completion, Found, NewClaim, Release};
use crate::store::{Answer, Store};

/// [The most statements](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html) in
/// one `BatchExecuteStatement`.
const MOST_STATEMENTS: usize = 25;
/// The most keys in one `BatchGetItem`.
const MOST_KEYS: usize = 100;
/// Far below what a request may have, so that a few large outcomes don't make one.
const MOST_BYTES: usize = 1_024 * 1_024;

/// Which grouped actions the function turned out not to have.
#[derive(Clone, Debug, Default)]
pub(super) struct Denied(Arc<[AtomicBool; 3]>);

/// A permission that only groups need.
#[derive(Clone, Copy, Debug)]
enum Action {
    Insert,
    Update,
    Get,
}

impl Action {
    fn of(verb: Verb) -> Self {
        match verb {
            Verb::Insert => Self::Insert,
            Verb::Update => Self::Update,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Insert => "dynamodb:PartiQLInsert",
            Self::Update => "dynamodb:PartiQLUpdate",
            Self::Get => "dynamodb:BatchGetItem",
        }
    }
}

impl Denied {
    fn has(&self, action: Action) -> bool {
        self.flag(action)
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn note(&self, action: Action, table: &str) {
        let first = self
            .flag(action)
            .is_some_and(|flag| !flag.swap(true, Ordering::Relaxed));
        if first {
            tracing::warn!(
                event = "groups_denied",
                table,
                action = action.name(),
                "idempotency: requests go out one by one; allow the function this action to group them"
            );
        }
    }

    fn flag(&self, action: Action) -> Option<&AtomicBool> {
        self.0.get(action as usize)
    }
}

pub(super) async fn create_all(
    store: &DynamoDbStore,
    claims: &[NewClaim],
    deadline: Instant,
) -> Vec<Result<Answer, StoreError>> {
    // An INSERT into a table that has only the first of two keys would be taken: there, single requests are stricter.
    let mut replies = if store.layout.is_composite() {
        claims.iter().map(|_| Reply::Unsettled).collect()
    } else {
        let create = |claim| change::create(&store.layout, claim);
        let groups = gather(store, Verb::Insert, &mut claims.iter().map(create));
        execute(store, Verb::Insert, groups, deadline).await
    };
    let is_loser = |reply: &Reply| matches!(reply, Reply::Duplicate);
    let losers: Vec<_> = claims
        .iter()
        .zip(&replies)
        .filter(|(_, reply)| is_loser(reply))
        .map(|(claim, _)| claim.id.clone())
        .collect();
    if !losers.is_empty() {
        let met = load_all(store, &losers, deadline).await;
        for (reply, met) in replies.iter_mut().filter(|reply| is_loser(reply)).zip(met) {
            *reply = match met {
                Ok(found) => Reply::Refused(found),
                Err(error) => Reply::Failed(error),
            };
        }
    }
    let single = |claim| store.create(claim, deadline).boxed();
    let singles = undecided(claims, &replies).map(single).collect();
    settle(replies, singles).await
}

pub(super) async fn complete_all(
    store: &DynamoDbStore,
    completions: &[Completion],
    deadline: Instant,
) -> Vec<Result<Answer, StoreError>> {
    let complete = |completion| change::complete(&store.layout, completion);
    let groups = gather(store, Verb::Update, &mut completions.iter().map(complete));
    let replies = execute(store, Verb::Update, groups, deadline).await;
    let single = |completion| store.complete(completion, deadline).boxed();
    let singles = undecided(completions, &replies).map(single).collect();
    settle(replies, singles).await
}

pub(super) async fn release_all(
    store: &DynamoDbStore,
    releases: &[Release],
    deadline: Instant,
) -> Vec<Result<Answer, StoreError>> {
    let release = |release| change::release(&store.layout, release);
    let groups = gather(store, Verb::Update, &mut releases.iter().map(release));
    let replies = execute(store, Verb::Update, groups, deadline).await;
    let single = |release| store.release(release, deadline).boxed();
    let singles = undecided(releases, &replies).map(single).collect();
    settle(replies, singles).await
}

/// What a statement of a group answered.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives for a moment, between a reply and an answer"
)]
#[derive(Debug)]
enum Reply {
    Applied,
    /// The condition failed, and this was met.
    Refused(Option<Found>),
    /// An INSERT met a record, which DynamoDB doesn't show.
    Duplicate,
    /// The group didn't decide it.
    Unsettled,
    Failed(StoreError),
}

/// A request by itself. Boxed: it is rare, and so what waits for it is compiled once for all kinds of requests.
type Single<'a> = BoxFuture<'a, Result<Answer, StoreError>>;

/// The requests that the groups didn't decide: those are sent by themselves.
fn undecided<'r, R>(requests: &'r [R], replies: &[Reply]) -> impl Iterator<Item = &'r R> {
    let is_open = |reply: &Reply| matches!(reply, Reply::Duplicate | Reply::Unsettled);
    let open = requests.iter().zip(replies);
    open.filter(move |(_, reply)| is_open(reply))
        .map(|(request, _)| request)
}

/// The answers to all requests; `singles` are those that the groups didn't decide.
async fn settle(replies: Vec<Reply>, singles: Vec<Single<'_>>) -> Vec<Result<Answer, StoreError>> {
    let mut open = join_all(singles).await.into_iter();
    let answers = replies.into_iter().map(|reply| match reply {
        Reply::Applied => Ok(Answer::Applied(())),
        Reply::Refused(found) => Ok(Answer::Refused(found)),
        Reply::Failed(error) => Err(error),
        // Each of them was sent.
        Reply::Duplicate | Reply::Unsettled => open.next().unwrap_or(Err(StoreError::Timeout)),
    });
    answers.collect()
}

/// The changes as statements, in as few groups as they fit in.
///
/// Whatever kind of changes they are, it is the same code: hence no generic iterator.
fn gather(
    store: &DynamoDbStore,
    verb: Verb,
    changes: &mut dyn Iterator<Item = Change<'_>>,
) -> Vec<Vec<Statement>> {
    let mut statements = Statements::of(store, verb);
    let mut groups: Vec<Vec<Statement>> = Vec::new();
    let mut bytes = 0;
    for change in changes {
        let statement = statements.make(change);
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

/// Sends the groups. One reply a statement, in their order.
async fn execute(
    store: &DynamoDbStore,
    verb: Verb,
    groups: Vec<Vec<Statement>>,
    deadline: Instant,
) -> Vec<Reply> {
    let action = Action::of(verb);
    let sent = groups
        .into_iter()
        .map(|group| send(store, action, group, deadline));
    join_all(sent).await.into_iter().flatten().collect()
}

async fn send(
    store: &DynamoDbStore,
    action: Action,
    group: Vec<Statement>,
    deadline: Instant,
) -> Vec<Reply> {
    let size = group.len();
    let unsettled = || {
        std::iter::repeat_with(|| Reply::Unsettled)
            .take(size)
            .collect()
    };
    // A group of one has no advantage over a single request, which shows the record that it met.
    if size < 2 || store.denied.has(action) {
        return unsettled();
    }
    let Ok(statements) = group
        .into_iter()
        .map(Statement::into_request)
        .collect::<Result<Vec<_>, _>>()
    else {
        return unsettled();
    };
    let request = Box::pin(
        store
            .client
            .batch_execute_statement()
            .set_statements(Some(statements))
            .send(),
    );
    let output = match store.call(action.name(), deadline, request).await {
        Ok(Ok(output)) => output,
        Err(StoreError::AccessDenied { .. }) => {
            store.denied.note(action, &store.table);
            return unsettled();
        }
        // The group as a whole is gone, by the network or the deadline: so is the time for asking one by one.
        Err(StoreError::Timeout) => {
            return std::iter::repeat_with(|| Reply::Failed(StoreError::Timeout))
                .take(size)
                .collect();
        }
        Err(StoreError::Unavailable(cause)) => {
            // An error can't be cloned, its words can.
            let words = cause.to_string();
            let failed = || Reply::Failed(StoreError::Unavailable(words.clone().into()));
            return std::iter::repeat_with(failed).take(size).collect();
        }
        Ok(Err(_)) | Err(_) => return unsettled(),
    };
    let mut replies: Vec<_> = output
        .responses()
        .iter()
        .map(|response| read(store, action, response))
        .collect();
    replies.resize_with(size, || Reply::Unsettled);
    replies
}

fn read(store: &DynamoDbStore, action: Action, response: &BatchStatementResponse) -> Reply {
    let Some(error) = response.error() else {
        return Reply::Applied;
    };
    match error.code() {
        Some(Code::DuplicateItem) => Reply::Duplicate,
        Some(Code::ConditionalCheckFailed) => {
            Reply::Refused(error.item().map(|item| item::decode(&store.layout, item)))
        }
        Some(Code::AccessDenied) => {
            store.denied.note(action, &store.table);
            Reply::Unsettled
        }
        _ => Reply::Unsettled,
    }
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
    match read_group(store, ids, deadline).await {
        Some(mut found) => ids.iter().map(|id| Ok(found.remove(id.as_str()))).collect(),
        // Boxed, as each single request is.
        None => join_all(ids.iter().map(|id| store.load(id, deadline).boxed())).await,
    }
}

/// The records by id; `None` where they must be read one by one.
async fn read_group(
    store: &DynamoDbStore,
    ids: &[RecordId],
    deadline: Instant,
) -> Option<HashMap<String, Found>> {
    let distinct = ids.iter().collect::<HashSet<_>>().len() == ids.len();
    if ids.len() < 2 || !distinct || store.denied.has(Action::Get) {
        return None;
    }
    let key = |id: &RecordId| store.layout.key_item(id.as_str());
    let mut keys: Vec<Item> = ids.iter().map(key).collect();
    let mut records = HashMap::new();
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
            Err(StoreError::AccessDenied { .. }) => {
                store.denied.note(Action::Get, &store.table);
                return None;
            }
            _ => return None,
        };
        for item in output
            .responses
            .unwrap_or_default()
            .remove(&store.table)
            .unwrap_or_default()
        {
            if let Some(AttributeValue::S(id)) = item.get(store.layout.id_attribute()) {
                records.insert(id.clone(), item::decode(&store.layout, &item));
            }
        }
        let rest = output
            .unprocessed_keys
            .unwrap_or_default()
            .remove(&store.table);
        match rest {
            Some(rest) if !rest.keys.is_empty() => keys = rest.keys,
            _ => return Some(records),
        }
        if Instant::now() + pause >= deadline {
            return None;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}
