//! Explains what a delivery would be told, by the very function that decides in production. Pure.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use lambda_idempotency::protocol::record::{
    DROPPED, Found, PANIC, Record, StoredOutcome, TIMED_OUT, Takeover,
};
use lambda_idempotency::protocol::{Asking, Decision, Rules, decide};
use lambda_idempotency::{EpochMillis, EpochSeconds, OnCrash, RecordId, SagaStatus};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::flag;
use crate::output::counted;
use crate::records::explain::SKEW_MARGIN;
use crate::records::operate::{pending_steps, waiting_steps};
use crate::records::view::{RecordView, State, another};
use crate::time;

mod safe;
mod text;
mod timeline;

use safe::safe_acts;
use timeline::timeline;

/// The answer that a delivery with the same payload would get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The handler runs, as for a new key.
    Runs,
    /// The handler runs again: an attempt ended without an outcome.
    RunsAgain,
    /// The stored outcome.
    Replayed,
    /// An error that says why the outcome of a completed record can't be given back.
    OutcomeOmitted,
    /// The stored failure; without its words, where they were erased.
    FailureReplayed,
    /// Another attempt holds the key.
    InFlight,
    /// A transaction of the database has locked the record, or the table.
    Locked,
    /// An attempt died, and an operator must say whether its effect happened.
    Interrupted,
    /// The attempts are used up.
    Exhausted,
    /// The record can't be understood.
    Unreadable,
    /// An answer that this release doesn't know.
    Unknown,
}

/// A time of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moment {
    /// The time.
    pub at: String,
    /// The distance from now: `5m 3s ago`.
    pub distance: String,
    /// The event, past or future.
    pub what: String,
}

/// An act that is safe for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SafeAct {
    /// The case in which it is right.
    pub when: String,
    /// The command.
    pub command: String,
}

/// The keys that the handler derives for an effect, in one generation: each `rerun --keys new` begins
/// another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Derived {
    /// The effect's name.
    pub effect: String,
    /// The generation; 0 is the first.
    pub generation: u32,
    /// The key of `claim.derive_key`, and of a step of this name.
    pub key: String,
    /// The UUID of `claim.derive_uuid`.
    pub uuid: String,
}

/// The most generations whose keys are shown for an effect.
const MOST_GENERATIONS: u32 = 10;

/// The engine's rules: the table doesn't know them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RulesView {
    /// `run-again`, `run-again-after=` and a duration, or `interrupt`.
    pub crashed: String,
    /// Marks `crashed` as assumed: the command line doesn't give the rule.
    pub crashed_assumed: bool,
    /// The number of attempts that a key may have; absent for no limit.
    pub max_attempts: Option<u32>,
    /// The skew margin.
    pub skew_margin: String,
}

impl RulesView {
    fn of(rules: &Rules) -> Self {
        let crashed = match rules.on_crash {
            OnCrash::Interrupt => "interrupt".to_owned(),
            OnCrash::RunAgainAfter(pause) => format!("run-again-after={}", time::length(pause)),
            _ => "run-again".to_owned(),
        };
        Self {
            crashed,
            crashed_assumed: false,
            max_attempts: rules.max_attempts.map(NonZeroU32::get),
            skew_margin: time::length(rules.skew_margin),
        }
    }

    /// Returns the flags of the rules that aren't the defaults.
    fn flags(&self) -> String {
        let crashed = Some(&self.crashed).filter(|crashed| *crashed != "run-again");
        let margin = Some(&self.skew_margin);
        let margin = margin.filter(|margin| **margin != time::length(SKEW_MARGIN));
        let attempts = self.max_attempts.map(|most| most.to_string());
        let flags = [
            ("--crashed", crashed),
            ("--max-attempts", attempts.as_ref()),
            ("--skew-margin", margin),
        ];
        let given = flags.into_iter();
        let given = given.filter_map(|(name, value)| Some(flag(name, value?)));
        given.collect::<Vec<_>>().join(" ")
    }
}

/// The answer that a delivery would get now, its reason, and an operator's safe acts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The id of the record.
    pub id: String,
    /// The time that it is explained for.
    pub at: String,
    /// The answer that a delivery would get.
    pub answer: Answer,
    /// The answer and its reason, in words.
    pub words: String,
    /// Whether an operator must do something before deliveries go on.
    pub needs_person: bool,
    /// The engine's rules that it is explained by.
    pub rules: RulesView,
    /// The record, where there is one.
    pub record: Option<RecordView>,
    /// The times that are on the record, in their order.
    pub timeline: Vec<Moment>,
    /// The acts that are safe for an operator.
    pub safe: Vec<SafeAct>,
    /// The derived keys of the effects that were asked for.
    pub derived: Vec<Derived>,
}

