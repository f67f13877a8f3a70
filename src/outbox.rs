//! Events that leave if and only if their transaction commits.
//!
//! A message that is sent beside a transaction is lost when the process dies between the two, or announces what never happened. So
//! the event is an item of the transaction ([`Outbox::emit`]), in a table of its own, and a relay sends it on: at least once, with
//! an id that is the same each time, so that its consumer can tell a repetition. `functions/outbox-relay` in the repository is
//! the relay, triggered by the table's stream, with a sweep for what the stream forgot.
//!
//! ```
//! use aws_sdk_dynamodb::types::{AttributeValue::S, Put};
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::outbox::{EmitError, Event, Outbox};
//! use serde_json::json;
//!
//! async fn place(claim: Claim, outbox: &Outbox) -> Result<String, EmitError> {
//!     let order_id = claim.derive_uuid("order");
//!     claim.write(Put::builder().table_name("orders").item("order_id", S(order_id.clone())))?;
//!     outbox.emit(&claim, Event::new("order.created", &order_id), &json!({ "order_id": order_id }))?;
//!     Ok(order_id)
//! }
//! ```
//!
//! # The table
//!
//! Partition key `aggregate`, sort key `id`, both strings; a stream (`KEYS_ONLY` is enough); TTL on `expiration`; and an index
//! [`PENDING_INDEX`] with partition key `pending` (string) and sort key `recorded_at` (number), `KEYS_ONLY`, in which only
//! events stand that nobody has published yet.

use std::fmt;

use aws_sdk_dynamodb::types::{AttributeValue, Put};
use serde::Serialize;

use crate::claim::Claim;
use crate::clock::EpochMillis;
use crate::transaction::{Write, WriteError};

mod stored;

pub use stored::{StoredEvent, UnreadableEvent};

/// The index of events that nobody has published yet.
pub const PENDING_INDEX: &str = "pending";

/// Over so many partitions that index is spread: the first digit of an event's id, in hex, is its `pending`.
pub const PENDING_BUCKETS: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f",
];

/// The table that events wait in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    table: String,
}

/// Something that happened, to be told. Its `Debug` shows its type alone.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "an event is told by `Outbox::emit`"]
pub struct Event {
    kind: String,
    aggregate: String,
    name: String,
}

impl Event {
    /// Of this type (`order.created`), about this aggregate (an order's id). Events of one aggregate are published in order.
    pub fn new(kind: impl Into<String>, aggregate: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            aggregate: aggregate.into(),
            name: String::new(),
        }
    }

    /// Tells two events of one type and one aggregate apart, where a transaction has them: part of the id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// An event can't join the transaction. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// Its data has no JSON form.
    #[error("the event's data can't be serialised as JSON: {0}")]
    Data(#[from] serde_json::Error),
    /// The transaction doesn't take it.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Outbox {
    /// On this table.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
        }
    }

    /// Adds an event to the claim's transaction; its id.
    ///
    /// The id is a UUID, derived from the idempotency key, the type, the aggregate and the name: each attempt gives the event the
    /// same.
    ///
    /// # Errors
    ///
    /// When the data can't be serialised, or the transaction doesn't take another write.
    pub fn emit<T: Serialize + ?Sized>(
        &self,
        claim: &Claim,
        event: Event,
        data: &T,
    ) -> Result<String, EmitError> {
        let id = claim.event_id(&format!(
            "event\u{1f}{}\u{1f}{}\u{1f}{}",
            event.kind, event.aggregate, event.name
        ));
        let stored = StoredEvent {
            id: id.clone(),
            kind: event.kind,
            aggregate: event.aggregate,
            data: serde_json::to_string(data)?,
            recorded_at: claim.now(),
            transaction: claim.key_hash().to_owned(),
            position: claim.collected().count(),
            is_published: false,
        };
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(stored.to_item()))
            // An id that exists is another event under the same name, or a record that was forgotten: both are to be seen.
            .condition_expression("attribute_not_exists(#id)")
            .expression_attribute_names("#id", "id");
        claim.write(Write::from(put))?;
        Ok(id)
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: impl Into<i128>) -> AttributeValue {
    AttributeValue::N(number.into().to_string())
}

/// Milliseconds, from their digits.
fn millis(digits: &str) -> Option<EpochMillis> {
    digits.parse().ok().map(EpochMillis)
}
