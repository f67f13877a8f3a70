//! Publishes what has waited too long, oldest first, until everything was tried or the time is used.

use std::collections::HashSet;
use std::time::SystemTime;

use futures_util::{StreamExt, stream};
use lambda_idempotency::dynamodb::outbox::StoredEvent;

use crate::pending::{Need, Pending};
use crate::relay::{Failed, Relay, SIDE_BY_SIDE, by_aggregate};
use crate::table::{EventKey, TableError, key_of};
use crate::time::Time;

/// The number of events that a sweep has in memory before it publishes them: 10 MB, where each is as large as an item can be.
const LOADED_AT_ONCE: usize = 25;

/// A sweep left events unpublished that it tried, or the table failed. They stay pending, unless they were parked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("{failed} events could not be published, {parked} of them are parked")]
    Unpublished { failed: usize, parked: usize },
    #[error("the time was over before any event was published: give the function more of it")]
    OutOfTime,
}

/// The counts of a sweep.
#[derive(Debug, Default)]
struct Tally {
    published: usize,
    failed: usize,
    /// Among those that failed, and the items that are no events.
    parked: usize,
    /// The aggregates whose next event failed: what is behind it waits unread, also an item that is no event. A sweep that reads it only
    /// to park it would read the whole backlog each time.
    blocked: HashSet<String>,
    is_cut_short: bool,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.published += other.published;
        self.failed += other.failed;
        self.parked += other.parked;
        self.blocked.extend(other.blocked);
        self.is_cut_short |= other.is_cut_short;
    }

    /// A sweep that did nothing because of its time is no success: nobody would hear of it.
    fn ended(&self) -> Result<(), SweepError> {
        match (self.failed, self.parked) {
            (0, _) if self.is_cut_short && self.published == 0 => Err(SweepError::OutOfTime),
            (0, _) => Ok(()),
            (failed, parked) => Err(SweepError::Unpublished { failed, parked }),
        }
    }
}

impl Relay {
    /// Publishes the events that were recorded long enough ago, as the index has them.
    pub(crate) async fn sweep(&self, time: Time) -> Result<(), SweepError> {
        let before = SystemTime::now()
            .checked_sub(self.sweep_after)
            .unwrap_or(SystemTime::UNIX_EPOCH);
        let (mut pending, mut tally) = (Pending::new(), Tally::default());
        while !tally.is_cut_short {
            match pending.next() {
                Need::Nothing => break,
                Need::Read(bucket, from) => {
                    let reading = self.table.pending(bucket, before, from);
                    pending.read(bucket, time.wait_for(reading).await?);
                }
                Need::Taken(keys) => {
                    for few in keys.chunks(LOADED_AT_ONCE) {
                        if !time.is_used() {
                            self.publish_old(few.to_vec(), time, &mut tally).await?;
                        }
                    }
                }
            }
            tally.is_cut_short |= time.is_used();
        }
        let Tally {
            published,
            failed,
            parked,
            is_cut_short,
            ..
        } = &tally;
        tracing::info!(published, failed, parked, is_cut_short, "swept");
        tally.ended()
    }

    async fn publish_old(
        &self,
        mut keys: Vec<EventKey>,
        time: Time,
        tally: &mut Tally,
    ) -> Result<(), TableError> {
        keys.retain(|(aggregate, _)| !tally.blocked.contains(aggregate));
        if keys.is_empty() {
            return Ok(());
        }
        let loaded = time.wait_for(self.table.load(keys)).await?;
        for key in loaded.unreadable {
            tally.failed += 1;
            // One item that can't be parked must not stop the events.
            let parked = self.park_unreadable(&key, time).await;
            tally.parked += usize::from(parked.unwrap_or(false));
        }
        let publishing = by_aggregate(loaded.events)
            .into_iter()
            .map(|events| self.publish_one_by_one(events, time));
        let mut publishing = stream::iter(publishing).buffer_unordered(SIDE_BY_SIDE);
        while let Some(part) = publishing.next().await {
            tally.add(part);
        }
        Ok(())
    }

    /// Publishes events of one aggregate. The first failure stops those behind it; one that is parked lets them go on.
    /// So does an aggregate whose events can't be read in its part of the time: the others go on.
    async fn publish_one_by_one(&self, events: Vec<StoredEvent>, time: Time) -> Tally {
        let mut tally = Tally::default();
        let aggregate = events.first().map(|event| event.aggregate.clone());
        let waiting = events.len();
        let Ok(events) = self.in_order(events, time.quarter()).await else {
            tally.failed = waiting;
            tally.blocked.extend(aggregate);
            return tally;
        };
        for event in events {
            if time.is_used() {
                tally.is_cut_short = true;
                break;
            }
            match self.publish(&event, time).await {
                Ok(()) => tally.published += 1,
                Err(failed) => {
                    tally.failed += 1;
                    let parked = self.parks(&event, &failed, time).await;
                    // One event that can't be counted or parked must not stop the others.
                    let parked = parked.unwrap_or_else(|error| {
                        tracing::error!(%error, event_id = event.id, "not counted");
                        false
                    });
                    if parked {
                        tally.parked += 1;
                    } else {
                        tally.blocked.insert(event.aggregate);
                        break;
                    }
                }
            }
        }
        tally
    }

    /// Counts a refusal, and parks an event that was refused too often. A target that is down or full refuses nothing.
    async fn parks(
        &self,
        event: &StoredEvent,
        failed: &Failed,
        time: Time,
    ) -> Result<bool, TableError> {
        if !failed.is_refusal() {
            return Ok(false);
        }
        let refusals = event.refusals.saturating_add(1);
        if refusals < self.park_after {
            time.wait_for(self.table.note_refusal(event)).await?;
            return Ok(false);
        }
        if self.park(&key_of(event), time).await? {
            tracing::error!(event_id = event.id, kind = event.kind, refusals, "parked");
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_whose_time_was_over_before_it_published_anything_fails() {
        let of = |published, failed, is_cut_short| Tally {
            published,
            failed,
            is_cut_short,
            ..Tally::default()
        };
        assert!(of(0, 0, false).ended().is_ok(), "nothing waited");
        assert!(of(1, 0, true).ended().is_ok(), "the next one goes on");
        let ended = of(0, 0, true).ended();
        assert!(matches!(ended, Err(SweepError::OutOfTime)), "{ended:?}");
        for is_cut_short in [false, true] {
            let ended = of(1, 2, is_cut_short).ended();
            let counted = SweepError::Unpublished {
                failed: 2,
                parked: 0,
            };
            assert_eq!(ended.unwrap_err().to_string(), counted.to_string());
        }
    }
}