impl Explanation {
    /// Explains what was found under an id, for deliveries that come at `now` under these rules. The
    /// flags in `place`, each with a blank before it, lead a command to the record.
    pub fn of(
        id: &RecordId,
        place: &str,
        found: Option<&Found>,
        now: EpochMillis,
        rules: &Rules,
    ) -> Self {
        let other = another(found);
        let decision = decide(found, Asking::new(&other, None, now), rules);
        let record = found.and_then(|found| found.content.as_deref().ok());
        let waiting = record.map(waiting_steps).unwrap_or_default();
        let is_paused = matches!(decision, Decision::InFlight { .. })
            && found.is_some_and(|found| State::of(found, now, rules.skew_margin) == State::Stuck);
        let (answer, mut words) = match record {
            Some(record) if is_paused => (Answer::InFlight, paused(&decision, record, now)),
            _ => told(&decision, record, &waiting, now),
        };
        let pending = record.map(pending_steps).unwrap_or_default();
        if answer == Answer::RunsAgain && !pending.is_empty() {
            let _ = write!(
                words,
                "; steps under way when an attempt ended: `{}`. One with `OnCrash::Interrupt` then waits for `settle-step`",
                pending.join("`, `")
            );
        }
        if let (Answer::Unreadable, Some(found)) = (answer, found) {
            words.push_str(&left_alone(found, now));
        }
        if let Some(status) = record.and_then(SagaStatus::of) {
            let _ = write!(words, "; its saga is {}", status.as_str());
        }
        let view = found.map(|found| RecordView::of(id, found, now, rules.skew_margin));
        let rules = RulesView::of(rules);
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
            safe: safe_acts(
                id,
                place,
                &rules.flags(),
                answer,
                is_paused,
                &waiting,
                record,
            ),
            rules,
            record: view,
            derived: Vec::new(),
        }
    }

    /// Derives the keys of these effects, up to the generation that the record's attempts derive: the
    /// first ones, and the newest.
    pub(crate) fn derive(&mut self, id: &RecordId, found: Option<&Found>, effects: &[String]) {
        let newest = match found.map(|found| found.content.as_deref()) {
            Some(Err(_)) if !effects.is_empty() => {
                self.words.push_str(
                    "; a readable one would say whether `rerun --keys new` changed the keys, so that --derive shows the first ones alone",
                );
                0
            }
            Some(Ok(record)) => record.journal.key_generation(),
            _ => 0,
        };
        let left_out = newest.saturating_sub(MOST_GENERATIONS - 1);
        if left_out > 0 && !effects.is_empty() {
            let left_out = counted(left_out.into(), "generation");
            let _ = write!(
                self.words,
                "; --derive shows the first keys and the newest, and leaves out {left_out} between them"
            );
        }
        let of = |effect: &String| {
            let effect = effect.clone();
            let generations = std::iter::once(0).chain(left_out + 1..=newest);
            generations.map(move |generation| Derived {
                key: id.derive_key_in(generation, &effect),
                uuid: id.derive_uuid_in(generation, &effect),
                effect: effect.clone(),
                generation,
            })
        };
        self.derived = effects.iter().flat_map(of).collect();
    }

    /// Names the answer of an engine with the other `OnCrash`, where the rule was assumed.
    pub(crate) fn assumes_crashed(&mut self, id: &RecordId, place: &str, found: Option<&Found>) {
        self.rules.crashed_assumed = true;
        let is_stuck = |record: &RecordView| record.state == State::Stuck;
        if self.answer == Answer::RunsAgain && self.record.as_ref().is_some_and(is_stuck) {
            self.words.push_str(
                "; an engine with `OnCrash::Interrupt` would tell it *interrupted*, and wait for an operator: give --crashed",
            );
            let record = found.and_then(|found| found.content.as_deref().ok());
            self.safe.insert(0, safe::release(id, place, record));
        }
    }

    /// Returns whether a delivery would run the handler.
    pub(crate) fn runs(&self) -> bool {
        // Up to the step that waits, too.
        let would_take_over = |record: &RecordView| record.state == State::Released;
        match self.answer {
            Answer::Runs | Answer::RunsAgain => true,
            Answer::Interrupted => self.record.as_ref().is_some_and(would_take_over),
            _ => false,
        }
    }

    /// Explains that a transaction, which is open, writes the record of a key that has none yet.
    pub(crate) fn is_written(&mut self, id: &RecordId, place: &str) {
        self.waits(
            id,
            place,
            Answer::InFlight,
            "a delivery would wait, and be told *in flight*: a transaction that is open writes the key's record, one that a handler \
             runs in, or somebody's own. What it has written is seen when it commits"
                .to_owned(),
        );
    }

    /// Explains that a transaction, which is open, has locked the record or the table, in these words.
    pub(crate) fn is_locked(&mut self, id: &RecordId, place: &str, words: &str) {
        let words = format!(
            "locked: {words}. A delivery would wait for the end of that; what it is told then isn't known before"
        );
        self.waits(id, place, Answer::Locked, words);
    }

    fn waits(&mut self, id: &RecordId, place: &str, answer: Answer, words: String) {
        self.answer = answer;
        self.needs_person = false;
        self.words = words;
        self.safe = vec![safe::ask_again(
            id,
            place,
            &self.rules.flags(),
            "wait until the transaction ends, then ask again",
        )];
    }

    /// Adds that a transaction may hold the key, and why that isn't known.
    pub(crate) fn may_be_held(&mut self, unknown: &str) {
        let _ = write!(
            self.words,
            "; unless a transaction that is open holds the key, which {unknown}"
        );
    }
}

