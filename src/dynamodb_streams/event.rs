//! Defines the event that Lambda makes of a DynamoDB table's stream.
//!
//! [AWS's page](https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html) shows such an event.

use std::fmt;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::Value;

use crate::batch::BodyError;
use crate::dynamodb_streams::plain::{write_item, write_text};
use crate::protocol::fingerprint::Fingerprint;
use crate::streams::{OtherService, check_service, seconds};

/// Holds a batch of records of one shard.
///
/// Deserializing the event of another service fails with an error that names this service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct DynamoDbStreamEvent {
    /// The records, in the order of their sequence numbers.
    #[serde(rename = "Records")]
    pub records: Vec<DynamoDbStreamRecord>,
}

/// Holds the record of one change of one item. A field that the event lacks is `None`. The keys and
/// the images are in the body, which is decoded to a [`Change`](super::Change).
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Received")]
#[non_exhaustive]
pub struct DynamoDbStreamRecord {
    /// The id of the record, unique within the stream.
    pub event_id: Option<String>,
    /// The kind of the change: `INSERT`, `MODIFY` or `REMOVE`.
    pub event_name: Option<String>,
    /// The ARN of the stream.
    pub event_source_arn: Option<String>,
    /// The number of the record in its shard. The reply names records by it.
    pub sequence_number: Option<String>,
    /// The time of the change, with a resolution of seconds.
    pub approximate_creation: Option<SystemTime>,
    /// The service that made the change on its own account.
    pub user_identity: Option<UserIdentity>,
    body: Result<Vec<u8>, BodyError>,
    order_key: Option<String>,
}

/// Names the service that made a change on its own account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UserIdentity {
    /// The kind of the identity, such as `Service`.
    pub r#type: Option<String>,
    /// The name of the identity, such as `dynamodb.amazonaws.com`.
    pub principal_id: Option<String>,
}

impl DynamoDbStreamRecord {
    /// Tells whether DynamoDB removed the item because its
    /// [time to live](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html)
    /// was over. In a global table, the replicas' streams don't tell such a removal from another:
    /// it is `true` only in the region where the item expired.
    ///
    /// ```
    /// use lambda_idempotency::dynamodb_streams::DynamoDbStreamRecord;
    ///
    /// let record: DynamoDbStreamRecord = serde_json::from_str(
    ///     r#"{"eventName": "REMOVE", "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}}"#,
    /// )?;
    /// assert!(record.is_expiry());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn is_expiry(&self) -> bool {
        let is_of_dynamodb = self.user_identity.as_ref().is_some_and(|identity| {
            identity.r#type.as_deref() == Some("Service")
                && identity.principal_id.as_deref() == Some("dynamodb.amazonaws.com")
        });
        is_of_dynamodb && self.event_name.as_deref() == Some("REMOVE")
    }

    pub(super) fn body(&self) -> Result<&[u8], BodyError> {
        self.body.as_deref().map_err(|error| *error)
    }

    /// Names the item: its table, and a hash of its keys.
    pub(super) fn order_key(&self) -> Option<&str> {
        self.order_key.as_deref()
    }
}

/// Shows the ids: the keys and the images are not for logs.
impl fmt::Debug for DynamoDbStreamRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStreamRecord")
            .field("event_id", &self.event_id)
            .field("event_name", &self.event_name)
            .field("event_source_arn", &self.event_source_arn)
            .field("sequence_number", &self.sequence_number)
            .field("approximate_creation", &self.approximate_creation)
            .field("user_identity", &self.user_identity)
            .finish_non_exhaustive()
    }
}

/// A record as Lambda writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    #[serde(rename = "eventID")]
    event_id: Option<String>,
    event_name: Option<String>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    /// SNS writes it with a capital letter.
    #[serde(alias = "EventSource")]
    event_source: Option<String>,
    user_identity: Option<UserIdentity>,
    dynamodb: Option<Images>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Images {
    approximate_creation_date_time: Option<f64>,
    keys: Option<Value>,
    old_image: Option<Value>,
    new_image: Option<Value>,
    sequence_number: Option<String>,
}

impl TryFrom<Received> for DynamoDbStreamRecord {
    type Error = OtherService;

    fn try_from(received: Received) -> Result<Self, OtherService> {
        check_service(received.event_source, "aws:dynamodb")?;
        let images = received.dynamodb.unwrap_or_default();
        let keys = keys(&images);
        let table = received.event_source_arn.as_deref().and_then(table_arn);
        let item = keys.as_deref().map(Fingerprint::json).ok();
        let order_key = item.map(|item| format!("{}#{}", table.unwrap_or_default(), item.as_str()));
        let body = keys.and_then(|keys| body(received.event_name.as_deref(), &keys, &images));
        Ok(Self {
            event_id: received.event_id,
            event_name: received.event_name,
            event_source_arn: received.event_source_arn,
            sequence_number: images.sequence_number,
            approximate_creation: images.approximate_creation_date_time.and_then(seconds),
            user_identity: received.user_identity,
            body,
            order_key,
        })
    }
}

/// Takes `arn:aws:dynamodb:region:account:table/name` from the stream's ARN.
pub(super) fn table_arn(stream: &str) -> Option<&str> {
    let (table, _) = stream.split_once("/stream/").unwrap_or((stream, ""));
    (!table.is_empty()).then_some(table)
}

fn keys(images: &Images) -> Result<Vec<u8>, BodyError> {
    const NO_KEYS: BodyError = BodyError::new("the record has no keys");
    let mut keys = Vec::new();
    write_item(images.keys.as_ref().ok_or(NO_KEYS)?, &mut keys)?;
    Ok(keys)
}

/// Makes the JSON of a [`Change`](super::Change).
fn body(event: Option<&str>, keys: &[u8], images: &Images) -> Result<Vec<u8>, BodyError> {
    const NO_EVENT: BodyError = BodyError::new("the record has no event name");
    let mut body = br#"{"event":"#.to_vec();
    write_text(event.ok_or(NO_EVENT)?, &mut body);
    body.extend_from_slice(br#","keys":"#);
    body.extend_from_slice(keys);
    for (name, image) in [("old", &images.old_image), ("new", &images.new_image)] {
        if let Some(image) = image {
            body.push(b',');
            write_text(name, &mut body);
            body.push(b':');
            write_item(image, &mut body)?;
        }
    }
    body.push(b'}');
    Ok(body)
}

#[cfg(test)]
mod tests;
