//! The acts that are safe for an operator, by the answer that a delivery would get.

use std::fmt;

use lambda_idempotency::RecordId;
use lambda_idempotency::protocol::journal::{BY_HAND, UNDO};
use lambda_idempotency::protocol::record::Record;
use lambda_idempotency_audit::is_http;

use super::{Answer, SafeAct};
use crate::args::{flag, quoted};
use crate::records::operate::{gives_results, is_compensated, is_half_done, results, to_undo};

fn act(when: &str, command: impl fmt::Display) -> SafeAct {
    SafeAct {
        when: when.to_owned(),
        command: format!("idempotency {command}"),
    }
}

/// Returns a command on a record, with the flags that lead it there. An id that begins with a dash stands
/// behind all flags.
fn on(id: &RecordId, place: &str, command: &str, flags: &str) -> String {
    let word = quoted(id.as_str());
    let command: &str = &format!("{command}{place}");
    let words = if id.as_str().starts_with('-') {
        [command, flags, "--", &word]
    } else {
        [command, &word, flags, ""]
    };
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn ask_again(id: &RecordId, place: &str, rules: &str, when: &str) -> SafeAct {
    act(when, on(id, place, "explain", rules))
}

pub(super) fn release(id: &RecordId, place: &str, record: Option<&Record>) -> SafeAct {
    let when = if record.is_some_and(is_half_done) {
        "the next delivery goes on with the saga"
    } else {
        "the effect did not happen: the next delivery runs the handler"
    };
    act(when, on(id, place, "release", "--reason WHY"))
}

/// Returns the act that completes a record.
fn completion(id: &RecordId, place: &str, when: &str, flags: &str) -> SafeAct {
    let (otherwise, outcome) = if is_http(id.as_str()) {
        (
            "; by --outcome JSON, where no HTTP layer calls the handler",
            "--status CODE --body-file FILE",
        )
    } else {
        ("", "--outcome JSON")
    };
    let flags = format!("{outcome} --reason WHY{flags}");
    act(
        &format!("{when}{otherwise}"),
        on(id, place, "complete", &flags),
    )
}

/// Returns the acts that settle a step that waits. Names it where there are several, and where it is a
/// compensation that no delivery can run.
fn settle(
    id: &RecordId,
    place: &str,
    step: &str,
    is_one_of_several: bool,
    record: Option<&Record>,
) -> [SafeAct; 2] {
    let entry = |name: &str| record.and_then(|record| record.journal.get(name));
    let of = step.strip_suffix(UNDO).and_then(entry);
    // A step that was settled since has a result, by which a delivery can undo it.
    let is_by_hand = entry(step).is_some_and(|entry| {
        entry.last_error.as_deref() == Some(BY_HAND) && of.is_none_or(|of| of.at <= entry.at)
    });
    let to_undo = record.and_then(to_undo).unwrap_or_default();
    let its = if is_one_of_several {
        format!("the effect of the step `{step}`")
    } else {
        "the step's effect".to_owned()
    };
    // A compensation has no result of its own.
    let result = if step.ends_with(UNDO) { "null" } else { "JSON" };
    let (happened, did_not) = if is_by_hand {
        (
            format!(
                "no delivery can fire `{step}`, and you have done it yourself: deliveries go on behind it"
            ),
            format!(
                "a deployment since then names the step of `{step}`, and reads its result: the next delivery fires it"
            ),
        )
    } else if to_undo.iter().any(|name| name == step) {
        (
            format!("{its} happened, with this result: its undo is next"),
            format!("{its} did not happen: nothing of it is undone"),
        )
    } else {
        (
            format!("{its} happened, with this result: deliveries go on behind it"),
            format!("{its} did not happen: the next delivery fires it"),
        )
    };
    let confirmed = format!("{} --result {result}", flag("--confirmed", step));
    let settle = |when: &str, fate: &str| {
        let flags = format!("{fate} --reason WHY");
        act(when, on(id, place, "settle-step", &flags))
    };
    [
        settle(&happened, &confirmed),
        settle(&did_not, &flag("--failed", step)),
    ]
}

pub(super) fn safe_acts(
    id: &RecordId,
    place: &str,
    rules: &str,
    answer: Answer,
    is_paused: bool,
    waiting: &[&str],
    record: Option<&Record>,
) -> Vec<SafeAct> {
    let on = |command: &str, flags: &str| on(id, place, command, flags);
    let ask_again = |when: &str| ask_again(id, place, rules, when);
    let is_half_done = record.is_some_and(is_half_done);
    let release = release(id, place, record);
    let complete = completion(
        id,
        place,
        "the effect happened: duplicates get this outcome, and nothing runs",
        "",
    );
    let give_up = act(
        "the effect did not happen and must not any more: duplicates get this failure",
        on("fail", "--message WORDS --reason WHY"),
    );
    match answer {
        Answer::Interrupted if !waiting.is_empty() => waiting
            .iter()
            .flat_map(|step| settle(id, place, step, waiting.len() > 1, record))
            .collect(),
        // `complete` and `fail` would end the saga half done.
        Answer::Interrupted | Answer::Exhausted if is_half_done => vec![release],
        Answer::RunsAgain if is_half_done => vec![ask_again(
            "the next delivery goes on with the saga; then ask again",
        )],
        Answer::InFlight if is_half_done => vec![ask_again(
            "wait until the lease or the pause is over; the next delivery goes on with the saga; then ask again",
        )],
        Answer::Interrupted | Answer::Exhausted => vec![release, complete, give_up],
        Answer::InFlight if is_paused => vec![
            ask_again("wait until the pause is over, then ask again"),
            release,
            complete,
            give_up,
        ],
        // A delivery runs by itself.
        Answer::RunsAgain => vec![complete, give_up],
        Answer::InFlight => vec![
            ask_again("wait until the lease is over, then ask again"),
            completion(
                id,
                place,
                "the log says `unrecorded` of it, so the effect happened: don't wait",
                " --while-live",
            ),
        ],
        Answer::FailureReplayed if record.is_some_and(is_compensated) => vec![act(
            "the cause is corrected, and the next delivery shall begin the saga anew",
            on("rerun", "--keys new --steps repeat --reason WHY"),
        )],
        // An attempt that skips a step gets no result of it.
        Answer::FailureReplayed if record.is_some_and(|record| gives_results(record).is_err()) => {
            Vec::new()
        }
        Answer::FailureReplayed if record.is_some_and(|record| to_undo(record).is_some()) => {
            vec![act(
                "the next delivery goes on undoing",
                on("release", "--reason WHY"),
            )]
        }
        Answer::FailureReplayed => vec![act(
            "the cause is corrected, and the next delivery shall run the handler",
            on("release", "--reason WHY"),
        )],
        Answer::OutcomeOmitted if record.is_none_or(|record| results(record).next().is_none()) => {
            Vec::new()
        }
        Answer::OutcomeOmitted => vec![act(
            "the results of its steps hold personal data that must go",
            on("redact", "--reason WHY"),
        )],
        Answer::Replayed => vec![act(
            "the outcome holds personal data that must go",
            on("redact", "--reason WHY"),
        )],
        Answer::Runs | Answer::Locked | Answer::Unreadable | Answer::Unknown => Vec::new(),
    }
}
