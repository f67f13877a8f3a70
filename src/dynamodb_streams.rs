//! Turns a handler of one change into a handler of a stream's batches.
//!
//! [`BatchLayer`] gives the handler each change of an item as plain JSON, and runs it once. The
//! reply names the first record that must be delivered again: set
//! `FunctionResponseTypes: [ReportBatchItemFailures]` on the event source mapping. Without it,
//! Lambda ignores the reply and [goes on behind the batch][partial], so that failed records are
//! lost. Where you can't set it, call
//! [`without_item_failures`](crate::batch::Settings::without_item_failures).
//!
//! ```
//! use lambda_idempotency::dynamodb_streams::{self, Change};
//! use lambda_idempotency::{Idempotency, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::{Service, ServiceBuilder};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     state: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("notices").build()?;
//! let mut worker = ServiceBuilder::new()
//!     .layer(dynamodb_streams::BatchLayer::new(once).operation("notify"))
//!     .service_fn(|message: dynamodb_streams::Message<Change<Order>>| async move {
//!         if let Some(order) = &message.body.new {
//!             println!("order {} is {}", message.body.keys["id"], order.state);
//!         }
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, two records by hand; the second order has no state.
//! let event: dynamodb_streams::DynamoDbStreamEvent = serde_json::from_str(
//!     r#"{"Records": [
//!         {"eventID": "1", "eventName": "INSERT",
//!          "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000",
//!          "dynamodb": {"SequenceNumber": "111", "Keys": {"id": {"N": "7"}},
//!                       "NewImage": {"id": {"N": "7"}, "state": {"S": "placed"}}}},
//!         {"eventID": "2", "eventName": "INSERT",
//!          "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000",
//!          "dynamodb": {"SequenceNumber": "222", "Keys": {"id": {"N": "8"}},
//!                       "NewImage": {"id": {"N": "8"}}}}
//!     ]}"#,
//! )?;
//! let reply = worker.call(LambdaEvent::new(event, Context::default())).await?;
//! assert_eq!(reply.batch_item_failures, ["222"]);
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! The default key joins the stream's ARN and the record's `eventID`. A stream has
//! [each change once][streams], so this key recognises each repeated delivery of a change. It
//! doesn't recognise work that two changes ask for: there, make the
//! [`key`](crate::batch::BatchLayer::key) of the item's key, a version attribute and the kind of the
//! change, since a removal has the version of the last change:
//!
//! ```
//! # use lambda_idempotency::dynamodb_streams::{self, Change};
//! # use lambda_idempotency::{Idempotency, store::MemoryStore};
//! # let once = Idempotency::builder(MemoryStore::new()).namespace("notices").build()?;
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     id: u64,
//!     version: u64,
//! }
//!
//! let worker = dynamodb_streams::BatchLayer::new(once)
//!     .key(|change: &Change<Order>| {
//!         let order = change.new.as_ref().or(change.old.as_ref());
//!         order.map(|order| format!("{}#{}#{:?}", order.id, order.version, change.event))
//!     })
//!     .handler(|message: dynamodb_streams::Message<Change<Order>>| async move { Ok::<_, std::io::Error>(()) });
//! # Ok::<(), lambda_idempotency::BuildError>(())
//! ```
//!
//! A version must not repeat: an item that is made again after a removal goes on with it.
//!
//! | | default key | item, version and kind |
//! |---|---|---|
//! | Lambda delivers again: from a checkpoint, a split batch, a failed invocation | yes | yes |
//! | the event source mapping is made anew | yes | yes |
//! | the stream is switched off and on again, and gets a new ARN | **no** | yes |
//! | an item changes without its version | **no** | yes, but a mismatch unless [`fingerprint`](crate::batch::BatchLayer::fingerprint) leaves the images out |
//!
//! # What the handler gets
//!
//! The body is `{"event": "INSERT", "keys": {…}, "old": {…}, "new": {…}}`, in plain JSON; a
//! [`Change`] decodes it. Images that the stream doesn't have are left out.
//! [`is_expiry`](DynamoDbStreamRecord::is_expiry), in the metadata, tells a removal by time to live from
//! others.
//!
//! # In which order
//!
//! Changes of one item run one after the other, in the order of the stream; those of different items
//! run side by side. A record that must be delivered again stops its item: no later change of the item runs
//! in this batch. Other items go on. [`Order`] has other choices.
//!
//! # What the reply does
//!
//! The reply names the lowest sequence number among the records that must be delivered again, because
//! Lambda [takes the lowest as its checkpoint][partial]: it delivers this record and *all* after it
//! again. Those of them that succeeded are replayed. [The page of `kinesis`](crate::kinesis#what-it-costs)
//! has the costs, which are the same here.
//!
//! By default Lambda repeats a failed record [until it expires in the stream][parameters], and its
//! shard waits. After `MaximumRetryAttempts`, or past `MaximumRecordAgeInSeconds`, Lambda
//! [discards the records][failures] that it still retries. A retry begins at the checkpoint, so
//! these are the record that failed and all after it in the batch, among them the later changes of
//! its item, **which never started**. An on-failure queue or topic gets metadata only, not the
//! images; an S3 bucket also gets the event.
//! [`on_rejected`](crate::batch::BatchLayer::on_rejected) takes the records that no retry will fix.
//!
//! # How long outcomes are kept
//!
//! A stream keeps records for [24 hours][streams], and outcomes are kept for 7 days: the default is
//! enough. With [`on_rejected`](crate::batch::BatchLayer::on_rejected),
//! [permanent](crate::batch::BatchLayer::permanent) failures are kept as long; without it, set
//! [`failure_retention`](crate::Settings::failure_retention) to more than 24 hours, or a record that
//! failed runs again.
//!
//! [partial]: https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
//! [streams]: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
//! [parameters]: https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html
//! [failures]: https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html

