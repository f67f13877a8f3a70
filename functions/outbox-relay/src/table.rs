//! The outbox table: read by key, marked when published, swept by its index.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{self, N, S};
use aws_sdk_dynamodb::types::KeysAndAttributes;
use lambda_idempotency::outbox::{PENDING_INDEX, StoredEvent};

/// The most keys in one `BatchGetItem`.
const MOST_KEYS: usize = 100;

/// How often keys that DynamoDB left unprocessed are asked for again.
const TRIES: u32 = 5;

/// How many events of each bucket one sweep takes.
const SWEPT: i32 = 100;

type Item = HashMap<String, AttributeValue>;

pub(crate) struct Table {
    client: Client,
    name: String,
    keep_published: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("the outbox table failed: {0}")]
pub(crate) struct TableError(String);

impl TableError {
    fn of(error: &(impl StdError + 'static)) -> Self {
        Self(DisplayErrorContext(error).to_string())
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

    /// The events under these keys, strongly consistent, in the order of the keys. One that TTL has deleted is left out, and so is what
    /// is no event: it would stop the stream for good.
    pub(crate) async fn load(
        &self,
        keys: Vec<(String, String)>,
    ) -> Result<Vec<StoredEvent>, TableError> {
        let mut found = HashMap::new();
        for chunk in keys.chunks(MOST_KEYS) {
            for item in self.get(chunk.iter().map(key).collect()).await? {
                match StoredEvent::from_item(&item) {
                    Ok(event) => drop(found.insert(event.id.clone(), event)),
                    Err(error) => tracing::error!(%error, "left alone"),
                }
            }
        }
        let event = |(_, id): &(String, String)| found.remove(id);
        Ok(keys.iter().filter_map(event).collect())
    }

    async fn get(&self, mut keys: Vec<Item>) -> Result<Vec<Item>, TableError> {
        let mut items = Vec::new();
        for round in 0..TRIES {
            let wanted = KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .consistent_read(true);
            let wanted = wanted.build().map_err(|error| TableError::of(&error))?;
            let request = self
                .client
                .batch_get_item()
                .request_items(&self.name, wanted);
            let reply = request
                .send()
                .await
                .map_err(|error| TableError::of(&error))?;
            items.extend(reply.responses.unwrap_or_default().into_values().flatten());
            let left = reply.unprocessed_keys.unwrap_or_default();
            keys = left.into_values().flat_map(|left| left.keys).collect();
            if keys.is_empty() {
                return Ok(items);
            }
            tokio::time::sleep(Duration::from_millis(50) * 2_u32.pow(round)).await;
        }
        Err(TableError("it left keys unprocessed: throttled".to_owned()))
    }

    /// Takes the event out of the index, and lets TTL have it.
    pub(crate) async fn mark(&self, event: &StoredEvent) -> Result<(), TableError> {
        let now = SystemTime::now();
        let expiration = seconds(now + self.keep_published);
        let request = self
            .client
            .update_item()
            .table_name(&self.name)
            .set_key(Some(key(&(event.aggregate.clone(), event.id.clone()))))
            .update_expression("SET #published = :now, #expiration = :expiration REMOVE #pending")
            // An event that TTL has deleted isn't brought back.
            .condition_expression("attribute_exists(#id)")
            .expression_attribute_names("#published", "published_at")
            .expression_attribute_names("#expiration", "expiration")
            .expression_attribute_names("#pending", "pending")
            .expression_attribute_names("#id", "id")
            .expression_attribute_values(":now", N(seconds(now).to_string()))
            .expression_attribute_values(":expiration", N(expiration.to_string()));
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                Some(failed) if failed.is_conditional_check_failed_exception() => Ok(()),
                _ => Err(TableError::of(&error)),
            },
        }
    }

    /// The keys of events in this bucket that were recorded before, oldest first.
    pub(crate) async fn pending(
        &self,
        bucket: &str,
        before: SystemTime,
    ) -> Result<Vec<(String, String)>, TableError> {
        let before = before.duration_since(UNIX_EPOCH).unwrap_or_default();
        let request = self
            .client
            .query()
            .table_name(&self.name)
            .index_name(PENDING_INDEX)
            .key_condition_expression("#pending = :bucket AND #recorded < :before")
            .expression_attribute_names("#pending", "pending")
            .expression_attribute_names("#recorded", "recorded_at")
            .expression_attribute_values(":bucket", S(bucket.to_owned()))
            .expression_attribute_values(":before", N(before.as_millis().to_string()))
            .limit(SWEPT);
        let reply = request
            .send()
            .await
            .map_err(|error| TableError::of(&error))?;
        let text = |item: &Item, name: &str| item.get(name)?.as_s().ok().cloned();
        let keys = reply
            .items()
            .iter()
            .filter_map(|item| Some((text(item, "aggregate")?, text(item, "id")?)));
        Ok(keys.collect())
    }
}

fn key((aggregate, id): &(String, String)) -> Item {
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
