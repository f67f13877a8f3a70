//! An event as it waits in its table.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::types::AttributeValue;

use super::{PENDING_BUCKETS, millis, number, text};
use crate::clock::EpochMillis;

/// An event in its table: what a relay reads. Its `Debug` shows neither what it is about nor its data.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredEvent {
    /// A UUID; what consumers tell a repetition by.
    pub id: String,
    /// Its type: `order.created`.
    pub kind: String,
    /// What it is about. Events about one thing are published in order.
    pub aggregate: String,
    /// JSON text.
    pub data: String,
    /// When its handler added it to the transaction.
    pub recorded_at: EpochMillis,
    /// What the events of one transaction have in common.
    pub transaction: String,
    /// Its place among the writes of its transaction.
    pub position: usize,
    /// Whether a relay has published it, and said so.
    pub is_published: bool,
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

/// An item in the outbox that is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an item in the outbox can't be read: `{attribute}` is missing, or of another type")]
pub struct UnreadableEvent {
    /// What it lacks.
    pub attribute: &'static str,
}

impl StoredEvent {
    /// From an item of the table.
    ///
    /// # Errors
    ///
    /// When the item is no event.
    pub fn from_item(item: &HashMap<String, AttributeValue>) -> Result<Self, UnreadableEvent> {
        let missing = |attribute| UnreadableEvent { attribute };
        let string = |name: &'static str| {
            let value = item.get(name).and_then(|value| value.as_s().ok());
            value.cloned().ok_or(missing(name))
        };
        let digits = |name: &'static str| {
            let value = item.get(name).and_then(|value| value.as_n().ok());
            value.ok_or(missing(name))
        };
        Ok(Self {
            id: string("id")?,
            kind: string("type")?,
            aggregate: string("aggregate")?,
            data: string("data")?,
            recorded_at: millis(digits("recorded_at")?).ok_or(missing("recorded_at"))?,
            transaction: string("transaction")?,
            position: digits("position")?
                .parse()
                .map_err(|_| missing("position"))?,
            is_published: !item.contains_key("pending"),
        })
    }

    pub(super) fn to_item(&self) -> HashMap<String, AttributeValue> {
        let first = self.id.get(..1).unwrap_or_default();
        let bucket = PENDING_BUCKETS.into_iter().find(|bucket| *bucket == first);
        let entry = |(name, value): (&str, AttributeValue)| (name.to_owned(), value);
        [
            ("aggregate", text(&self.aggregate)),
            ("id", text(&self.id)),
            ("type", text(&self.kind)),
            ("data", text(&self.data)),
            ("recorded_at", number(self.recorded_at.0)),
            ("transaction", text(&self.transaction)),
            (
                "position",
                number(i128::try_from(self.position).unwrap_or_default()),
            ),
            ("pending", text(bucket.unwrap_or("0"))),
        ]
        .into_iter()
        .map(entry)
        .collect()
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
