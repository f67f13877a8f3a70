//! Publishes events if and only if their transaction commits.
//!
//! A message that is sent beside a transaction is lost when the process dies between the two, or
//! announces a change that never happened. With an outbox, the event is an item of the transaction
//! ([`Outbox::emit`]), in its own table, and a relay publishes it: at least once, with the
//! same id each time, so that its consumer recognises a repetition. `functions/outbox-relay` in the
//! repository is the relay. The table's stream triggers it, and a sweep publishes events that the
//! stream didn't deliver.
//!
//! ```
//! use aws_sdk_dynamodb::types::{AttributeValue::S, Put};
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::dynamodb::outbox::{Event, Outbox};
//! use lambda_idempotency::store::transaction::WriteError;
//! use serde_json::json;
//!
//! async fn place(claim: Claim, outbox: &Outbox) -> Result<String, WriteError> {
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
//! `expiration`; and an index `pending` with partition key `pending` (string) and sort key
//! `recorded_at` (number), `KEYS_ONLY`, which holds the events that no relay has published yet.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, Put};
use serde::Serialize;

use crate::dynamodb::item::{self, Members, number};
use crate::dynamodb::layout::{Item, as_item, string};
use crate::dynamodb::transaction::{MOST_BYTES_OF_AN_ITEM, Target, action, fits, name_of};
use crate::engine::claim::Claim;
use crate::protocol::clock::EpochMillis;
pub use crate::store::transaction::Event;
use crate::store::transaction::{Write, WriteError};

/// Names the index of events that no relay has published yet.
#[doc(hidden)]
pub const PENDING_INDEX: &str = "pending";

/// The bytes that a relay's own attributes take, with room to spare: an event that is published must
/// be marked.
const MARKS: usize = 256;

/// The most bytes that DynamoDB takes in a partition key.
const MOST_BYTES_OF_AN_AGGREGATE: usize = 2_048;

/// An outbox adds events to its table, in which they wait for a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    table: String,
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
    /// the event has the same id in each attempt. Beside steps or a saga, emit it where
    /// [`Claim::write`] says.
    ///
    /// # Errors
    ///
    /// [`WriteError::SameTarget`], when the transaction has an event of this type, aggregate and name: give
    /// the second one another [name](Event::name).
    ///
    /// Another error, when the type or the aggregate is empty, the aggregate has more than 2,048 bytes, the
    /// data can't be serialised, the event is larger than 400 KB less 256 bytes (which a relay needs to mark
    /// it), or the transaction refuses another write.
    pub fn emit<T: Serialize + ?Sized>(
        &self,
        claim: &Claim,
        event: Event,
        data: &T,
    ) -> Result<String, WriteError> {
        let Event {
            kind,
            aggregate,
            name,
        } = event;
        if kind.is_empty() || !(1..=MOST_BYTES_OF_AN_AGGREGATE).contains(&aggregate.len()) {
            let missing = "an event needs a type, and an aggregate of 1 to 2,048 bytes";
            return Err(WriteError::Incomplete(missing.to_owned()));
        }
        let has = |write: &Write, attribute: &str, value: &AttributeValue| {
            let target = action(write).ok().and_then(Target::of);
            target.is_some_and(|target| {
                target.name() == name_of(&self.table) && target.item.get(attribute) == Some(value)
            })
        };
        let id = claim.event_id(&kind, &aggregate, &name);
        let (own_id, own_aggregate) = (string(&id), string(&aggregate));
        let first = claim
            .collected()
            .position(|write| has(write, "id", &own_id));
        if let Some(first) = first {
            return Err(WriteError::SameTarget { first });
        }
        let position = |write: &Write| has(write, "aggregate", &own_aggregate);
        let data = serde_json::to_string(data);
        let stored = StoredEvent {
            id: id.clone(),
            kind,
            aggregate,
            data: data.map_err(|error| WriteError::Data(error.to_string()))?,
            recorded_at: claim.now(),
            // A rerun with new keys makes events beside those of the run before.
            transaction: format!("{}.{}", claim.key_hash(), claim.generation()),
            position: claim.collected().count_of(position),
            is_published: false,
            is_parked: false,
            refusals: 0,
        };
        let item = stored.to_item();
        fits(item::of_item(&item), MOST_BYTES_OF_AN_ITEM - MARKS)?;
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

/// Names the partitions of [`PENDING_INDEX`]: an event's `pending` is the
/// first digit of its id, in hex.
#[doc(hidden)]
pub const PENDING_BUCKETS: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f",
];

