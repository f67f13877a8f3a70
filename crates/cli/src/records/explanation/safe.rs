//! The acts that are safe for an operator, by the answer that a delivery would get.

use std::fmt;

use lambda_idempotency::protocol::record::Record;
use lambda_idempotency::{RecordId, SagaStatus};

use super::{Answer, SafeAct};
use crate::args::{flag, quoted};
use crate::records::operate::{gives_results, is_compensated, results};
use crate::records::outcome::is_http;

fn act(when: &str, command: impl fmt::Display) -> SafeAct {
    SafeAct {
        when: when.to_owned(),
        command: format!("idempotency {command}"),
    }
}

/// Returns a command on a record. An id that begins with a dash is no flag.
fn on(id: &RecordId, command: &str, flags: &str) -> String {
    let word = quoted(id.as_str());
    let words = if id.as_str().starts_with('-') {
        [command, flags, "--", &word]
    } else {
        [command, &word, flags, ""]
    };
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn ask_again(id: &RecordId, when: &str) -> SafeAct {
    act(when, on(id, "explain", ""))
}

pub(super) fn release(id: &RecordId, is_half_done: bool) -> SafeAct {
    let when = if is_half_done {
        "the next delivery goes on with the saga"
    } else {
        "the effect did not happen: the next delivery runs the handler"
    };
    act(when, on(id, "release", "--reason WHY"))
}

/// Returns the act that completes a record.
fn completion(id: &RecordId, when: &str, flags: &str) -> SafeAct {
    let (otherwise, outcome) = if is_http(id) {
        (
            "; by --outcome JSON, where no HTTP layer calls the handler",
            "--status CODE --body-file FILE",
        )
    } else {
        ("", "--outcome JSON")
    };
    act(
        &format!("{when}{otherwise}"),
        on(id, "complete", &format!("{outcome} --reason WHY{flags}")),
    )
}

/// Returns the acts that settle a step that waits. Names it where there are several, and where it is a
/// compensation that no delivery can run.
fn settle(
    id: &RecordId,
    step: &str,
    is_one_of_several: bool,
    record: Option<&Record>,
) -> [SafeAct; 2] {
    let entry = record.and_then(|record| record.journal.get(step));
    let is_by_hand = entry.is_some_and(|entry| entry.last_error.as_deref() == Some("by hand"));
    let its = if is_one_of_several {
        format!("the effect of the step `{step}`")
    } else {
        "the step's effect".to_owned()
    };
    // A compensation has no result of its own.
    let result = if step.ends_with("/undo") {
        "null"
    } else {
        "JSON"
    };
    let (happened, did_not) = if is_by_hand {
        (
            format!(
                "no delivery can fire `{step}`, and you have done it yourself: deliveries go on behind it"
            ),
            format!(
                "a deployment since then names the step of `{step}`, and reads its result: the next delivery fires it"
            ),
        )
    } else {
        (
            format!("{its} happened, with this result: deliveries go on behind it"),
            format!("{its} did not happen: the next delivery fires it"),
        )
    };
    let confirmed = flag("--confirmed", step);
    let failed = flag("--failed", step);
    [
        act(
            &happened,
            on(
                id,
                "settle-step",
                &format!("{confirmed} --result {result} --reason WHY"),
            ),
        ),
        act(
            &did_not,
            on(id, "settle-step", &format!("{failed} --reason WHY")),
        ),
    ]
}

pub(super) fn safe_acts(
    id: &RecordId,
    answer: Answer,
    is_paused: bool,
    waiting: &[&str],
    record: Option<&Record>,
) -> Vec<SafeAct> {
    let saga = record.and_then(SagaStatus::of);
    let is_half_done = matches!(saga, Some(SagaStatus::Compensating | SagaStatus::Stuck));
    let release = release(id, is_half_done);
    let complete = completion(
        id,
        "the effect happened: duplicates get this outcome, and nothing runs",
        "",
    );
    let give_up = act(
        "the effect did not happen and must not any more: duplicates get this failure",
        on(id, "fail", "--message WORDS --reason WHY"),
    );
    match answer {
        Answer::Interrupted if !waiting.is_empty() => waiting
            .iter()
            .flat_map(|step| settle(id, step, waiting.len() > 1, record))
            .collect(),
        // `complete` and `fail` would end the saga half done.
        Answer::Interrupted | Answer::Exhausted if is_half_done => vec![release],
        Answer::RunsAgain if is_half_done => vec![ask_again(
            id,
            "the next delivery goes on with the saga; then ask again",
        )],
        Answer::InFlight if is_half_done => vec![ask_again(
            id,
            "wait until the lease or the pause is over; the next delivery goes on with the saga; then ask again",
        )],
        Answer::Interrupted | Answer::Exhausted => vec![release, complete, give_up],
        Answer::InFlight if is_paused => vec![
            ask_again(id, "wait until the pause is over, then ask again"),
            release,
            complete,
            give_up,
        ],
        // A delivery runs by itself.
        Answer::RunsAgain => vec![complete, give_up],
        Answer::InFlight => vec![
            ask_again(id, "wait until the lease is over, then ask again"),
            completion(
                id,
                "the log says `unrecorded` of it, so the effect happened: don't wait",
                " --while-live",
            ),
        ],
        Answer::FailureReplayed if record.is_some_and(is_compensated) => vec![act(
            "the cause is corrected, and the next delivery shall begin the saga anew",
            on(id, "rerun", "--keys new --steps repeat --reason WHY"),
        )],
        // An attempt that skips a step gets no result of it.
        Answer::FailureReplayed if record.is_some_and(|record| gives_results(record).is_err()) => {
            Vec::new()
        }
        Answer::FailureReplayed => vec![act(
            "the cause is corrected, and the next delivery shall run the handler",
            on(id, "release", "--reason WHY"),
        )],
        Answer::OutcomeOmitted if record.is_none_or(|record| results(record).next().is_none()) => {
            Vec::new()
        }
        Answer::OutcomeOmitted => vec![act(
            "the results of its steps hold personal data that must go",
            on(id, "redact", "--reason WHY"),
        )],
        Answer::Replayed => vec![act(
            "the outcome holds personal data that must go",
            on(id, "redact", "--reason WHY"),
        )],
        Answer::Runs | Answer::Locked | Answer::Unreadable | Answer::Unknown => Vec::new(),
    }
}