use std::borrow::Cow;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::batch::Source;
use crate::protocol::fingerprint::Fingerprint;
use crate::streams::{Shard, check_service, seconds, token};

mod plain;
#[cfg(test)]
mod tests;

pub use crate::batch::{BatchError, BodyError, Envelope, Order, Rejected, Rejection};
pub use crate::streams::ItemFailures;

/// Makes a handler of batches of a table's stream of a handler of one [`Message`].
/// [The module](self) has an example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<DynamoDbStreamEvent, T, E>;

/// Holds one record: its decoded body, the claim of its handler, and the record as Lambda delivered
/// it.
pub type Message<T> = crate::batch::Message<DynamoDbStreamEvent, T>;

/// Holds a batch of records of one shard. [AWS's page][event] shows such an event.
///
/// [event]: https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html
///
/// Deserializing the event of another service fails with an error that names the service that
/// sent it. Deserializing the event of a mapping with `TumblingWindowInSeconds` fails, too: Lambda
/// would take each reply for a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Shard<DynamoDbStreamRecord>")]
#[non_exhaustive]
pub struct DynamoDbStreamEvent {
    /// The records, in the order of their sequence numbers.
    pub records: Vec<DynamoDbStreamRecord>,
}

impl TryFrom<Shard<DynamoDbStreamRecord>> for DynamoDbStreamEvent {
    type Error = &'static str;

    fn try_from(shard: Shard<DynamoDbStreamRecord>) -> Result<Self, &'static str> {
        let records = shard.records()?;
        Ok(Self { records })
    }
}

/// Holds the record of one change of one item. A field that the event lacks is `None`. The keys and
/// the images are in the body, which is decoded to a [`Change`].
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
    /// Says whether DynamoDB removed the item because its
    /// [time to live](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html)
    /// was over. In a global table, the replicas' streams don't tell such a removal from another:
    /// it is `true` only in the region where the item expired.
    pub is_expiry: bool,
    body: Result<Vec<u8>, BodyError>,
    order_key: Option<String>,
}

debug_fields!([] DynamoDbStreamRecord {
    event_id, event_name, event_source_arn, sequence_number, approximate_creation, is_expiry
});

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

/// The service that made a change on its own account. The stream's own API, from which an operator
/// reads discarded records, writes the names with capital letters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserIdentity {
    #[serde(alias = "Type")]
    r#type: Option<String>,
    #[serde(alias = "PrincipalId")]
    principal_id: Option<String>,
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
    type Error = String;

    fn try_from(received: Received) -> Result<Self, String> {
        const NO_KEYS: BodyError = BodyError::new("the record has no keys");
        check_service(received.event_source.as_deref(), "aws:dynamodb")?;
        let is_of_dynamodb = received.user_identity.is_some_and(|identity| {
            identity.r#type.as_deref() == Some("Service")
                && identity.principal_id.as_deref() == Some("dynamodb.amazonaws.com")
        });
        let is_expiry = is_of_dynamodb && received.event_name.as_deref() == Some("REMOVE");
        let images = received.dynamodb.unwrap_or_default();
        let keys = images.keys.as_ref().ok_or(NO_KEYS).and_then(plain::item);
        let table = received.event_source_arn.as_deref().map(table_arn);
        let item = keys.as_ref().ok();
        let item = item.map(|keys| Fingerprint::json(keys.get().as_bytes()));
        let order_key = item.map(|item| format!("{}#{}", table.unwrap_or_default(), item.as_str()));
        let body = keys.and_then(|keys| body(received.event_name.as_deref(), keys, &images));
        Ok(Self {
            event_id: received.event_id,
            event_name: received.event_name,
            event_source_arn: received.event_source_arn,
            sequence_number: images.sequence_number,
            approximate_creation: images.approximate_creation_date_time.and_then(seconds),
            is_expiry,
            body,
            order_key,
        })
    }
}

