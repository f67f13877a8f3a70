//! How often what was reached.

use std::collections::BTreeMap;
use std::fmt;

use lambda_idempotency::testing::Call;

use crate::night::Night;
use crate::world::What;

#[derive(Debug, Default)]
pub struct Report {
    counts: BTreeMap<String, u64>,
    /// What broke, with its seed; the first few.
    pub broken: Vec<String>,
}

/// As many as a person reads.
const SHOWN: usize = 5;

impl Report {
    pub fn add(&mut self, night: &Night) {
        self.count(format!("door {:?}", night.scenario.door));
        self.count(format!(
            "clocks within the margin: {}",
            night.scenario.clocks_agree()
        ));
        for change in &night.changes {
            self.count(format!("write {:?}", change.kind));
        }
        for result in &night.results {
            self.count(format!("result {}", word(&result.what)));
        }
        for execution in &night.executions {
            match execution.ended {
                Some((_, end)) => self.count(format!("handler {end:?}")),
                None => self.count("handler Died".to_owned()),
            }
        }
        for ((call, fault), count) in &night.met {
            *self.counts.entry(fault_of(*call, fault)).or_default() += count;
        }
        let broken = night
            .broken
            .iter()
            .map(|what| format!("seed {}: {what}", night.seed));
        self.broken.extend(broken);
        self.broken.truncate(SHOWN);
    }

    pub fn merge(mut self, other: Self) -> Self {
        for (what, count) in other.counts {
            *self.counts.entry(what).or_default() += count;
        }
        self.broken.extend(other.broken);
        self.broken.truncate(SHOWN);
        self
    }

    fn count(&mut self, what: String) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// What a simulation has to reach, and this one didn't.
    pub fn never_reached(&self) -> Vec<String> {
        let calls = [
            Call::Create,
            Call::TakeOver,
            Call::Amend,
            Call::Commit,
            Call::Complete,
            Call::Release,
            Call::Load,
        ];
        let faults = [
            "request lost",
            "reply lost",
            "resent",
            "late",
            "delayed",
            "throttled",
            "conflict",
        ];
        let faults = calls
            .into_iter()
            .flat_map(|call| faults.map(|fault| fault_of(call, fault)));
        let writes = [
            "Create", "Replace", "Resume", "Amend", "Commit", "Complete", "Release", "Swept",
        ]
        .map(|kind| format!("write {kind}"));
        let results = [
            "executed",
            "replayed",
            "unrecorded",
            "crashed",
            "panicked",
            "acknowledged",
            "reported",
            "in_flight",
            "mismatch",
            "failure_replayed",
            "interrupted",
            "exhausted",
            "lease_lost",
            "too_late",
            "handler_failed",
            "condition_failed",
            "not_committed",
            "outcome_unknown",
            "store_failed",
            "HTTP 409",
            "HTTP 422",
            "HTTP 500",
            "HTTP 503",
        ]
        .map(|word| format!("result {word}"));
        let ends = ["Succeeded", "Failed", "Panicked", "Died"].map(|end| format!("handler {end}"));
        faults
            .chain(writes)
            .chain(results)
            .chain(ends)
            .filter(|what| !self.counts.contains_key(what))
            .collect()
    }
}

fn fault_of(call: Call, fault: &str) -> String {
    format!("fault {call:?} {fault}")
}

fn word(what: &What) -> &str {
    match what {
        What::Executed(_) => "executed",
        What::Replayed(_) => "replayed",
        What::Unrecorded(_) => "unrecorded",
        What::Refused(code) => code,
        What::Crashed => "crashed",
        What::Panicked => "panicked",
        What::Acknowledged => "acknowledged",
        What::Reported => "reported",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.counts {
            writeln!(f, "{count:>12}  {what}")?;
        }
        Ok(())
    }
}
