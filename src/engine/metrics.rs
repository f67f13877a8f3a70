//! The library counts and times its decisions through the facade of the
//! [`metrics`](https://docs.rs/metrics) crate. Without a recorder that costs next to nothing; with
//! one, any exporter of that ecosystem can be used. The crate `lambda-idempotency-emf` writes
//! CloudWatch's embedded metric format.
//!
//! Each metric has two labels: `namespace`, the engine's, and `operation`. Operations are few:
//! where the HTTP layer knows no route's template, the label is the method alone. It is `unkeyed`
//! without a key, and `other` beyond an engine's first hundred.
//!
//! | counter | counts |
//! |---|---|
//! | `idempotency_executions` | claims: handler runs, and those without time for one; without a claim, runs whose end is neither a replay nor refused |
//! | `idempotency_replays` | duplicates of finished requests |
//! | `idempotency_in_flight` | duplicates that met a running attempt |
//! | `idempotency_mismatches` | keys reused with another payload |
//! | `idempotency_failures` | executions that ended without an outcome: an error, a panic, an answer not kept, no time |
//! | `idempotency_retries` | executions after a released attempt |
//! | `idempotency_takeovers` | executions after a crashed attempt |
//! | `idempotency_leases_lost` | handlers that outlived their lease while another attempt took over |
//! | `idempotency_interrupted` | requests that wait for an operator |
//! | `idempotency_too_late` | claims whose time was over before the handler could run |
//! | `idempotency_unrecorded` | successes that could not be recorded |
//! | `idempotency_outcomes_unknown` | transactions that may have committed |
//! | `idempotency_outcomes_omitted` | outcomes that were not kept: too large, or no JSON |
//! | `idempotency_unprotected` | unprotected handler runs |
//! | `idempotency_unreadable` | records that can't be understood |
//! | `idempotency_side_effect_duplicates` | effects that their provider knew (`Claim::duplicate_at_provider`) |
//! | `idempotency_store_errors` | claims, renewals, completions, transactions and releases that the store refused or didn't answer |
//!
//! A store of [`Window::lossy`](crate::window::Window::lossy) has two of its own, without labels: the counter
//! `idempotency_lossy_drops`, messages that it took for duplicates without being certain, and the gauge
//! `idempotency_lossy_rate`, the percentage of new messages that it loses.
//!
//! | histogram | unit | measures |
//! |---|---|---|
//! | `idempotency_claim_time` | milliseconds | from the request to the decision, waiting included |
//! | `idempotency_completion_time` | milliseconds | storing the outcome |
//! | `idempotency_outcome_size` | bytes | the outcome, before it is compressed; the record is about 400 bytes more |
//!
//! The duplicate rate is (`replays` + `in_flight`) / (`executions` + `replays` + `in_flight`). It
//! is not its own metric, because rates can't be added up.
//!
//! Install the recorder before the first request: a metric that was met without one stays silent.
//!
//! ```
//! use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
//! use metrics_util::debugging::DebuggingRecorder;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let recorder = DebuggingRecorder::new();
//! let snapshotter = recorder.snapshotter();
//! recorder.install()?;
//! let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
//! let charge = || once.run(Key::new("charge", "A-17"), None, async |_| Ok::<_, std::io::Error>(1250));
//! charge().await?;
//! charge().await?;
//!
//! let counted = snapshotter.snapshot().into_vec();
//! let counted: Vec<_> = counted.iter().map(|(key, ..)| key.key().name()).collect();
//! assert!(counted.contains(&"idempotency_executions"));
//! assert!(counted.contains(&"idempotency_replays"));
//! # Ok(()) }
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Histogram, Label, Unit};

use crate::protocol::lock::lock;

/// The number of operations of one process that have their own label. CloudWatch keeps, and
/// charges for, each of them.
const MOST_OPERATIONS: usize = 100;

/// The label of all further operations.
const OTHER: &str = "other";

/// Describes the unit and the meaning of each metric to the recorder. Call it once, after the
/// recorder is installed.
///
/// ```
/// lambda_idempotency::metrics::describe();
/// ```
pub fn describe() {
    for count in Count::ALL {
        metrics::describe_counter!(count.name(), Unit::Count, count.meaning());
    }
    metrics::describe_histogram!(
        CLAIM_TIME,
        Unit::Milliseconds,
        "from the request to the decision"
    );
    metrics::describe_histogram!(COMPLETION_TIME, Unit::Milliseconds, "storing the outcome");
    metrics::describe_histogram!(OUTCOME_SIZE, Unit::Bytes, "the outcome as stored");
}

