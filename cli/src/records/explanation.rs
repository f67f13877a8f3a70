//! Says what a delivery would be told, by the very function that decides in production. Pure.

use std::fmt;

use lambda_idempotency::protocol::journal::StepState;
use lambda_idempotency::protocol::record::{Found, Owner, Record, Status, Takeover};
use lambda_idempotency::protocol::{Asking, Decision, Rules, decide};
use lambda_idempotency::{EpochMillis, RecordId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{ALARM, DIM, GOOD, HEADING, WARNING};
use crate::records::acts::{OPERATOR_STEP, acts};
use crate::records::view::{RecordView, State};
use crate::time;

/// What a delivery with the same payload would be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The handler runs, as for a new key.
    Runs,
    /// The handler runs again: an attempt ended without an outcome.
    RunsAgain,
    /// The stored outcome.
    Replayed,
    /// The stored failure.
    FailureReplayed,
    /// Another attempt holds the key.
    InFlight,
    /// An attempt died, and a person must say whether its effect happened.
    Interrupted,
    /// The attempts are used up.
    Exhausted,
    /// The record can't be understood.
    Unreadable,
    /// Nothing that this release knows.
    Unknown,
}

/// A time of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moment {
    /// When.
    pub at: String,
    /// How far from now: `5m 3s ago`.
    pub distance: String,
    /// What happened, or will.
    pub what: String,
}

/// What a person can safely do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SafeAct {
    /// When it is right.
    pub when: String,
    /// The command, without the flags that all commands share.
    pub command: String,
}

/// What a delivery would be told now, why, and what a person can do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The id of the record.
    pub id: String,
    /// The time that it is explained for.
    pub at: String,
    /// What a delivery would be told.
    pub answer: Answer,
    /// The same in words.
    pub words: String,
    /// Whether a person must do something before deliveries go on.
    pub needs_person: bool,
    /// The record, where there is one.
    pub record: Option<RecordView>,
    /// The times that are on the record, in their order.
    pub timeline: Vec<Moment>,
    /// What a person can safely do.
    pub safe: Vec<SafeAct>,
}

impl Explanation {
    /// Explains what was found under an id, for deliveries that come at `now` under these rules.
    pub fn of(id: &RecordId, found: Option<&Found>, now: EpochMillis, rules: &Rules) -> Self {
        // No record has it: the delivery is a new attempt.
        let nobody = Owner::from_stored("a delivery");
        let decision = decide(found, Asking::new(&nobody, None, now), rules);
        let record = found.and_then(|found| found.content.as_deref().ok());
        let waiting = record.and_then(interrupted_step);
        let (answer, words) = told(&decision, record, waiting, now);
        let view = found.map(|found| RecordView::of(id, found, now, rules.skew_margin));
        Self {
            id: id.as_str().to_owned(),
            at: time::text(now),
            answer,
            words,
            needs_person: matches!(
                answer,
                Answer::Interrupted | Answer::Exhausted | Answer::Unreadable
            ),
            timeline: record
                .map(|record| timeline(record, now))
                .unwrap_or_default(),
            safe: safe_acts(id, answer, view.as_ref(), waiting),
            record: view,
        }
    }
}

/// The step because of which the record was released: a handler that comes again meets it.
fn interrupted_step(record: &Record) -> Option<&str> {
    let waits = record.status == Status::InProgress
        && record.last_error.as_deref() == Some("interrupted step");
    let mut steps = record.journal.iter();
    let (name, _) = steps.find(|(_, entry)| entry.state == StepState::Pending)?;
    waits.then_some(name)
}