fn until(at: EpochMillis, now: EpochMillis) -> String {
    format!("{} ({})", time::text(at), time::distance(at, now))
}

/// Words how long a record that can't be understood stays.
fn left_alone(found: &Found, now: EpochMillis) -> String {
    let end = match found.version.expiration.map(EpochSeconds) {
        Some(at) => format!("until it expires, {}", until(at.to_millis(), now)),
        None => "as long as it is there: no expiration can be read".to_owned(),
    };
    format!("; the record is left alone {end}; find what writes into the table")
}

/// Words the answer to a delivery while the engine waits before it runs a dead attempt again.
fn paused(decision: &Decision<'_>, record: &Record, now: EpochMillis) -> String {
    let Decision::InFlight { until: again } = decision else {
        return String::new();
    };
    format!(
        "a delivery would be told *in flight* until {}: an attempt died, and its lease ended {}; a delivery that comes after the \
         pause runs the handler again, as attempt {}",
        until(*again, now),
        until(record.lease.unwrap_or_default(), now),
        record.attempt.saturating_add(1)
    )
}

fn told(
    decision: &Decision<'_>,
    record: Option<&Record>,
    waiting: &[&str],
    now: EpochMillis,
) -> (Answer, String) {
    let until = |at: EpochMillis| until(at, now);
    match (decision, waiting) {
        (Decision::TakeOver { mode, .. }, [step]) if *mode != Takeover::Fresh => (
            Answer::Interrupted,
            format!(
                "a delivery would run the handler up to the step `{step}`, and be told *interrupted* there: \
                 the step was pending when its attempt died"
            ),
        ),
        (Decision::TakeOver { mode, .. }, [_, _, ..]) if *mode != Takeover::Fresh => (
            Answer::Interrupted,
            format!(
                "a delivery would run the handler up to one of the steps `{}`, and be told *interrupted* there: \
                 they were pending when an attempt died",
                waiting.join("`, `")
            ),
        ),
        (Decision::Create, _) => (
            Answer::Runs,
            "there is no record: a delivery would run the handler; if there should be one, look at --table, --namespace, --operation and the key".to_owned(),
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
                    "the last attempt died, or had its effect and could not store its outcome: its lease ended {}; look in the \
                     function's log for `unrecorded` with this key before a delivery comes",
                    record.lease.map(until).unwrap_or_default()
                ),
                None => String::new(),
            };
            let words =
                format!("a delivery would run the handler again, as attempt {attempt}: {why}");
            (Answer::RunsAgain, words)
        }
        (
            Decision::Replay(Record {
                outcome: Some(StoredOutcome::Omitted(reason)),
                ..
            }),
            _,
        ) => (
            Answer::OutcomeOmitted,
            format!(
                "a delivery would be told *outcome omitted* ({reason}); the handler would not run"
            ),
        ),
        (Decision::Replay(_), _) => (
            Answer::Replayed,
            "a delivery would get the stored outcome; the handler would not run".to_owned(),
        ),
        (Decision::ReplayFailure(failed), _) => {
            let failure = match &failed.outcome {
                Some(StoredOutcome::Omitted(reason)) => format!("a failure without words ({reason})"),
                _ => "the stored failure".to_owned(),
            };
            let words = format!("a delivery would get {failure}; the handler would not run");
            (Answer::FailureReplayed, words)
        }
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

/// Describes how the last attempt gave its key back. One that was ended in the middle may have had its
/// effect.
fn given_back(last_error: Option<&str>) -> String {
    match last_error {
        Some(how @ (DROPPED | PANIC | TIMED_OUT)) => {
            format!("the last attempt was ended in the middle ({how}), and may have had its effect")
        }
        Some(error) => format!("the last attempt gave the key back ({error})"),
        None => "the last attempt gave the key back".to_owned(),
    }
}

#[cfg(test)]
mod tests;
