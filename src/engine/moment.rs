//! Reads two clocks at once, and limits the time of store calls.

use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::clock::EpochMillis;

/// The least time that a store call gets, even when the deadline is near or has passed: what is
/// worth writing then is worth trying to write.
pub(crate) const LEAST_STORE_TIME: Duration = Duration::from_millis(500);

/// The time that is kept back at the end of an invocation, so that the reply still gets out.
pub(crate) const REPLY_TIME: Duration = Duration::from_millis(250);

/// A time longer than any invocation, and far from the largest that a clock can hold.
pub(super) const LONGEST: Duration = Duration::from_hours(24);

/// One moment by the clock that records speak of, and by the one that deadlines are kept with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) time: EpochMillis,
    pub(super) instant: Instant,
}

impl Moment {
    /// Returns the deadline of a store call that begins now, where the attempt must be done by
    /// `until`, and no call lasts beyond `end`.
    pub(super) fn store_deadline(
        self,
        until: EpochMillis,
        limit: Duration,
        end: Option<Instant>,
    ) -> Instant {
        let left = until.saturating_since(self.time).saturating_sub(REPLY_TIME);
        let deadline = self.instant + left.min(limit).min(LONGEST).max(LEAST_STORE_TIME);
        end.map_or(deadline, |end| deadline.min(end))
    }
}
