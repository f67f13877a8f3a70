//! The time of an invocation: when it begins nothing new, and when it waits no longer.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use crate::table::TableError;

/// The end of an invocation, in which no event is begun: at most this, and a quarter of what was left at the start.
const RESERVE: Duration = Duration::from_secs(3);
/// The time of an invocation whose end is not known.
const ASSUMED: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    begin_until: Instant,
    wait_until: Instant,
}

impl Time {
    /// A deadline that has passed and is from before the function's start is none: `cargo lambda watch`
    /// sends one of 1970.
    pub(crate) fn before(deadline: SystemTime, start: SystemTime) -> Self {
        let left = match deadline.duration_since(SystemTime::now()) {
            Ok(left) => left,
            Err(_) if deadline < start => ASSUMED,
            Err(_) => Duration::ZERO,
        };
        let reserve = RESERVE.min(left / 4);
        let now = Instant::now();
        Self {
            begin_until: now + left.saturating_sub(reserve),
            wait_until: now + left.saturating_sub(reserve / 2),
        }
    }

    /// A quarter of the time that is left: for what must not take it from others.
    pub(crate) fn quarter(self) -> Self {
        let now = Instant::now();
        let left = self.wait_until.saturating_duration_since(now);
        Self {
            wait_until: now + left / 4,
            ..self
        }
    }

    /// Returns whether nothing may be begun any more.
    pub(crate) fn is_used(self) -> bool {
        Instant::now() >= self.begin_until
    }

    /// Waits for what was begun, as long as an answer can still be given; `None` afterwards.
    pub(crate) fn wait<T>(self, begun: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
        let begun = timeout_at(self.wait_until, Box::pin(begun));
        async { begun.await.ok() }
    }

    /// Waits for the table's answer.
    pub(crate) fn wait_for<T>(
        self,
        answer: impl Future<Output = Result<T, TableError>>,
    ) -> impl Future<Output = Result<T, TableError>> {
        let answer = self.wait(answer);
        async {
            let answer = answer.await;
            answer.unwrap_or_else(|| Err(TableError::no_answer_in_time()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_deadline_from_before_the_start_leaves_time_after_it() {
        let start = SystemTime::now() - Duration::from_hours(1);
        let is_used = |deadline| Time::before(deadline, start).is_used();
        assert!(!is_used(SystemTime::UNIX_EPOCH + Duration::from_mins(10)));
        assert!(is_used(start + Duration::from_mins(1)));
        assert!(!is_used(SystemTime::now() + Duration::from_mins(1)));
    }

    #[test]
    fn a_deadline_to_come_counts_also_where_the_clock_was_put_back() {
        let left = Duration::from_secs(2);
        let deadline = SystemTime::now() + left;
        let time = Time::before(deadline, deadline + Duration::from_hours(1));
        assert!(time.wait_until <= Instant::now() + left);
    }
}
