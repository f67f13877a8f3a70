//! A clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, EpochMillis, SystemClock};

/// A clock that moves only when told to. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    millis: Arc<AtomicI64>,
}

impl ManualClock {
    /// Stopped at this time.
    pub fn at(now: EpochMillis) -> Self {
        Self {
            millis: Arc::new(AtomicI64::new(now.0)),
        }
    }

    /// Moves forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Moves to this time, forward or back.
    pub fn set(&self, now: EpochMillis) {
        self.millis.store(now.0, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Stopped at the machine's time: a server that sweeps expired records by its own clock leaves what is written alone.
    fn default() -> Self {
        Self::at(SystemClock.now())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> EpochMillis {
        EpochMillis(self.millis.load(Ordering::SeqCst))
    }
}
