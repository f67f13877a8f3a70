//! Recognises deadlines that no invocation of an engine can have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::settings::AtDeadline;
use crate::protocol::clock::EpochMillis;

/// The variable that Lambda sets where an environment serves several invocations at once.
const CONCURRENCY_VARIABLE: &str = "AWS_LAMBDA_MAX_CONCURRENCY";

/// The place where a process runs, by the variables that Lambda sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A Lambda function, whose process is frozen after each reply, and ended at a deadline.
    Lambda,
    /// A Lambda Managed Instance: nothing is frozen, and what is late goes on.
    ManagedInstance,
    /// A server, a job, a test.
    Elsewhere,
}

impl Host {
    /// Recognises the place where this process runs.
    pub(crate) fn of_process() -> Self {
        let Some(concurrency) = std::env::var_os(CONCURRENCY_VARIABLE) else {
            return match std::env::var_os("AWS_LAMBDA_RUNTIME_API") {
                Some(_) => Self::Lambda,
                None => Self::Elsewhere,
            };
        };
        let concurrency = concurrency.to_string_lossy();
        if concurrency.parse::<u32>().is_err() {
            tracing::warn!(
                event = "concurrency_unknown",
                variable = CONCURRENCY_VARIABLE,
                value = &*concurrency,
                "the value is no number: the process counts as one on Lambda Managed Instances all the same"
            );
        }
        Self::ManagedInstance
    }

    /// Returns what happens at a deadline, unless the builder says otherwise.
    pub(crate) fn at_deadline(self) -> AtDeadline {
        match self {
            Self::Lambda => AtDeadline::End,
            Self::ManagedInstance | Self::Elsewhere => AtDeadline::GoOn,
        }
    }

    /// Returns how long a claim lasts without a deadline, and an attempt that is renewed, unless the
    /// builder says otherwise: in Lambda as long as the longest invocation.
    pub(crate) fn longest(self) -> Duration {
        match self {
            Self::ManagedInstance => Duration::from_mins(90),
            Self::Lambda | Self::Elsewhere => Duration::from_mins(15),
        }
    }
}

/// The variables that Lambda sets in every function's environment.
const LAMBDA_VARIABLES: [&str; 2] = ["AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_RUNTIME_API"];

/// Separates deadlines that an invocation of this engine can have from those that it can't.
///
/// An engine is built before its first invocation begins, so every invocation ends later than that.
/// An earlier deadline doesn't say when the invocation ends: `cargo lambda watch` sends 600000 with
/// each event, ten minutes after 1970. Nor does a deadline of 0, which `Context::default()` has.
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

    /// Returns the deadline; `None` where it is 0, or earlier than the engine, which is warned of
    /// the first time. Claims then last for `lease`.
    pub(crate) fn known(&self, deadline: EpochMillis, lease: Duration) -> Option<EpochMillis> {
        if deadline.0 == 0 {
            return None;
        }
        if deadline >= self.built_at {
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

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT_AT: EpochMillis = EpochMillis(1_790_000_000_000);
    const LEASE: Duration = Duration::from_mins(15);

    #[test]
    fn a_deadline_earlier_than_the_engine_is_unknown() {
        let deadlines = Deadlines::since(BUILT_AT, false);
        for earlier in [0, 600_000, BUILT_AT.0 - 1] {
            assert_eq!(deadlines.known(EpochMillis(earlier), LEASE), None);
        }
    }

    #[test]
    fn a_deadline_of_0_is_unknown_whatever_the_clock_says() {
        let deadlines = Deadlines::since(EpochMillis(0), false);
        assert_eq!(deadlines.known(EpochMillis(0), LEASE), None);
        assert!(!deadlines.has_warned.into_inner());
    }

    #[test]
    fn a_deadline_at_or_after_the_engines_construction_is_known() {
        let deadlines = Deadlines::since(BUILT_AT, false);
        for later in [BUILT_AT.0, BUILT_AT.0 + 1, i64::MAX] {
            let later = EpochMillis(later);
            assert_eq!(deadlines.known(later, LEASE), Some(later));
        }
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
}
