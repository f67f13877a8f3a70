//! Defines the body of a record: the change of one item.

use serde::Deserialize;
use serde_json::Value;

/// Holds the change of one item, as plain JSON: a text of DynamoDB's is a string, a number keeps all
/// its digits, bytes are Base64 text, and sets are arrays.
///
/// Which images there are, the table's
/// [stream view type](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_StreamSpecification.html)
/// says.
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
