//! Publish, then mark; in order within an aggregate, side by side between them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use lambda_idempotency::dynamodb::outbox::StoredEvent;

use crate::counts;
use crate::event::Announced;
use crate::table::{EventKey, Table, TableError, key_of};
use crate::target::{PublishError, Target};
use crate::time::Time;

/// The number of aggregates that are worked on at a time.
pub(crate) const SIDE_BY_SIDE: usize = 10;

pub(crate) struct Relay {
    pub(crate) table: Table,
    pub(crate) target: Target,
    /// The age from which the sweep takes an event.
    pub(crate) sweep_after: Duration,
    /// The number of refusals by the target, one a sweep, after which an event is parked.
    pub(crate) park_after: u32,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("no answer before the invocation's end: it may be published")]
    NoAnswerInTime,
}

impl Failed {
    /// Returns whether the target refused the event itself.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Publish(error) if error.is_refusal)
    }
}

impl Relay {
    /// Publishes the events of a batch, and returns the sequence numbers of those that are to be delivered again.
    pub(crate) async fn relay(&self, announced: &[Announced], time: Time) -> Vec<String> {
        let key = |new: &Announced| (new.aggregate.clone(), new.id.clone());
        // A batch that is delivered again begins before the event that failed: those that are published already have a mark.
        let loading = self.table.load(announced.iter().map(key).collect());
        let loaded = match time.wait_for(loading).await {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::error!(%error, "the outbox could not be read");
                return announced
                    .iter()
                    .map(|new| new.sequence_number.clone())
                    .collect();
            }
        };
        let mut unreadable = Vec::new();
        // Without a time, an item is in no index: no sweep finds it.
        for key in loaded.unreadable {
            if self.park_unreadable(&key, time).await.is_err() {
                unreadable.push(key);
            }
        }
        let publishing = by_aggregate(loaded.events)
            .into_iter()
            .map(|events| self.publish_in_order(events, time));
        let left = stream::iter(publishing).buffer_unordered(SIDE_BY_SIDE);
        let mut left: HashSet<_> = left.flat_map(stream::iter).collect().await;
        left.extend(unreadable);
        let is_left = |new: &&Announced| left.contains(&key(new));
        let left = announced.iter().filter(is_left);
        left.map(|new| new.sequence_number.clone()).collect()
    }

    /// Parks what can't be published, and counts it: also where it may be parked, since nothing else would report that. Returns whether
    /// it was pending.
    pub(crate) async fn park(&self, key: &EventKey, time: Time) -> Result<bool, TableError> {
        let parked = time.wait_for(self.table.park(key)).await;
        let may_be_parked = match &parked {
            Ok(was_pending) => *was_pending,
            Err(error) => error.may_be_done,
        };
        if may_be_parked {
            counts::parked();
        }
        parked
    }

    /// Parks an item that is no event. Returns whether it was pending.
    pub(crate) async fn park_unreadable(
        &self,
        key: &EventKey,
        time: Time,
    ) -> Result<bool, TableError> {
        let parked = self.park(key, time).await;
        match &parked {
            Ok(true) => tracing::error!(event_id = key.1, "parked: it is no event"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, event_id = key.1, "perhaps not parked: it is no event");
            }
        }
        parked
    }

    /// Publishes events of one aggregate; the first failure stops those behind it. Returns the keys that are left.
    async fn publish_in_order(&self, events: Vec<StoredEvent>, time: Time) -> Vec<EventKey> {
        let keys = events.iter().map(key_of).collect();
        let Ok(events) = self.in_order(events, time).await else {
            return keys;
        };
        let mut events = events.into_iter();
        while let Some(event) = events.next() {
            if time.is_used() || self.publish(&event, time).await.is_err() {
                return std::iter::once(event)
                    .chain(events)
                    .map(|event| key_of(&event))
                    .collect();
            }
        }
        Vec::new()
    }

    /// Returns the events of an aggregate that wait, in their order. Those of a transaction come in its own order, and none before an
    /// earlier one that another batch announces: that one is added.
    pub(crate) async fn in_order(
        &self,
        mut events: Vec<StoredEvent>,
        time: Time,
    ) -> Result<Vec<StoredEvent>, TableError> {
        for (aggregate, transaction, before) in incomplete(&events) {
            let reading = self.table.pending_of(&aggregate, &transaction);
            let pending = time.wait_for(reading).await.inspect_err(
                |error| tracing::error!(%error, "the events of a transaction could not be read"),
            )?;
            let known: HashSet<_> = events.iter().map(|event| event.id.clone()).collect();
            let is_missing =
                |event: &StoredEvent| event.position < before && !known.contains(&event.id);
            events.extend(pending.into_iter().filter(is_missing));
        }
        let mut first = HashMap::new();
        for (place, event) in events.iter().enumerate() {
            first.entry(event.transaction.clone()).or_insert(place);
        }
        events.retain(waits);
        events.sort_by_key(|event| (first.get(&event.transaction).copied(), event.position));
        Ok(events)
    }

    /// Publishes and marks an event. A crash between the two publishes it again, under the same id.
    pub(crate) async fn publish(&self, event: &StoredEvent, time: Time) -> Result<(), Failed> {
        let publishing = async {
            self.target.publish(event).await?;
            Ok(self.table.mark(event).await?)
        };
        let published = time.wait(publishing).await;
        published
            .unwrap_or(Err(Failed::NoAnswerInTime))
            .inspect(|()| {
                counts::published();
                tracing::info!(event_id = event.id, kind = event.kind, "published");
            })
            .inspect_err(|error: &Failed| {
                counts::failed();
                let what = match error {
                    Failed::Table(_) => "published, not marked: it is published again",
                    Failed::Publish(_) | Failed::NoAnswerInTime => "not published",
                };
                tracing::error!(%error, event_id = event.id, kind = event.kind, "{what}");
            })
    }
}

