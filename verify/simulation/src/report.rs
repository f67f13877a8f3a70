//! Counts how often what was reached.

use std::collections::BTreeMap;
use std::fmt;

use lambda_idempotency::testing::Call;

use crate::night::Night;
use crate::operator::Act;
use crate::scenario::Door;
use crate::watched::Kind;
use crate::world::{BASE, End, Execution, What};

/// An event that a night may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Door(Door),
    ClocksAgree(bool),
    Write(Kind),
    Result(&'static str),
    Handler(&'static str),
    Fault(Call, &'static str),
    Besides(&'static str),
}

#[derive(Debug, Default)]
pub struct Report {
    counts: BTreeMap<Reached, u64>,
    /// The broken invariants, each with its seed; the first few.
    pub broken: Vec<String>,
}

/// As many as an operator reads.
const SHOWN: usize = 5;

const CALLS: [Call; 9] = [
    Call::Create,
    Call::TakeOver,
    Call::Renew,
    Call::Amend,
    Call::Commit,
    Call::Complete,
    Call::Release,
    Call::Intervene,
    Call::Load,
];

const FAULTS: [&str; 9] = [
    "request lost",
    "reply lost",
    "resent",
    "late",
    "delayed",
    "reply delayed",
    "copied",
    "throttled",
    "conflict",
];

const WRITES: [Kind; 14] = [
    Kind::Create,
    Kind::Replace,
    Kind::Resume,
    Kind::Renew,
    Kind::Amend,
    Kind::Commit,
    Kind::Complete,
    Kind::Release,
    Kind::Operator(Act::Release),
    Kind::Operator(Act::ReleaseLive),
    Kind::Operator(Act::Redact),
    Kind::Operator(Act::Rerun),
    Kind::Operator(Act::RerunInFull),
    Kind::Swept,
];

const RESULTS: [&str; 26] = [
    "executed",
    "replayed",
    "unrecorded",
    "crashed",
    "hung up",
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
    "timed_out",
    "handler_failed",
    "condition_failed",
    "not_committed",
    "outcome_unknown",
    "outcome_omitted",
    "store_failed",
    "HTTP 409",
    "HTTP 422",
    "HTTP 500",
    "HTTP 503",
];

/// A handler that is still at work when its invocation's time is over.
const OUTLIVED: &str = "a handler that outlives its deadline and goes on";

const BESIDES: [&str; 9] = [
    OUTLIVED,
    "a release of a run that was dropped",
    "a late transaction that applies",
    "a late transaction whose condition fails",
    "a transaction out of season",
    "a transaction whose caller is gone",
    "a key that is fenced off",
    "an operator's order that was carried out before",
    "an operator's order over a record that moved",
];

impl Report {
    pub fn add(&mut self, night: &Night) {
        self.count(Reached::Door(night.scenario.door), 1);
        self.count(Reached::ClocksAgree(night.scenario.clocks_agree()), 1);
        for change in &night.changes {
            self.count(Reached::Write(change.kind), 1);
        }
        for result in &night.results {
            self.count(Reached::Result(word(&result.what)), 1);
        }
        for execution in &night.executions {
            let end = execution.ended.map(|(_, end)| end);
            self.count(Reached::Handler(end_of(end)), 1);
            if has_outlived(night, execution) {
                self.count(Reached::Besides(OUTLIVED), 1);
            }
        }
        for ((call, fault), count) in &night.met {
            self.count(Reached::Fault(*call, fault), *count);
        }
        for (what, count) in &night.reached {
            self.count(Reached::Besides(what), *count);
        }
        let broken = night
            .broken
            .iter()
            .map(|what| format!("seed {}: {what}", night.seed));
        self.broken.extend(broken);
        self.broken.truncate(SHOWN);
    }

    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for (what, count) in other.counts {
            self.count(what, count);
        }
        self.broken.extend(other.broken);
        self.broken.truncate(SHOWN);
        self
    }

    fn count(&mut self, what: Reached, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// Returns the events that a simulation has to reach, and that this one didn't.
    pub fn never_reached(&self) -> Vec<String> {
        let faults = CALLS
            .into_iter()
            .flat_map(|call| FAULTS.map(|fault| Reached::Fault(call, fault)));
        let ends = ["succeeded", "failed", "panicked", "cut off"];
        let missed = faults
            .chain(WRITES.map(Reached::Write))
            .chain(RESULTS.map(Reached::Result))
            .chain(ends.map(Reached::Handler))
            .chain(BESIDES.map(Reached::Besides))
            .chain([Door::Engine, Door::Sqs, Door::Http].map(Reached::Door))
            .chain([true, false].map(Reached::ClocksAgree))
            .filter(|what| !self.counts.contains_key(what));
        missed.map(|what| what.to_string()).collect()
    }
}

/// Returns whether a handler returned after its deadline, by the clock of its machine, and its claim was not over.
fn has_outlived(night: &Night, execution: &Execution) -> bool {
    let delivery = night.scenario.deliveries.get(execution.delivery);
    let outlived = delivery.and_then(|delivery| {
        let over = BASE.0 + delivery.at + delivery.deadline?;
        Some(execution.ended?.0 > over)
    });
    outlived == Some(true) && execution.ended_in_time && !execution.claimless
}

fn word(what: &What) -> &'static str {
    match what {
        What::Executed(_) => "executed",
        What::Replayed(_) => "replayed",
        What::Unrecorded(_) => "unrecorded",
        What::Refused(code) => code,
        What::Crashed => "crashed",
        What::HungUp => "hung up",
        What::Panicked => "panicked",
        What::Acknowledged => "acknowledged",
        What::Reported => "reported",
    }
}

fn end_of(end: Option<End>) -> &'static str {
    match end {
        Some(End::Succeeded) => "succeeded",
        Some(End::Failed) => "failed",
        Some(End::Panicked) => "panicked",
        None => "cut off",
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Door(door) => write!(f, "door {door:?}"),
            Self::ClocksAgree(agree) => write!(f, "clocks within the margin: {agree}"),
            Self::Write(kind) => write!(f, "write {kind:?}"),
            Self::Result(result) => write!(f, "result {result}"),
            Self::Handler(end) => write!(f, "handler {end}"),
            Self::Fault(call, fault) => write!(f, "fault {call:?} {fault}"),
            Self::Besides(what) => f.write_str(what),
        }
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
