//! Encodes and decodes the events in their table.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use aws_sdk_dynamodb::types::AttributeValue;

use super::super::layout::{Item, as_item};
use super::super::value::{number, string};
use crate::protocol::clock::EpochMillis;

/// Names the partitions of [`PENDING_INDEX`](super::PENDING_INDEX): an event's `pending` is the
/// first digit of its id, in hex.
pub const PENDING_BUCKETS: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f",
];

/// A relay reads events in this form from the table. Its `Debug` shows neither the aggregate nor
/// the data.
#[derive(Clone, PartialEq, Eq)]
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
    /// a `parked_at`). It waits for a person, who gives it its `pending` back.
    pub is_parked: bool,
    /// How many sweeps its target has refused it in.
    pub refusals: u32,
}

impl fmt::Debug for StoredEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEvent")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("position", &self.position)
            .field("is_published", &self.is_published)
            .finish_non_exhaustive()
    }
}

/// An item in the outbox is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an item in the outbox can't be read: `{attribute}` is missing, or of another type{}", see!("unreadable-event"))]
pub struct UnreadableEvent {
    /// The attribute that is missing, or of another type.
    pub attribute: &'static str,
}

impl StoredEvent {
    /// Decodes an item of the table.
    ///
    /// # Errors
    ///
    /// When the item is no event.
    pub fn from_item(item: &HashMap<String, AttributeValue>) -> Result<Self, UnreadableEvent> {
        let string = |attribute| {
            let value = item.get(attribute).and_then(|value| value.as_s().ok());
            value.cloned().ok_or(UnreadableEvent { attribute })
        };
        Ok(Self {
            id: string("id")?,
            kind: string("type")?,
            aggregate: string("aggregate")?,
            data: string("data")?,
            recorded_at: EpochMillis(parsed(item, "recorded_at")?),
            transaction: string("transaction")?,
            position: parsed(item, "position")?,
            is_published: !item.contains_key("pending") && !item.contains_key("parked_at"),
            is_parked: !item.contains_key("pending") && item.contains_key("parked_at"),
            refusals: parsed(item, "refusals").unwrap_or_default(),
        })
    }

    pub(super) fn to_item(&self) -> Item {
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

fn parsed<T: FromStr>(item: &Item, attribute: &'static str) -> Result<T, UnreadableEvent> {
    let digits = item.get(attribute).and_then(|value| value.as_n().ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or(UnreadableEvent { attribute })
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
        assert_eq!(StoredEvent::from_item(&item), Ok(event()));
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
            assert_eq!(
                StoredEvent::from_item(&item),
                Err(UnreadableEvent { attribute })
            );
        }
    }
}