/// A relay reads events in this form from the table. Its `Debug` shows neither the aggregate nor
/// the data.
#[derive(Clone, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub struct StoredEvent {
    /// A UUID, by which consumers recognise a repetition.
    pub id: String,
    /// The type: `order.created`.
    pub kind: String,
    /// The aggregate that the event is about. Events of one aggregate are published in order.
    pub aggregate: String,
    /// The data, as JSON text.
    pub data: String,
    /// The time when the handler added it to the transaction.
    pub recorded_at: EpochMillis,
    /// An id that the events of one transaction have in common.
    pub transaction: String,
    /// Its place among the events of its aggregate in its transaction: 0 for the first.
    pub position: usize,
    /// A relay has published it, and has marked it.
    pub is_published: bool,
    /// A relay has taken it out of the index, because its target refused it each time (the item has
    /// a `parked_at`). It waits for an operator, who gives it its `pending` back.
    pub is_parked: bool,
    /// The number of sweeps in which its target has refused it.
    pub refusals: u32,
}

debug_fields!([] StoredEvent { id, kind, position, is_published });

#[doc(hidden)]
impl StoredEvent {
    /// Decodes an item of the table.
    ///
    /// # Errors
    ///
    /// When the item is no event: the reason, in words.
    pub fn from_item(item: &HashMap<String, AttributeValue>) -> Result<Self, String> {
        Self::read(item).map_err(|reason| {
            let link = see!("unreadable-event");
            format!("an item in the outbox can't be read: {reason}{link}")
        })
    }

    fn read(item: &Item) -> Result<Self, String> {
        let members = Members::of_item(item);
        let string = |name| members.required_text(name).map(str::to_owned);
        Ok(Self {
            id: string("id")?,
            kind: string("type")?,
            aggregate: string("aggregate")?,
            data: string("data")?,
            recorded_at: EpochMillis(members.number("recorded_at")?),
            transaction: string("transaction")?,
            position: members.count("position")?,
            is_published: !item.contains_key("pending") && !item.contains_key("parked_at"),
            is_parked: !item.contains_key("pending") && item.contains_key("parked_at"),
            refusals: members.count("refusals").unwrap_or_default(),
        })
    }

    fn to_item(&self) -> Item {
        let first = self.id.get(..1).unwrap_or_default();
        let bucket = PENDING_BUCKETS.into_iter().find(|bucket| *bucket == first);
        let position = i64::try_from(self.position).unwrap_or_default();
        as_item([
            ("aggregate", string(&self.aggregate)),
            ("id", string(&self.id)),
            ("type", string(&self.kind)),
            ("data", string(&self.data)),
            ("recorded_at", number(self.recorded_at.0)),
            ("transaction", string(&self.transaction)),
            ("position", number(position)),
            ("pending", string(bucket.unwrap_or("0"))),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> StoredEvent {
        StoredEvent {
            id: "b1".to_owned(),
            kind: "order.created".to_owned(),
            aggregate: "order-1".to_owned(),
            data: "{}".to_owned(),
            recorded_at: EpochMillis(7),
            transaction: "t".to_owned(),
            position: 2,
            is_published: false,
            is_parked: false,
            refusals: 0,
        }
    }

    #[test]
    fn an_event_comes_back_as_it_was() {
        let item = event().to_item();
        assert_eq!(item["pending"], AttributeValue::S("b".to_owned()));
        assert_eq!(StoredEvent::from_item(&item).unwrap(), event());
    }

    #[test]
    fn one_that_is_no_longer_pending_is_published() {
        let mut item = event().to_item();
        item.remove("pending");
        assert!(StoredEvent::from_item(&item).unwrap().is_published);
    }

    #[test]
    fn one_that_a_relay_took_out_of_the_index_is_parked_until_it_is_pending_again() {
        let mut item = event().to_item();
        item.insert("refusals".to_owned(), number(8));
        item.insert("parked_at".to_owned(), number(1));
        let pending = item.remove("pending");
        let parked = StoredEvent::from_item(&item).unwrap();
        assert!(parked.is_parked && !parked.is_published);
        assert_eq!(parked.refusals, 8);
        item.insert("pending".to_owned(), pending.unwrap());
        let returned = StoredEvent::from_item(&item).unwrap();
        assert!(!returned.is_parked && !returned.is_published);
    }

    #[test]
    fn what_is_no_event_is_told_by_what_it_lacks() {
        for attribute in [
            "id",
            "type",
            "aggregate",
            "data",
            "recorded_at",
            "transaction",
            "position",
        ] {
            let mut item = event().to_item();
            item.remove(attribute);
            let error = StoredEvent::from_item(&item).unwrap_err();
            assert!(error.contains(&format!(": `{attribute}` ")), "{error}");
        }
    }
}
