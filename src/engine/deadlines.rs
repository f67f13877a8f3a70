//! Which deadlines an engine believes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::EpochMillis;

/// Tells deadlines that an invocation of this engine can have from those that it can't.
///
/// An engine is built before its first invocation begins, so every invocation ends later than that. An earlier deadline
/// doesn't say when the invocation ends: `cargo lambda watch` sends 600000 with each event, ten minutes after 1970.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// When the engine was built, by its own clock.
    built_at: EpochMillis,
    has_warned: AtomicBool,
}

impl Deadlines {
    /// For an engine that is built now.
    pub(crate) fn since(built_at: EpochMillis) -> Self {
        Self {
            built_at,
            has_warned: AtomicBool::new(false),
        }
    }

    /// The deadline; `None`, and a warning the first time, where it is earlier than the engine. Claims then last for `lease`.
    pub(crate) fn known(&self, deadline: EpochMillis, lease: Duration) -> Option<EpochMillis> {
        if deadline >= self.built_at {
            return Some(deadline);
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT_AT: EpochMillis = EpochMillis(1_790_000_000_000);
    const LEASE: Duration = Duration::from_mins(15);

    #[test]
    fn a_deadline_earlier_than_the_engine_is_unknown() {
        let deadlines = Deadlines::since(BUILT_AT);
        for earlier in [0, 600_000, BUILT_AT.0 - 1] {
            assert_eq!(deadlines.known(EpochMillis(earlier), LEASE), None);
        }
    }

    #[test]
    fn a_deadline_at_or_after_the_engines_construction_is_known() {
        let deadlines = Deadlines::since(BUILT_AT);
        for later in [BUILT_AT.0, BUILT_AT.0 + 1, i64::MAX] {
            let later = EpochMillis(later);
            assert_eq!(deadlines.known(later, LEASE), Some(later));
        }
        assert!(!deadlines.has_warned.into_inner());
    }
}
