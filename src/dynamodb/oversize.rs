//! Keeps an outcome that is too large for its record in its own item, else in an object.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use tokio::time::Instant;

use super::layout::{Attribute, CONTENT, OUTCOME};
use super::store::DynamoDbStore;
use crate::dynamodb::item::number;
use crate::protocol::key::{RecordId, truncate};
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::Owner;
use crate::store::StoreError;

/// Bounds an item's content:
/// [400 KB](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html),
/// less the bytes of the key and the names.
const MOST_BYTES: usize = 400 * 1_024 - 3 * 1_024;

/// Bounds the part of a record's id that begins the id of its outcome, so that the latter fits a
/// sort key (1,024 bytes).
const MAX_ID_BYTES_IN_OUTCOME_ID: usize = 900;

/// The error of an engine without the bucket that another one has put the outcome into.
const NO_BUCKET: &str = "the outcome is in a bucket: set `outcome_bucket`, of the feature `s3`";

/// Makes the id of this owner's outcome. No two owners are the same, so a part of a long id is
/// enough.
fn outcome_id(id: &RecordId, owner: &Owner) -> String {
    let start = truncate(id.as_str(), MAX_ID_BYTES_IN_OUTCOME_ID);
    format!("{start}{OUTCOME}{}", owner.as_str())
}

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
    let id = outcome_id(&outcome.id, &outcome.owner);
    let mut item = store.layout.key_item(&id);
    let content = AttributeValue::B(Blob::new(outcome.content.clone()));
    item.insert(CONTENT.to_owned(), content);
    let expiration = store.layout.name(Attribute::Expiration).to_owned();
    item.insert(expiration, number(outcome.expiration.0));
    let request = store.client.put_item().table_name(&store.table);
    let request = Box::pin(request.set_item(Some(item)).send());
    match store.call("dynamodb:PutItem", deadline, request).await? {
        Ok(_) => Ok(Place::Entry(outcome.owner.clone())),
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
    if let (Place::Object(owner), Some(bucket)) = (place, &store.bucket) {
        return bucket.get(id, owner, deadline).await;
    }
    let owner = match place {
        Place::Entry(owner) => owner,
        Place::Object(_) => return Err(StoreError::Misconfigured(NO_BUCKET.into())),
        Place::Record(_) => return Ok(None),
    };
    let item = store.get(&outcome_id(id, owner), deadline).await?;
    Ok(match item.and_then(|mut item| item.remove(CONTENT)) {
        Some(AttributeValue::B(content)) => Some(content.into_inner()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::dynamodb::wire::Wire;
    use crate::protocol::clock::EpochSeconds;
    use crate::protocol::key::Key;
    use crate::protocol::key::Namespace;

    fn resolve(key: &Key) -> RecordId {
        key.resolve(&Namespace::new("payments").unwrap(), 255)
            .unwrap()
    }

    #[test]
    fn the_id_of_an_outcome_keeps_the_namespace_and_fits_a_sort_key() {
        let owner = "0123456789abcdef0123456789abcdef";
        let of = |id: &RecordId| outcome_id(id, &Owner::from_stored(owner));
        let id = resolve(&Key::new("charge", "t"));
        let expected = format!("{}#outcome#{owner}", id.as_str());
        assert_eq!(of(&id), expected);
        let long = resolve(&Key::raw("charge", "x".repeat(2_000)));
        assert_eq!(of(&long), format!("{}#outcome#{owner}", "x".repeat(900)));
        assert!(of(&long).ends_with(owner));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_that_fits_an_item_is_sent_and_one_more_byte_is_too_large() {
        let wire = Wire::answering([Some((200, json!({})))]);
        let store = wire.store();
        let kept = async |bytes| {
            let (id, owner) = (resolve(&Key::new("charge", "t")), Owner::from_stored("me"));
            let outcome = LargeOutcome {
                id,
                owner,
                content: vec![0; bytes],
                expiration: EpochSeconds(9),
            };
            keep(&store, &outcome, Instant::now() + Duration::from_secs(1)).await
        };
        // What an item takes, less the longest keys.
        let most = 400 * 1_024 - 2_048 - 1_024;
        let place = kept(most).await.unwrap();
        assert_eq!(place, Place::Entry(Owner::from_stored("me")));
        let larger = kept(most + 1).await;
        assert_matches!(larger, Err(StoreError::TooLarge));
        assert_eq!(wire.actions(), ["PutItem"]);
    }
}