/// Takes `arn:aws:dynamodb:region:account:table/name` from the stream's ARN.
fn table_arn(stream: &str) -> &str {
    stream
        .split_once("/stream/")
        .map_or(stream, |(table, _)| table)
}

/// Makes the JSON of a [`Change`].
fn body(event: Option<&str>, keys: Box<RawValue>, images: &Images) -> Result<Vec<u8>, BodyError> {
    const NO_EVENT: BodyError = BodyError::new("the record has no event name");
    #[derive(Serialize)]
    struct Body<'a> {
        event: &'a str,
        keys: Box<RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        old: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        new: Option<Box<RawValue>>,
    }
    let image = |image: Option<&Value>| image.map(plain::item).transpose();
    let body = Body {
        event: event.ok_or(NO_EVENT)?,
        keys,
        old: image(images.old_image.as_ref())?,
        new: image(images.new_image.as_ref())?,
    };
    serde_json::to_vec(&body).map_err(|_| plain::UNKNOWN)
}

/// Holds the change of one item, as plain JSON: a text of DynamoDB's is a string, a number keeps all
/// its digits, bytes are Base64 text, and sets are arrays.
///
/// The table's
/// [stream view type](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_StreamSpecification.html)
/// says which images there are.
///
/// ```
/// use lambda_idempotency::dynamodb_streams::{Change, ChangeKind};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     state: String,
/// }
///
/// let body = r#"{"event": "INSERT", "keys": {"id": 7}, "new": {"id": 7, "state": "placed"}}"#;
/// let change: Change<Order> = serde_json::from_str(body)?;
/// assert_eq!((change.event, change.keys["id"].as_u64()), (ChangeKind::Insert, Some(7)));
/// assert!(change.old.is_none());
/// assert_eq!(change.new.map(|order| order.state).as_deref(), Some("placed"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Change<T> {
    /// The kind of the change.
    pub event: ChangeKind,
    /// The item's partition key, and its sort key where the table has one. As a [`Value`], a number
    /// beyond 64 bits keeps as many digits as a double does; a body type of your own may keep all.
    pub keys: Value,
    /// The item before the change; `None` where it wasn't there, or the stream leaves it out.
    pub old: Option<T>,
    /// The item after the change; `None` where it was removed, or the stream leaves it out.
    pub new: Option<T>,
}

/// Names the kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The item is new.
    Insert,
    /// An attribute of the item changed.
    Modify,
    /// The item was removed.
    Remove,
}

impl Source for DynamoDbStreamEvent {
    type Record = DynamoDbStreamRecord;
    type Reply = ItemFailures;

    const NAME: &'static str = "dynamodb_streams";

    fn records(self) -> Vec<DynamoDbStreamRecord> {
        self.records
    }

    fn id(record: &DynamoDbStreamRecord) -> Option<&str> {
        record.sequence_number.as_deref()
    }

    /// Joins the stream's ARN and the event's id: ids are unique within one stream alone.
    fn token(record: &DynamoDbStreamRecord) -> Option<Cow<'_, str>> {
        let present = |text: &&str| !text.is_empty();
        let stream = record.event_source_arn.as_deref().filter(present)?;
        let id = record.event_id.as_deref().filter(present)?;
        Some(Cow::Owned(token(stream, id)))
    }

    fn body(record: &DynamoDbStreamRecord) -> Result<&[u8], BodyError> {
        record.body.as_deref().map_err(|error| *error)
    }

    /// Takes the table's name.
    fn origin(record: &DynamoDbStreamRecord) -> Option<&str> {
        let (_, name) = table_arn(record.event_source_arn.as_deref()?).split_once(":table/")?;
        (!name.is_empty()).then_some(name)
    }

    /// Names the item: its table, and a hash of its keys.
    fn order_key(record: &DynamoDbStreamRecord) -> Option<&str> {
        record.order_key.as_deref()
    }

    fn is_ordered(_: &DynamoDbStreamRecord) -> bool {
        true
    }

    fn reply(failed: Vec<String>) -> ItemFailures {
        ItemFailures::lowest(failed)
    }

    messaging_spans! {
        system: "aws_dynamodb_streams", trigger: "datasource", verb: "receive",
        destination: Self::origin(record).unwrap_or_default(),
        |records| "dynamodb_streams_batch" {}
        |record| "dynamodb_streams_record" {
            messaging.message.id = record.sequence_number.as_deref().unwrap_or_default(),
        }
    }
}