const CLAIM_TIME: &str = "idempotency_claim_time";
const COMPLETION_TIME: &str = "idempotency_completion_time";
const OUTCOME_SIZE: &str = "idempotency_outcome_size";

macro_rules! counts {
    ($($variant:ident $name:literal $meaning:literal)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Count {
            $($variant,)*
        }

        impl Count {
            const ALL: &[Self] = &[$(Self::$variant,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("idempotency_", $name),)*
                }
            }

            fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }
        }
    };
}

counts! {
    Executions "executions" "claims on which a handler runs"
    Replays "replays" "duplicates of finished requests"
    InFlight "in_flight" "duplicates that met a running attempt"
    Mismatches "mismatches" "keys reused with another payload"
    Failures "failures" "executions that ended without an outcome"
    Retries "retries" "executions after a released attempt"
    Takeovers "takeovers" "executions after a crashed attempt"
    LeasesLost "leases_lost" "handlers that outlived their lease"
    Interrupted "interrupted" "requests that wait for an operator"
    TooLate "too_late" "claims whose time was over before the handler could run"
    Unrecorded "unrecorded" "successes that could not be recorded"
    OutcomesUnknown "outcomes_unknown" "transactions that may or may not have committed"
    OutcomesOmitted "outcomes_omitted" "outcomes that were not kept"
    Unprotected "unprotected" "unprotected handler runs"
    Unreadable "unreadable" "records that can't be understood"
    SideEffectDuplicates "side_effect_duplicates" "effects that their provider knew already"
    StoreErrors "store_errors" "requests that the store refused or didn't answer"
}

/// The metrics of one operation, looked up once.
#[derive(Debug)]
pub(crate) struct Meter {
    counters: Vec<Counter>,
    claim_time: Histogram,
    completion_time: Histogram,
    outcome_size: Histogram,
}

impl Meter {
    fn new(namespace: &str, operation: &str) -> Self {
        let labels = vec![
            Label::new("namespace", namespace.to_owned()),
            Label::new("operation", operation.to_owned()),
        ];
        let counter = |count: &Count| metrics::counter!(count.name(), labels.clone());
        Self {
            counters: Count::ALL.iter().map(counter).collect(),
            claim_time: metrics::histogram!(CLAIM_TIME, labels.clone()),
            completion_time: metrics::histogram!(COMPLETION_TIME, labels.clone()),
            outcome_size: metrics::histogram!(OUTCOME_SIZE, labels.clone()),
        }
    }

    pub(crate) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: Count, times: u64) {
        if let Some(counter) = self.counters.get(what as usize) {
            counter.increment(times);
        }
    }

    pub(crate) fn claimed_in(&self, time: Duration) {
        self.claim_time.record(millis(time));
    }

    pub(crate) fn completed_in(&self, time: Duration) {
        self.completion_time.record(millis(time));
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "an outcome is far smaller than 2^53 bytes"
    )]
    pub(crate) fn stored(&self, bytes: u64) {
        self.outcome_size.record(bytes as f64);
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The meters of an engine, one for each operation.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    by_operation: Mutex<HashMap<String, Arc<Meter>>>,
}

impl Meters {
    pub(crate) fn of(&self, namespace: &str, operation: &str) -> Arc<Meter> {
        let mut meters = lock(&self.by_operation);
        if let Some(meter) = meters.get(operation) {
            return Arc::clone(meter);
        }
        let label = if meters.len() < MOST_OPERATIONS {
            operation
        } else {
            OTHER
        };
        let meter = meters
            .entry(label.to_owned())
            .or_insert_with(|| Arc::new(Meter::new(namespace, label)));
        Arc::clone(meter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_beyond_the_limit_share_a_meter() {
        let meters = Meters::default();
        for number in 0..2 * MOST_OPERATIONS {
            meters.of("n", &number.to_string());
        }
        let first = meters.of("n", "0");
        assert!(Arc::ptr_eq(&first, &meters.of("n", "0")));
        let (one, another) = (meters.of("n", "150"), meters.of("n", "151"));
        assert!(Arc::ptr_eq(&one, &another));
        assert!(!Arc::ptr_eq(&first, &one));
        let known = meters.by_operation.lock().unwrap().len();
        assert_eq!(known, MOST_OPERATIONS + 1);
    }
}