fn told(
    decision: &Decision<'_>,
    record: Option<&Record>,
    waiting: Option<&str>,
    now: EpochMillis,
) -> (Answer, String) {
    let until = |at: EpochMillis| format!("{} ({})", time::text(at), time::distance(at, now));
    match (decision, waiting) {
        (Decision::TakeOver { mode, .. }, Some(step)) if *mode != Takeover::Fresh => (
            Answer::Interrupted,
            format!(
                "a delivery would run the handler up to the step `{step}`, and be told *interrupted* there: \
                 the step was pending when its attempt died"
            ),
        ),
        (Decision::Create, _) => (
            Answer::Runs,
            "there is no record: a delivery would run the handler".to_owned(),
        ),
        (
            Decision::TakeOver {
                mode: Takeover::Fresh,
                ..
            },
            _,
        ) => (
            Answer::Runs,
            "the record has expired: a delivery would run the handler, as for a new key".to_owned(),
        ),
        (Decision::TakeOver { attempt, .. }, _) => {
            let why = match record {
                Some(record) if record.is_released() => given_back(record.last_error.as_deref()),
                Some(record) => format!(
                    "the last attempt died: its lease ended {}",
                    record.lease.map(until).unwrap_or_default()
                ),
                None => String::new(),
            };
            let words =
                format!("a delivery would run the handler again, as attempt {attempt}: {why}");
            (Answer::RunsAgain, words)
        }
        (Decision::Replay(_), _) => (
            Answer::Replayed,
            "a delivery would get the stored outcome; the handler would not run".to_owned(),
        ),
        (Decision::ReplayFailure(_), _) => (
            Answer::FailureReplayed,
            "a delivery would get the stored failure; the handler would not run".to_owned(),
        ),
        (Decision::InFlight { until: end }, _) => (
            Answer::InFlight,
            format!("a delivery would be told *in flight* until {}", until(*end)),
        ),
        (Decision::Interrupted { since }, _) => (
            Answer::Interrupted,
            format!(
                "a delivery would be told *interrupted*: an attempt died, and its lease ended {}",
                until(*since)
            ),
        ),
        (Decision::Exhausted { attempts }, _) => (
            Answer::Exhausted,
            format!("a delivery would be told *exhausted*: {attempts} attempts were made"),
        ),
        (Decision::Unreadable(reason), _) => (
            Answer::Unreadable,
            format!("a delivery would be told *unreadable*: {reason}"),
        ),
        _ => (
            Answer::Unknown,
            "this release of the tool doesn't know what a delivery would be told: update it"
                .to_owned(),
        ),
    }
}

/// How the last attempt gave its key back. One that was ended in the middle may have had its effect.
fn given_back(last_error: Option<&str>) -> String {
    match last_error {
        Some(how @ ("timed out" | "panic" | "dropped")) => {
            format!("the last attempt was ended in the middle ({how}), and may have had its effect")
        }
        Some(error) => format!("the last attempt gave the key back ({error})"),
        None => "the last attempt gave the key back".to_owned(),
    }
}

fn timeline(record: &Record, now: EpochMillis) -> Vec<Moment> {
    let attempt = record.attempt;
    let lease = record.lease.filter(|_| !record.is_released());
    let stored = match record.status {
        Status::Failed => "the failure was stored",
        _ => "the outcome was stored",
    };
    let mut times = vec![
        (record.started_at, format!("attempt {attempt} began")),
        (lease, format!("the lease of attempt {attempt} ends")),
        (record.completed_at, stored.to_owned()),
        (
            Some(record.expiration.to_millis()),
            "the record expires: the key counts as new".to_owned(),
        ),
    ];
    for (name, entry) in record
        .journal
        .iter()
        .filter(|(name, _)| *name != OPERATOR_STEP)
    {
        let what = match &entry.state {
            StepState::Confirmed(_) => "was confirmed",
            StepState::Failed => "failed",
            _ => "began, and is pending",
        };
        times.push((Some(entry.at), format!("step `{name}` {what}")));
    }
    for act in acts(&record.journal) {
        times.push((
            Some(EpochMillis(act.at)),
            format!("{} by {}: {}", act.act, act.by, act.reason),
        ));
    }
    let mut times: Vec<_> = times
        .into_iter()
        .filter_map(|(at, what)| Some((at?, what)))
        .collect();
    times.sort_by_key(|(at, _)| *at);
    let moment = |(at, what)| Moment {
        at: time::text(at),
        distance: time::distance(at, now),
        what,
    };
    times.into_iter().map(moment).collect()
}

