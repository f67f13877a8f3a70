//! The engine's parts: what a run needs to know, how it gets a claim, how it ends one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Clock, EpochMillis};
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Namespace, RecordId};
use crate::metrics::{Meter, Meters};
use crate::owner::Owners;
use crate::record::Found;
use crate::settings::Settings;

mod acquire;
mod apply;
mod commit;
mod deadlines;
mod finish;
mod journal;
mod oversize;
mod patience;
mod seen;
#[cfg(test)]
mod tests;

pub(crate) use acquire::Acquired;
pub(crate) use apply::Applied;
pub(crate) use commit::Ended;
pub(crate) use deadlines::Deadlines;
pub(crate) use finish::Finished;
pub(crate) use seen::Seen;

/// The least time that a store call gets, even when the deadline is near or has passed: what is worth writing then is
/// worth trying to write.
pub(crate) const LEAST_STORE_TIME: Duration = Duration::from_millis(500);

/// Longer than any invocation lasts, and far from the end of what a clock can say.
const LONGEST: Duration = Duration::from_hours(24);

/// What the metrics call requests without a key.
const UNKEYED: &str = "unkeyed";

/// What is kept back at the end of an invocation, so that the reply still gets out.
const REPLY_TIME: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Engine<S> {
    pub(crate) store: Arc<S>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) deadlines: Arc<Deadlines>,
    pub(crate) namespace: Namespace,
    pub(crate) settings: Settings,
    pub(crate) disabled: bool,
    pub(crate) meters: Arc<Meters>,
    pub(crate) owners: Owners,
    /// The namespace that keys are derived in while the engine only observes; its own is that of the shadow records.
    pub(crate) observed: Option<Namespace>,
}

/// One request for a run, its key and fingerprint computed once, before the handler sees anything.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: Arc<str>,
    pub(crate) id: RecordId,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Whether a record is expected, so that reading first is the cheaper way.
    pub(crate) read_first: bool,
    /// When the invocation ends, where that is known.
    pub(crate) deadline: Option<EpochMillis>,
    pub(crate) retention: Duration,
    pub(crate) meter: Arc<Meter>,
    /// The record that was met last, as far as it may be told of.
    pub(crate) seen: Mutex<Seen>,
    /// Whether somebody reads the outcome of a replay. Where nobody does, a large one needn't be kept.
    pub(crate) wants_outcome: bool,
}

impl Request {
    /// Notes what was met.
    fn meet(&self, found: Option<&Found>, now: EpochMillis) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Seen::of(found, now);
    }

    /// What was met last.
    pub(crate) fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One moment by the clock that records speak of, and by the one that deadlines are kept with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    time: EpochMillis,
    instant: Instant,
}

impl Moment {
    /// Until when the store may take over a call that begins now, where the attempt must be done by `until`.
    fn store_deadline(self, until: EpochMillis, limit: Duration) -> Instant {
        let left = until.saturating_since(self.time).saturating_sub(REPLY_TIME);
        self.instant + left.min(limit).min(LONGEST).max(LEAST_STORE_TIME)
    }
}

impl<S> Engine<S> {
    /// What counts for a key's operation.
    pub(crate) fn meter(&self, key: Option<&Key>) -> Arc<Meter> {
        let operation = key.map_or(UNKEYED, Key::label);
        self.meters.of(self.namespace.as_str(), operation)
    }

    /// When the attempt must be done: the invocation's deadline, else the end of the configured lease. Never in the past, so
    /// that a remaining time of zero still gives a lease.
    fn run_until(&self, request: &Request, now: EpochMillis) -> EpochMillis {
        request
            .deadline
            .unwrap_or(now + self.settings.lease)
            .max(now)
    }

    /// How long a duplicate may wait for another attempt: not so long that its own invocation ends meanwhile.
    fn patience(&self, request: &Request, limit: Duration) -> Duration {
        let left = request
            .deadline
            .map(|deadline| deadline.saturating_since(self.clock.now()));
        left.map_or(limit, |left| limit.min(left.saturating_sub(REPLY_TIME)))
    }

    /// Now, by both clocks.
    fn moment(&self) -> Moment {
        Moment {
            time: self.clock.now(),
            instant: Instant::now(),
        }
    }
}
