//! Publishes events if and only if their transaction commits.
//!
//! A message that is sent beside a transaction is lost when the process dies between the two, or
//! announces a change that never happened. With an outbox, the event is an item of the transaction
//! ([`Outbox::emit`]), in a table of its own, and a relay publishes it: at least once, with the
//! same id each time, so that its consumer recognises a repetition. `functions/outbox-relay` in the
//! repository is the relay. The table's stream triggers it, and a sweep publishes events that the
//! stream didn't deliver.
//!
//! ```
//! use aws_sdk_dynamodb::types::{AttributeValue::S, Put};
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::dynamodb::outbox::{EmitError, Event, Outbox};
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
//! Partition key `aggregate`, sort key `id`, both strings; a stream (`KEYS_ONLY` is enough); TTL on
//! `expiration`; and an index [`PENDING_INDEX`] with partition key `pending` (string) and sort key
//! `recorded_at` (number), `KEYS_ONLY`, which holds the events that no relay has published yet.

use std::fmt;

use aws_sdk_dynamodb::types::Put;
use serde::Serialize;

use super::action::{MOST_BYTES_OF_AN_ITEM, Target, action, fits, name_of};
use super::size;
use super::value::string;
use crate::engine::claim::Claim;
use crate::store::transaction::{Write, WriteError};

mod stored;

pub use stored::{PENDING_BUCKETS, StoredEvent, UnreadableEvent};

/// Names the index of events that no relay has published yet.
pub const PENDING_INDEX: &str = "pending";

/// The bytes that a relay's own attributes take, with room to spare: an event that is published must
/// be marked.
const MARKS: usize = 256;

/// An outbox adds events to its table, in which they wait for a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    table: String,
}

/// An event announces a change. Its `Debug` shows its type alone.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "an event is told by `Outbox::emit`"]
pub struct Event {
    kind: String,
    aggregate: String,
    name: String,
}

impl Event {
    /// Makes an event of this type (`order.created`), about this aggregate (an order's id). Events
    /// of one aggregate are published in order.
    pub fn new(kind: impl Into<String>, aggregate: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            aggregate: aggregate.into(),
            name: String::new(),
        }
    }

    /// Sets a name, which is part of the id, to distinguish two events of one type and one
    /// aggregate in a transaction.
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

/// The event can't join the transaction. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The data has no JSON form.
    #[error("the event's data can't be serialised as JSON: {}{}", .0, see!("event-data"))]
    Data(#[from] serde_json::Error),
    /// The transaction refused the write.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Outbox {
    /// Makes an outbox on this table.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
        }
    }

    /// Adds an event to the claim's transaction, and returns its id.
    ///
    /// The id is a UUID, derived from the idempotency key, the type, the aggregate and the name:
    /// the event has the same id in each attempt.
    ///
    /// # Errors
    ///
    /// When the data can't be serialised, the event is larger than 400 KB less 256 bytes (which a
    /// relay needs to mark it), or the transaction refuses another write.
    pub fn emit<T: Serialize + ?Sized>(
        &self,
        claim: &Claim,
        event: Event,
        data: &T,
    ) -> Result<String, EmitError> {
        let Event {
            kind,
            aggregate,
            name,
        } = event;
        let value = string(&aggregate);
        let is_before = |write: &Write| {
            let target = action(write).ok().and_then(Target::of);
            target.is_some_and(|target| {
                target.name() == name_of(&self.table)
                    && target.item.get("aggregate") == Some(&value)
            })
        };
        let id = claim.event_id(&kind, &aggregate, &name);
        let stored = StoredEvent {
            id: id.clone(),
            kind,
            aggregate,
            data: serde_json::to_string(data)?,
            recorded_at: claim.now(),
            transaction: claim.key_hash().to_owned(),
            position: claim.collected().count_of(is_before),
            is_published: false,
            is_parked: false,
            refusals: 0,
        };
        let item = stored.to_item();
        fits(size::of_item(&item), MOST_BYTES_OF_AN_ITEM - MARKS)?;
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            // An id that exists is another event under the same name, or belongs to a record that
            // was forgotten: both must surface.
            .condition_expression("attribute_not_exists(#id)")
            .expression_attribute_names("#id", "id");
        claim.write(Write::from(put))?;
        Ok(id)
    }
}
