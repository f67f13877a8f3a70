//! Reads the times that AWS writes as seconds since 1970. Pure.

use std::time::{Duration, SystemTime};

/// Gives the time so many seconds after 1970 began; `None` for a number that is no such time.
pub(crate) fn seconds(since_1970: f64) -> Option<SystemTime> {
    let since_1970 = Duration::try_from_secs_f64(since_1970).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_time_where_they_can_be() {
        let quarter = SystemTime::UNIX_EPOCH + Duration::from_millis(1_545_084_650_250);
        assert_eq!(seconds(1_545_084_650.25), Some(quarter));
        for number in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(seconds(number), None, "{number}");
        }
    }
}
