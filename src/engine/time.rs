//! The time that a request has: the deadline of its invocation, and what is kept back of it.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::protocol::clock::EpochMillis;

/// The variables that Lambda sets in every function's environment.
const LAMBDA_VARIABLES: [&str; 2] = ["AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_RUNTIME_API"];

/// Separates deadlines that an invocation of this engine can have from those that it can't.
///
/// An engine is built before its first invocation begins, so every invocation ends later than that,
/// or later than now where the clock was put back. An earlier deadline doesn't say when the invocation
/// ends: `cargo lambda watch` sends 600000 with each event, ten minutes after 1970. Nor does a deadline
/// of 0, which `Context::default()` has.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// The time when the engine was built, by its own clock.
    built_at: EpochMillis,
    is_in_lambda: bool,
    has_warned: AtomicBool,
}

impl Deadlines {
    /// Makes the check for an engine that is built at this time in this process.
    pub(crate) fn of_process(built_at: EpochMillis) -> Self {
        let is_in_lambda = LAMBDA_VARIABLES
            .iter()
            .any(|variable| std::env::var_os(variable).is_some());
        Self::since(built_at, is_in_lambda)
    }

    fn since(built_at: EpochMillis, is_in_lambda: bool) -> Self {
        Self {
            built_at,
            is_in_lambda,
            has_warned: AtomicBool::new(false),
        }
    }

    /// Returns the deadline; `None` where it is 0, or has passed and is earlier than the engine, which
    /// is warned of the first time. Claims then last for `lease`.
    pub(crate) fn known(
        &self,
        deadline: EpochMillis,
        now: EpochMillis,
        lease: Duration,
    ) -> Option<EpochMillis> {
        if deadline.0 == 0 {
            return None;
        }
        if deadline >= self.built_at || deadline > now {
            return Some(deadline);
        }
        if self.warns() {
            tracing::warn!(
                event = "deadline_unknown",
                deadline_ms = deadline.0,
                built_at_ms = self.built_at.0,
                lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
                "the deadline of the invocation is earlier than the engine: it is ignored, and claims last for the configured lease"
            );
        }
        None
    }

    /// Warns the first time that a request in Lambda has no deadline. Its claim lasts for `lease`.
    pub(super) fn missing(&self, lease: Duration) {
        if self.is_in_lambda && self.warns() {
            tracing::warn!(
                event = "deadline_missing",
                lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
                "the engine runs in Lambda without the deadline of the invocation, so that claims last for the configured lease: bind it in the handler with `once.invocation(&event.context)` (feature `lambda`) or `once.deadline(…)`; the HTTP layer does so with the feature `lambda-http`"
            );
        }
    }

    /// Returns true once.
    fn warns(&self) -> bool {
        !self.has_warned.load(Ordering::Relaxed) && !self.has_warned.swap(true, Ordering::Relaxed)
    }
}

/// The least time that a store call gets, even when the lease is nearly over or the deadline has passed:
/// what is worth writing then is worth trying to write.
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
    /// The present, whose `time` was read just now.
    pub(super) fn now(time: EpochMillis) -> Self {
        let instant = Instant::now();
        Self { time, instant }
    }

    /// Returns the later of `now` and this moment plus the time that the runtime has counted since: a clock
    /// that is put back makes no lease longer.
    pub(super) fn later(self, now: EpochMillis) -> EpochMillis {
        now.max(self.time + self.instant.elapsed())
    }

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

    /// Returns the instant that ends a store call which begins now, so that the answer gets out before
    /// the invocation ends; half of the time is the call's at least. `None` where it has ended.
    pub(super) fn end_before(self, deadline: EpochMillis) -> Option<Instant> {
        let left = deadline.saturating_since(self.time).min(LONGEST);
        let time = left.saturating_sub(REPLY_TIME).max(left / 2);
        (!left.is_zero()).then(|| self.instant + time)
    }
}

/// The longest reserve where none is set; else it is a twentieth of the time that the invocation
/// has.
const LONGEST_RESERVE: Duration = Duration::from_millis(500);

/// Holds the instants that end an invocation; they are taken from the time that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// The time at which a handler that still runs is ended.
    pub(crate) end: Instant,
    /// The time at which calls of the store and of hooks are given up, so that the answer gets out.
    pub(crate) give_up: Instant,
}

impl Times {
    /// Returns the instants of an invocation that has this time left.
    pub(crate) fn of(remaining: Duration, reserve: Option<Duration>) -> Self {
        let reserve = reserve.unwrap_or_else(|| LONGEST_RESERVE.min(remaining / 20));
        // A handler has half of the time at least, whatever the setting says.
        let reserve = reserve.min(remaining / 2);
        let now = Instant::now();
        Self {
            end: now + remaining.saturating_sub(reserve),
            give_up: now + remaining.saturating_sub(reserve / 2),
        }
    }
}

/// Awaits this until the handler's time is over; `None` where it was dropped then.
pub(crate) async fn within<F: Future>(end: Option<Instant>, work: F) -> Option<F::Output> {
    match end {
        Some(end) => timeout_at(end, work).await.ok(),
        None => Some(work.await),
    }
}

/// Awaits the end of a run whose work didn't return. The rest of the reserve is the answer's.
pub(crate) async fn ending<T>(times: Option<Times>, ending: impl Future<Output = T>) -> Option<T> {
    within(times.map(|times| times.give_up), ending).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT_AT: EpochMillis = EpochMillis(1_790_000_000_000);
    const LEASE: Duration = Duration::from_mins(15);

    #[test]
    fn a_deadline_of_0_is_unknown_whatever_the_clock_says() {
        let zero = EpochMillis(0);
        let deadlines = Deadlines::since(zero, false);
        assert_eq!(deadlines.known(zero, zero, LEASE), None);
        assert!(!deadlines.has_warned.into_inner());
    }

    #[test]
    fn a_missing_deadline_is_warned_of_in_lambda_alone() {
        for is_in_lambda in [false, true] {
            let deadlines = Deadlines::since(BUILT_AT, is_in_lambda);
            deadlines.missing(LEASE);
            assert_eq!(deadlines.has_warned.into_inner(), is_in_lambda);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_is_a_twentieth_of_the_time_and_half_a_second_at_most() {
        let now = Instant::now();
        let ends = |remaining, reserve: Option<u64>| {
            let reserve = reserve.map(Duration::from_millis);
            let times = Times::of(Duration::from_millis(remaining), reserve);
            let millis = |instant: Instant| (instant - now).as_millis();
            (millis(times.end), millis(times.give_up))
        };
        assert_eq!(ends(3_000, None), (2_850, 2_925));
        assert_eq!(ends(900_000, None), (899_500, 899_750));
        assert_eq!(ends(5_400_000, None), (5_399_500, 5_399_750));
        assert_eq!(ends(10_000, Some(2_000)), (8_000, 9_000));
        assert_eq!(ends(3_000, Some(5_000)), (1_500, 2_250));
        assert_eq!(ends(0, None), (0, 0));
    }

    #[test]
    fn where_the_clock_was_put_back_a_deadline_is_known_until_it_has_passed() {
        let deadlines = Deadlines::since(BUILT_AT, false);
        let deadline = BUILT_AT - Duration::from_hours(1);
        let before = deadline - Duration::from_millis(1);
        assert_eq!(deadlines.known(deadline, before, LEASE), Some(deadline));
        for unknown in [deadline, EpochMillis(600_000)] {
            assert_eq!(deadlines.known(unknown, deadline, LEASE), None);
        }
    }
}
