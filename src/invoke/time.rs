//! Sets the instants that end a handler and what follows it, before the invocation's deadline.

use std::time::Duration;

use tokio::time::Instant;

/// The longest reserve where none is set; else it is a twentieth of the time that the invocation
/// has.
const LONGEST_RESERVE: Duration = Duration::from_millis(500);

/// Holds the instants that end an invocation; they are taken from the time that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// When a handler that still runs is ended.
    pub(super) end: Instant,
    /// When what still waits for the store or for a hook is given up, so that the answer gets out.
    pub(super) give_up: Instant,
}

impl Times {
    /// Gives the instants of an invocation; `None` where its deadline is not known.
    pub(super) fn of(remaining: Option<Duration>, reserve: Option<Duration>) -> Option<Self> {
        let remaining = remaining?;
        let reserve = reserve.unwrap_or_else(|| LONGEST_RESERVE.min(remaining / 20));
        // A handler has half of the time at least, whatever the setting says.
        let reserve = reserve.min(remaining / 2);
        let now = Instant::now();
        Some(Self {
            end: now + remaining.saturating_sub(reserve),
            give_up: now + remaining.saturating_sub(reserve / 2),
        })
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
            let times = Times::of(Some(Duration::from_millis(remaining)), reserve).unwrap();
            let millis = |instant: Instant| (instant - now).as_millis();
            (millis(times.end), millis(times.give_up))
        };
        assert_eq!(ends(3_000, None), (2_850, 2_925));
        assert_eq!(ends(900_000, None), (899_500, 899_750));
        assert_eq!(ends(10_000, Some(2_000)), (8_000, 9_000));
        assert_eq!(ends(3_000, Some(5_000)), (1_500, 2_250));
        assert_eq!(ends(0, None), (0, 0));
        assert_eq!(Times::of(None, None), None);
    }
}
