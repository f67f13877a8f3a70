//! The clock gives the time, and a test can replace it.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch: the unit of leases and of "processed at".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochMillis(pub i64);

/// Seconds since the Unix epoch: the unit of a record's expiration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochSeconds(pub i64);

impl EpochMillis {
    /// Returns the first whole second that is not before this instant.
    #[doc(hidden)]
    pub fn ceil_seconds(self) -> EpochSeconds {
        EpochSeconds(self.0.saturating_add(999).div_euclid(1_000))
    }

    /// Tells how long from `earlier` until this instant; zero where it lies before.
    #[doc(hidden)]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

impl EpochSeconds {
    /// Returns the same instant in milliseconds.
    #[doc(hidden)]
    pub fn to_millis(self) -> EpochMillis {
        EpochMillis(self.0.saturating_mul(1_000))
    }
}

impl Add<Duration> for EpochMillis {
    type Output = Self;

    /// Saturates: a lease at the end of time is still a lease.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_millis(duration)))
    }
}

impl Sub<Duration> for EpochMillis {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(whole_millis(duration)))
    }
}

fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl From<SystemTime> for EpochMillis {
    fn from(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(whole_millis(since_epoch))
    }
}

impl From<EpochMillis> for SystemTime {
    fn from(time: EpochMillis) -> Self {
        UNIX_EPOCH + Duration::from_millis(u64::try_from(time.0).unwrap_or(0))
    }
}

/// A source of the current time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> EpochMillis;
}

/// Reads the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> EpochMillis {
        SystemTime::now().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_so_that_nothing_expires_early() {
        assert_eq!(EpochMillis(1_000).ceil_seconds(), EpochSeconds(1));
        assert_eq!(EpochMillis(1_001).ceil_seconds(), EpochSeconds(2));
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(EpochMillis(i64::MAX) + Duration::MAX, EpochMillis(i64::MAX));
        assert_eq!(
            EpochMillis(5).saturating_since(EpochMillis(9)),
            Duration::ZERO
        );
        assert_eq!(
            EpochMillis(i64::MAX).ceil_seconds(),
            EpochSeconds(i64::MAX / 1_000)
        );
    }
}
