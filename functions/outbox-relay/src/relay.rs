//! Publish, then mark; in order within an aggregate, side by side between them.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use lambda_idempotency::dynamodb::outbox::StoredEvent;

use crate::counts;
use crate::event::Announced;
use crate::table::{Table, TableError};
use crate::target::{PublishError, Target};

/// How many aggregates are worked on at a time.
pub(crate) const SIDE_BY_SIDE: usize = 10;

pub(crate) struct Relay {
    pub(crate) table: Table,
    pub(crate) target: Target,
    /// How old an event must be for the sweep.
    pub(crate) sweep_after: Duration,
    /// After how many sweeps in which its target refused it an event is parked.
    pub(crate) park_after: u32,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Failed {
    /// Tells whether the target refused the event itself.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Publish(error) if error.is_refusal)
    }
}

impl Relay {
    /// The events of a batch; the sequence numbers of those that must come again.
    pub(crate) async fn relay(&self, announced: &[Announced]) -> Vec<String> {
        let keys = announced
            .iter()
            .map(|new| (new.aggregate.clone(), new.id.clone()));
        // A batch that comes again begins before the one that failed: what is published already is known by its mark.
        let events = match self.table.load(keys.collect()).await {
            Ok(loaded) => loaded.events,
            Err(error) => {
                tracing::error!(%error, "the outbox could not be read");
                return numbers(announced);
            }
        };
        let mut events: HashMap<_, _> = events
            .into_iter()
            .map(|event| (event.id.clone(), event))
            .collect();
        let found = announced.iter().filter_map(|new| {
            let event = events.remove(&new.id)?;
            Some((new.sequence_number.clone(), event))
        });
        let failed = self.publish_all(found.collect()).await;
        let is_failed = |new: &&Announced| failed.contains(&new.sequence_number);
        let failed = announced.iter().filter(is_failed);
        failed.map(|new| new.sequence_number.clone()).collect()
    }

    /// What of these failed, by the name that each was given.
    async fn publish_all(&self, events: Vec<(String, StoredEvent)>) -> Vec<String> {
        let of_aggregates = by_aggregate(events).into_iter();
        let publishing = of_aggregates.map(|events| self.publish_in_order(events));
        let failed = stream::iter(publishing).buffer_unordered(SIDE_BY_SIDE);
        failed.collect::<Vec<_>>().await.concat()
    }

    /// The first failure stops those behind it.
    async fn publish_in_order(&self, events: Vec<(String, StoredEvent)>) -> Vec<String> {
        let mut events = events.into_iter();
        while let Some((name, event)) = events.next() {
            if event.is_published || event.is_parked {
                continue;
            }
            if self.publish(&event).await.is_err() {
                return std::iter::once(name)
                    .chain(events.map(|(name, _)| name))
                    .collect();
            }
        }
        Vec::new()
    }

    /// Publishes and marks an event. A crash between the two publishes it again, under the same id.
    pub(crate) async fn publish(&self, event: &StoredEvent) -> Result<(), Failed> {
        let published = async {
            self.target.publish(event).await?;
            Ok(self.table.mark(event).await?)
        };
        published
            .await
            .inspect(|()| {
                counts::published();
                tracing::info!(event_id = event.id, kind = event.kind, "published");
            })
            .inspect_err(|error: &Failed| {
                counts::failed();
                tracing::error!(%error, event_id = event.id, kind = event.kind, "not published");
            })
    }
}

fn numbers(announced: &[Announced]) -> Vec<String> {
    let number = |new: &Announced| new.sequence_number.clone();
    announced.iter().map(number).collect()
}

/// In the order in which they came; those of one transaction, which a stream may mix up, in their own.
pub(crate) fn by_aggregate(events: Vec<(String, StoredEvent)>) -> Vec<Vec<(String, StoredEvent)>> {
    let mut groups: Vec<Vec<(String, StoredEvent)>> = Vec::new();
    let mut places = HashMap::new();
    for (name, event) in events {
        let place = *places
            .entry(event.aggregate.clone())
            .or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push((name, event)),
            None => groups.push(vec![(name, event)]),
        }
    }
    for group in &mut groups {
        for of_one in group.chunk_by_mut(|(_, a), (_, b)| a.transaction == b.transaction) {
            of_one.sort_by_key(|(_, event)| event.position);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use aws_sdk_dynamodb::types::AttributeValue::{N, S};

    use super::*;

    fn event(aggregate: &str, transaction: &str, position: usize) -> (String, StoredEvent) {
        let name = format!("{aggregate}{transaction}{position}");
        let entry = |(name, value): (&str, _)| (name.to_owned(), value);
        let item: HashMap<_, _> = [
            ("id", S(name.clone())),
            ("type", S("t".to_owned())),
            ("aggregate", S(aggregate.to_owned())),
            ("data", S("{}".to_owned())),
            ("recorded_at", N("1".to_owned())),
            ("transaction", S(transaction.to_owned())),
            ("position", N(position.to_string())),
        ]
        .into_iter()
        .map(entry)
        .collect();
        (name, StoredEvent::from_item(&item).unwrap())
    }

    #[test]
    fn aggregates_keep_their_order_and_transactions_theirs() {
        let came = vec![
            event("a", "t", 2),
            event("b", "t", 0),
            event("a", "t", 1),
            event("a", "s", 3),
            event("a", "s", 0),
        ];
        let names = |group: &Vec<(String, StoredEvent)>| {
            group
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        let groups: Vec<_> = by_aggregate(came).iter().map(names).collect();
        assert_eq!(groups, [vec!["at1", "at2", "as0", "as3"], vec!["bt0"]]);
    }
}
