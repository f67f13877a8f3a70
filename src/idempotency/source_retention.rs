//! Compares how long outcomes are kept with how long their source may deliver again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Idempotency;

/// Holds how long a source may deliver an event again, as its layer declares it.
#[derive(Clone, Debug)]
pub(crate) struct SourceRetention {
    declared: Duration,
    has_warned: Arc<AtomicBool>,
}

impl SourceRetention {
    pub(crate) fn new(declared: Duration) -> Self {
        Self {
            declared,
            has_warned: Arc::default(),
        }
    }

    /// Warns once where this engine keeps outcomes for a shorter time.
    pub(crate) fn check(&self, once: &Idempotency) {
        let kept = once.retention_in_force();
        if kept >= self.declared || self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        let event = "retention_too_short";
        let detail = format!(
            "the source may deliver an event again for {declared}, and its outcome is kept for {kept}: a later delivery runs again; set a retention of {declared} or more",
            declared = words(self.declared),
            kept = words(kept),
        );
        tracing::warn!(event, %detail, "idempotency");
    }
}

impl Idempotency {
    /// Returns how long this engine keeps outcomes.
    fn retention_in_force(&self) -> Duration {
        let options = &self.options;
        let retention = options.retention.or(self.engine.settings.retention);
        retention.unwrap_or(options.default_retention)
    }
}

/// Writes a duration in its largest whole unit.
fn words(time: Duration) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let seconds = time.as_secs();
    let whole = |(unit, _): &&(u64, &str)| seconds >= *unit && seconds.is_multiple_of(*unit);
    let (unit, name) = UNITS.iter().find(whole).unwrap_or(&(1, "second"));
    let count = seconds / unit;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_in_its_largest_whole_unit() {
        for (seconds, expected) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (120, "2 minutes"),
            (3_600, "1 hour"),
            (90_000, "25 hours"),
            (604_800, "7 days"),
            (604_801, "604801 seconds"),
        ] {
            assert_eq!(words(Duration::from_secs(seconds)), expected);
        }
    }
}
