//! The instants that end a batch: when no message starts any more, and when a handler that still runs
//! is ended.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::REPLY_TIME;

/// The longest reserve where none is set; else it is a tenth of the time that the invocation has.
const LONGEST_RESERVE: Duration = Duration::from_secs(1);

/// The longest time, at the end of an invocation, in which no handler runs any more: one short store
/// call and the reply fit in.
const LONGEST_END: Duration = Duration::from_millis(500);

/// Holds the instants that end a batch; they are taken from the time that its invocation has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// From when on no message starts.
    pub(super) stop: Instant,
    /// When a handler that still runs is ended.
    pub(super) end: Instant,
    /// When what still waits for the store is given up.
    pub(super) give_up: Instant,
}

impl Times {
    /// Gives the instants of an invocation; `None` where its deadline is not known.
    pub(super) fn of(remaining: Option<Duration>, reserve: Option<Duration>) -> Option<Self> {
        let remaining = remaining?;
        let reserve = reserve.unwrap_or_else(|| LONGEST_RESERVE.min(remaining / 10));
        let least = REPLY_TIME.min(remaining / 20);
        let end = (reserve / 2).clamp(least, LONGEST_END);
        // No message starts only to be ended.
        let reserve = reserve.max(end);
        let now = Instant::now();
        Some(Self {
            stop: now + remaining.saturating_sub(reserve),
            end: now + remaining.saturating_sub(end),
            give_up: now + remaining.saturating_sub(end / 2),
        })
    }

    /// Tells whether the reserve has begun, in which no message starts.
    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.stop
    }
}

#[cfg(test)]
mod tests;
