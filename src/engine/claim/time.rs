//! The time of a claim, which renewals move.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::protocol::clock::EpochMillis;

/// The time that an attempt has.
#[derive(Debug)]
pub(crate) struct ClaimTime {
    /// The end of the lease as it is stored, without the margin.
    until: AtomicI64,
    /// The time that no renewal goes beyond.
    pub(super) limit: EpochMillis,
    /// The time when the attempt must be done: the deadline of its invocation, else the limit.
    pub(super) deadline: EpochMillis,
}

impl ClaimTime {
    /// Makes the time of a claim whose lease ends at `until`, and may be renewed up to `limit`.
    pub(crate) fn renewed(until: EpochMillis, limit: EpochMillis) -> Self {
        Self {
            until: AtomicI64::new(until.0),
            limit,
            deadline: limit,
        }
    }

    /// Makes the time of a claim that lasts until the deadline of its invocation, and may be renewed
    /// from then up to `limit`.
    pub(crate) fn beyond(deadline: EpochMillis, limit: EpochMillis) -> Self {
        Self {
            deadline,
            ..Self::renewed(deadline, limit)
        }
    }

    pub(super) fn until(&self) -> EpochMillis {
        EpochMillis(self.until.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, until: EpochMillis) {
        self.until.store(until.0, Ordering::Relaxed);
    }
}

/// The time of a claim that is not renewed.
impl From<EpochMillis> for ClaimTime {
    fn from(until: EpochMillis) -> Self {
        Self::renewed(until, until)
    }
}
