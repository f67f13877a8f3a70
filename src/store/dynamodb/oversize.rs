//! Outcomes that are too large for their record: an item of their own, else an object.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use tokio::time::Instant;

use super::DynamoDbStore;
use super::item::number;
use super::layout::Attribute;
use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};

/// The attribute that holds it.
const CONTENT: &str = "content";

/// The most that an item's content may have:
/// [400 KB](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html), less what the key and the names
/// take.
const MOST_BYTES: usize = 400 * 1_024 - 3 * 1_024;

pub(super) async fn keep(
    store: &DynamoDbStore,
    outcome: &LargeOutcome,
    deadline: Instant,
) -> Result<Place, StoreError> {
    if outcome.content.len() > MOST_BYTES {
        #[cfg(feature = "s3")]
        if let Some(bucket) = &store.bucket {
            bucket.put(outcome, deadline).await?;
            return Ok(Place::Object(outcome.owner.clone()));
        }
        return Err(StoreError::TooLarge);
    }
    let id = outcome.id.outcome_of(outcome.owner.as_str());
    let mut item = store.layout.key_item(&id);
    let content = AttributeValue::B(Blob::new(outcome.content.clone()));
    item.insert(CONTENT.to_owned(), content);
    let expiration = store.layout.name(Attribute::Expiration).to_owned();
    item.insert(expiration, number(outcome.expiration.0));
    let request = store.client.put_item().table_name(&store.table);
    let request = Box::pin(request.set_item(Some(item)).send());
    match store.call("dynamodb:PutItem", deadline, request).await? {
        Ok(_) => Ok(Place::Item(outcome.owner.clone())),
        // It has no condition that could fail.
        Err(_) => Err(StoreError::Conflict),
    }
}

pub(super) async fn fetch(
    store: &DynamoDbStore,
    id: &RecordId,
    place: &Place,
    deadline: Instant,
) -> Result<Option<Vec<u8>>, StoreError> {
    #[cfg(feature = "s3")]
    if let Place::Object(owner) = place {
        return match &store.bucket {
            Some(bucket) => bucket.get(id, owner, deadline).await,
            None => Ok(None),
        };
    }
    let Place::Item(owner) = place else {
        return Ok(None);
    };
    let key = store.layout.key_item(&id.outcome_of(owner.as_str()));
    let request = Box::pin(
        store
            .client
            .get_item()
            .table_name(&store.table)
            .set_key(Some(key))
            .consistent_read(true)
            .send(),
    );
    let reply = store.call("dynamodb:GetItem", deadline, request).await?;
    let item = reply.ok().and_then(|output| output.item);
    Ok(match item.and_then(|mut item| item.remove(CONTENT)) {
        Some(AttributeValue::B(content)) => Some(content.into_inner()),
        _ => None,
    })
}
