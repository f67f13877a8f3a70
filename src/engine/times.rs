//! Sets the instants that end a handler and what follows it, before the invocation's deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// The longest reserve where none is set; else it is a twentieth of the time that the invocation
/// has.
const LONGEST_RESERVE: Duration = Duration::from_millis(500);

/// Holds the instants that end an invocation; they are taken from the time that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// When a handler that still runs is ended.
    pub(crate) end: Instant,
    /// When what still waits for the store or for a hook is given up, so that the answer gets out.
    pub(crate) give_up: Instant,
}

impl Times {
    /// Gives the instants of an invocation that has this time left.
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

/// Awaits the end of a run whose work didn't return. What is left of the reserve is the answer's.
pub(crate) async fn ending(times: Option<Times>, ending: impl Future<Output = ()>) {
    match times {
        Some(times) => drop(timeout_at(times.give_up, ending).await),
        None => ending.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
