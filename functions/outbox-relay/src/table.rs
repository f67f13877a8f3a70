//! The outbox table: read by key, marked when published, swept by its index.

use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue::{self, N, S};
use aws_sdk_dynamodb::types::{
    KeysAndAttributes, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use lambda_idempotency::dynamodb::outbox::{PENDING_BUCKETS, PENDING_INDEX, StoredEvent};

use crate::event::Place;

/// The most keys in one `BatchGetItem`.
const MOST_KEYS: usize = 100;

/// The most requests for the same keys, where DynamoDB leaves some unprocessed.
const TRIES: u32 = 5;

/// The number of keys of a bucket that are read at a time.
const PAGE: i32 = 100;

/// The codes of errors after which nothing was done: a send that is tried again gets others.
const REFUSALS: [&str; 3] = [
    "AccessDeniedException",
    "ResourceNotFoundException",
    "ValidationException",
];

pub(crate) type Item = HashMap<String, AttributeValue>;

/// An event's aggregate and id, which are its key.
pub(crate) type EventKey = (String, String);

/// The items of the table under some keys.
pub(crate) struct Loaded {
    /// Strongly consistent, in the order of the keys. One that TTL has deleted is left out.
    pub(crate) events: Vec<StoredEvent>,
    /// The keys of items that are no events.
    pub(crate) unreadable: Vec<EventKey>,
}

/// A part of a bucket of the index, oldest first.
pub(crate) struct Page {
    /// The time at which each was recorded, and its key.
    pub(crate) keys: Vec<(i64, EventKey)>,
    /// The start of the next page; `None` at the bucket's end.
    pub(crate) next: Option<Item>,
}

pub(crate) struct Table {
    client: Client,
    name: String,
    keep_published: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("the outbox table failed: {problem}")]
pub(crate) struct TableError {
    problem: String,
    /// What was asked may be done.
    pub(crate) may_be_done: bool,
}

impl TableError {
    pub(crate) fn no_answer_in_time() -> Self {
        Self::unknown("it didn't answer before the invocation's end".to_owned())
    }

    fn of(error: impl StdError + 'static) -> Self {
        Self::unknown(DisplayErrorContext(&error).to_string())
    }

    fn unknown(problem: String) -> Self {
        let may_be_done = true;
        Self {
            problem,
            may_be_done,
        }
    }
}

impl Table {
    pub(crate) fn new(config: &SdkConfig, name: String, keep_published: Duration) -> Self {
        Self {
            client: Client::new(config),
            name,
            keep_published,
        }
    }

    /// Returns the events under these keys, each once: a stream may announce a key twice, and one request may not name it twice. Names
    /// the items that are no events.
    pub(crate) async fn load(&self, mut keys: Vec<EventKey>) -> Result<Loaded, TableError> {
        let (mut found, mut unreadable) = (HashMap::new(), Vec::new());
        let mut known = HashSet::new();
        keys.retain(|key| known.insert(key.clone()));
        for chunk in keys.chunks(MOST_KEYS) {
            for item in self.get(chunk.iter().map(key).collect()).await? {
                match StoredEvent::from_item(&item) {
                    Ok(event) => drop(found.insert(key_of(&event), event)),
                    Err(error) => {
                        let id = event_key(&item).map(|key| key.1);
                        tracing::error!(%error, event_id = id, "left alone");
                        unreadable.extend(event_key(&item));
                    }
                }
            }
        }
        let events = keys.iter().filter_map(|key| found.remove(key)).collect();
        Ok(Loaded { events, unreadable })
    }

    async fn get(&self, mut keys: Vec<Item>) -> Result<Vec<Item>, TableError> {
        let mut items = Vec::new();
        for round in 0..TRIES {
            let wanted = KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .consistent_read(true);
            let wanted = wanted.build().map_err(TableError::of)?;
            let request = self
                .client
                .batch_get_item()
                .request_items(&self.name, wanted);
            let reply = request.send().await.map_err(TableError::of)?;
            items.extend(reply.responses.unwrap_or_default().into_values().flatten());
            let left = reply.unprocessed_keys.unwrap_or_default();
            keys = left.into_values().flat_map(|left| left.keys).collect();
            if keys.is_empty() {
                return Ok(items);
            }
            tokio::time::sleep(Duration::from_millis(50) * 2_u32.pow(round)).await;
        }
        let problem = "it left keys unprocessed: throttled";
        Err(TableError::unknown(problem.to_owned()))
    }

    /// The pending events of a transaction in an aggregate. This reads all that the table has of the aggregate.
    pub(crate) async fn pending_of(
        &self,
        aggregate: &str,
        transaction: &str,
    ) -> Result<Vec<StoredEvent>, TableError> {
        let request = self
            .client
            .query()
            .table_name(&self.name)
            .consistent_read(true)
            .key_condition_expression("#aggregate = :aggregate")
            .filter_expression("#transaction = :transaction AND attribute_exists(pending)")
            .expression_attribute_names("#aggregate", "aggregate")
            .expression_attribute_names("#transaction", "transaction")
            .expression_attribute_values(":aggregate", S(aggregate.to_owned()))
            .expression_attribute_values(":transaction", S(transaction.to_owned()));
        let mut items = request.into_paginator().items().send();
        let mut events = Vec::new();
        while let Some(item) = items.next().await {
            // An item that is no event is parked by its own key.
            events.extend(StoredEvent::from_item(&item.map_err(TableError::of)?));
        }
        Ok(events)
    }

    /// Takes the event out of the index, and lets TTL have it.
    pub(crate) async fn mark(&self, event: &StoredEvent) -> Result<(), TableError> {
        let now = SystemTime::now();
        let expiration = seconds(now + self.keep_published);
        let request = self
            .update(&key_of(event))
            .update_expression(
                "SET published_at = :now, expiration = :expiration REMOVE pending, parked_at, refusals",
            )
            // An event that TTL has deleted isn't brought back.
            .condition_expression("attribute_exists(id)")
            .expression_attribute_values(":now", N(seconds(now).to_string()))
            .expression_attribute_values(":expiration", N(expiration.to_string()));
        done_or_gone(request.send().await)
    }

    fn update(&self, event: &EventKey) -> UpdateItemFluentBuilder {
        let update = self.client.update_item().table_name(&self.name);
        update.set_key(Some(key(event)))
    }

    /// Notes that the target refused the event in one more sweep.
    pub(crate) async fn note_refusal(&self, event: &StoredEvent) -> Result<(), TableError> {
        let request = self
            .update(&key_of(event))
            .update_expression("ADD refusals :one")
            .condition_expression("attribute_exists(pending)")
            .expression_attribute_values(":one", N("1".to_owned()));
        done_or_gone(request.send().await)
    }

    /// Takes what can't be published out of the index, until an operator puts it back. It doesn't expire. Returns whether it was
    /// pending: also where the answer to an earlier send was lost.
    pub(crate) async fn park(&self, parked: &EventKey) -> Result<bool, TableError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = N(now.unwrap_or_default().as_millis().to_string());
        let request = self
            .update(parked)
            .update_expression("SET parked_at = :now REMOVE pending, expiration")
            .condition_expression("attribute_exists(pending)")
            .expression_attribute_values(":now", now.clone())
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        let met = met(request.send().await)?;
        Ok(met.is_none_or(|item| item.get("parked_at") == Some(&now)))
    }

    /// Reads a page of the whole table: the events that are parked. An item that is no event stays parked.
    pub(crate) async fn parked(
        &self,
        from: Option<&Place>,
    ) -> Result<(Vec<StoredEvent>, Option<Place>), TableError> {
        let from = from.map(|from| key(&(from.aggregate.clone(), from.id.clone())));
        let request = self
            .client
            .scan()
            .table_name(&self.name)
            .consistent_read(true)
            .filter_expression("attribute_exists(parked_at) AND attribute_not_exists(pending)")
            .set_exclusive_start_key(from);
        let reply = request.send().await.map_err(TableError::of)?;
        let events = reply.items().iter().flat_map(StoredEvent::from_item);
        let next = reply.last_evaluated_key().and_then(event_key);
        let next = next.map(|(aggregate, id)| Place { aggregate, id });
        Ok((events.collect(), next))
    }

    /// Puts a parked event back into the index, as if nobody had refused it.
    pub(crate) async fn put_back(&self, event: &StoredEvent) -> Result<(), TableError> {
        let starts = |bucket: &&str| event.id.starts_with(*bucket);
        let bucket = PENDING_BUCKETS.into_iter().find(starts).unwrap_or("0");
        let request = self
            .update(&key_of(event))
            .update_expression("SET pending = :bucket REMOVE parked_at, refusals")
            .condition_expression("attribute_exists(parked_at) AND attribute_not_exists(pending)")
            .expression_attribute_values(":bucket", S(bucket.to_owned()));
        done_or_gone(request.send().await)
    }

    /// Reads a page of the events in this bucket that were recorded before, oldest first.
    pub(crate) async fn pending(
        &self,
        bucket: &str,
        before: SystemTime,
        from: Option<Item>,
    ) -> Result<Page, TableError> {
        let before = before.duration_since(UNIX_EPOCH).unwrap_or_default();
        let request = self
            .client
            .query()
            .table_name(&self.name)
            .index_name(PENDING_INDEX)
            .key_condition_expression("pending = :bucket AND recorded_at < :before")
            .expression_attribute_values(":bucket", S(bucket.to_owned()))
            .expression_attribute_values(":before", N(before.as_millis().to_string()))
            .set_exclusive_start_key(from)
            .limit(PAGE);
        let reply = request.send().await.map_err(TableError::of)?;
        // An item whose number has a fraction is no event, and is parked like others.
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
        let recorded = |item: &Item| {
            let number: f64 = item.get("recorded_at")?.as_n().ok()?.parse().ok()?;
            Some(number.floor() as i64)
        };
        let keys = reply
            .items()
            .iter()
            .filter_map(|item| Some((recorded(item)?, event_key(item)?)));
        Ok(Page {
            keys: keys.collect(),
            next: reply.last_evaluated_key,
        })
    }
}

fn done_or_gone<T>(reply: Result<T, SdkError<UpdateItemError>>) -> Result<(), TableError> {
    met(reply).map(drop)
}

/// A condition that fails says that the event is gone, or was dealt with elsewhere. Returns the item that it met, as far as the request
/// asks for it; `None` where the condition held.
fn met<T>(reply: Result<T, SdkError<UpdateItemError>>) -> Result<Option<Item>, TableError> {
    match reply {
        Ok(_) => Ok(None),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                Ok(Some(failed.item.clone().unwrap_or_default()))
            }
            _ => Err(TableError {
                may_be_done: error.code().is_none_or(|code| !REFUSALS.contains(&code)),
                ..TableError::of(error)
            }),
        },
    }
}

pub(crate) fn key_of(event: &StoredEvent) -> EventKey {
    (event.aggregate.clone(), event.id.clone())
}

fn event_key(item: &Item) -> Option<EventKey> {
    let text = |name: &str| item.get(name)?.as_s().ok().cloned();
    Some((text("aggregate")?, text("id")?))
}

fn key((aggregate, id): &EventKey) -> Item {
    HashMap::from([
        ("aggregate".to_owned(), S(aggregate.clone())),
        ("id".to_owned(), S(id.clone())),
    ])
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