fn waits(event: &StoredEvent) -> bool {
    !event.is_published && !event.is_parked
}

/// In the order in which they came.
pub(crate) fn by_aggregate(events: Vec<StoredEvent>) -> Vec<Vec<StoredEvent>> {
    let mut groups: Vec<Vec<StoredEvent>> = Vec::new();
    let mut places = HashMap::new();
    for event in events {
        let place = *places
            .entry(event.aggregate.clone())
            .or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(event),
            None => groups.push(vec![event]),
        }
    }
    groups
}

/// The transactions of which an event waits and not all before it are here: aggregate, transaction, and that event's position. The events
/// of one aggregate in a transaction are numbered from 0.
fn incomplete(events: &[StoredEvent]) -> Vec<(String, String, usize)> {
    let mut last: HashMap<_, usize> = HashMap::new();
    let mut here = HashSet::new();
    for event in events {
        here.insert((&event.transaction, event.position));
        if waits(event) {
            let place = last
                .entry((&event.aggregate, &event.transaction))
                .or_default();
            *place = event.position.max(*place);
        }
    }
    last.retain(|(_, transaction), last| {
        (0..*last).any(|place| !here.contains(&(transaction, place)))
    });
    let named = last.into_iter();
    named
        .map(|((aggregate, transaction), last)| (aggregate.clone(), transaction.clone(), last))
        .collect()
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue::{N, S};

    use super::*;

    fn event(aggregate: &str, transaction: &str, position: usize) -> StoredEvent {
        let entry = |(name, value): (&str, _)| (name.to_owned(), value);
        let item: HashMap<_, _> = [
            ("id", S(format!("{aggregate}{transaction}{position}"))),
            ("type", S("t".to_owned())),
            ("aggregate", S(aggregate.to_owned())),
            ("data", S("{}".to_owned())),
            ("recorded_at", N("1".to_owned())),
            ("transaction", S(transaction.to_owned())),
            ("position", N(position.to_string())),
            ("pending", S("0".to_owned())),
        ]
        .into_iter()
        .map(entry)
        .collect();
        StoredEvent::from_item(&item).unwrap()
    }

    #[test]
    fn aggregates_are_apart_and_keep_the_order_in_which_they_came() {
        let came = vec![event("a", "t", 2), event("b", "t", 0), event("a", "s", 0)];
        let ids = |group: &Vec<StoredEvent>| {
            let ids = group.iter().map(|event| event.id.clone());
            ids.collect::<Vec<_>>()
        };
        let groups: Vec<_> = by_aggregate(came).iter().map(ids).collect();
        assert_eq!(groups, [vec!["at2", "as0"], vec!["bt0"]]);
    }

    #[test]
    fn a_transaction_is_complete_when_all_before_its_last_are_here() {
        let came = [event("a", "t", 1), event("a", "t", 0), event("a", "s", 0)];
        assert_eq!(incomplete(&came), []);
        let came = [event("a", "t", 0), event("a", "t", 2)];
        assert_eq!(incomplete(&came), [("a".to_owned(), "t".to_owned(), 2)]);
    }
}