fn safe_acts(
    id: &RecordId,
    answer: Answer,
    view: Option<&RecordView>,
    waiting: Option<&str>,
) -> Vec<SafeAct> {
    let id = format!("'{}'", id.as_str().replace('\'', r"'\''"));
    let act = |when: &str, command: String| SafeAct {
        when: when.to_owned(),
        command: format!("idempotency {command}"),
    };
    let not_happened = "the effect did not happen";
    let happened = "the effect happened";
    match answer {
        Answer::Interrupted if waiting.is_some() => {
            let step = waiting.unwrap_or_default();
            vec![
                act(
                    &format!(
                        "the step's effect happened, with this result: deliveries go on behind it ({happened})"
                    ),
                    format!("settle-step {id} --confirmed {step} --result JSON --reason WHY"),
                ),
                act(
                    &format!(
                        "the step's {}: the next delivery fires it",
                        not_happened.trim_start_matches("the ")
                    ),
                    format!("settle-step {id} --failed {step} --reason WHY"),
                ),
            ]
        }
        Answer::Interrupted | Answer::Exhausted | Answer::RunsAgain => {
            let state = view.map(|view| view.state);
            let release = act(
                &format!("{not_happened}: the next delivery runs the handler"),
                format!("release {id} --reason WHY"),
            );
            let complete = act(
                &format!("{happened}: duplicates get this outcome, and nothing runs"),
                format!("complete {id} --outcome JSON --reason WHY"),
            );
            let give_up = act(
                &format!("{not_happened} and must not any more: duplicates get this failure"),
                format!("fail {id} --message WORDS --reason WHY"),
            );
            match (answer, state) {
                // A delivery runs by itself.
                (Answer::RunsAgain, _) => vec![complete, give_up],
                _ => vec![release, complete, give_up],
            }
        }
        Answer::InFlight => vec![act(
            "wait until the lease is over, then ask again",
            format!("explain {id}"),
        )],
        Answer::FailureReplayed => vec![act(
            "the cause is corrected, and the next delivery shall run the handler",
            format!("release {id} --reason WHY"),
        )],
        Answer::Replayed => vec![act(
            "the outcome holds personal data that must go",
            format!("redact {id} --reason WHY"),
        )],
        Answer::Runs | Answer::Unreadable | Answer::Unknown => Vec::new(),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = match self.answer {
            _ if self.needs_person => ALARM,
            Answer::Replayed => GOOD,
            _ => WARNING,
        };
        writeln!(f, "{HEADING}{}{HEADING:#}", self.id)?;
        write!(f, "{style}{}{style:#}", self.words)?;
        if let Some(record) = &self.record {
            let attempt = record.attempt.map(|attempt| format!(", attempt {attempt}"));
            write!(
                f,
                "\n{}{}",
                record.state.word(),
                attempt.unwrap_or_default()
            )?;
            if let Some(error) = &record.last_error {
                write!(f, ", last error: {error}")?;
            }
            if record.state == State::Unreadable {
                write!(
                    f,
                    "\nIt is left alone until it expires. Find what writes into the table"
                )?;
            }
        }
        if !self.timeline.is_empty() {
            write!(f, "\n\n{HEADING}Timeline{HEADING:#} (now is {})", self.at)?;
            for moment in &self.timeline {
                let Moment { at, distance, what } = moment;
                write!(f, "\n  {at:<24}  {DIM}{distance:>12}{DIM:#}  {what}")?;
            }
        }
        if !self.safe.is_empty() {
            write!(f, "\n\n{HEADING}Safe to do{HEADING:#}")?;
            for act in &self.safe {
                write!(f, "\n  {}\n    {GOOD}{}{GOOD:#}", act.when, act.command)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
