//! The acts that are safe for an operator, by the answer that a delivery would get.

use std::fmt::{self, Write as _};

use lambda_idempotency::RecordId;
use lambda_idempotency::protocol::record::Record;

use super::{Answer, SafeAct};
use crate::output::is_obeyed;
use crate::records::operate::{gives_results, is_compensated, results};
use crate::records::outcome::is_http;

/// Quotes a word for the shell, as a string without what a terminal obeys: a report would show that
/// as text, and the command would name another word.
pub(super) fn quoted(word: &str) -> String {
    if !word.chars().any(is_obeyed) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut text = "$'".to_owned();
    for char in word.chars() {
        match char {
            '\'' | '\\' => text.extend(['\\', char]),
            char if is_obeyed(char) => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
            char => text.push(char),
        }
    }
    text.push('\'');
    text
}

/// A word as it is where the shell takes it so; else quoted.
fn word(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    quoted(word)
}

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

/// A flag with a value.
fn flag(name: &str, value: &str) -> String {
    let equals = if value.starts_with('-') { "=" } else { " " };
    format!("{name}{equals}{}", word(value))
}

pub(super) fn ask_again(id: &RecordId, when: &str) -> SafeAct {
    act(when, on(id, "explain", ""))
}

pub(super) fn release(id: &RecordId) -> SafeAct {
    act(
        "the effect did not happen: the next delivery runs the handler",
        on(id, "release", "--reason WHY"),
    )
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

/// Returns the acts that settle a step that waits. Names it where there are several.
fn settle(id: &RecordId, step: &str, is_one_of_several: bool) -> [SafeAct; 2] {
    let its = if is_one_of_several {
        format!("the effect of the step `{step}`")
    } else {
        "the step's effect".to_owned()
    };
    let confirmed = flag("--confirmed", step);
    let failed = flag("--failed", step);
    [
        act(
            &format!("{its} happened, with this result: deliveries go on behind it"),
            on(
                id,
                "settle-step",
                &format!("{confirmed} --result JSON --reason WHY"),
            ),
        ),
        act(
            &format!("{its} did not happen: the next delivery fires it"),
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
    let release = release(id);
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
            .flat_map(|step| settle(id, step, waiting.len() > 1))
            .collect(),
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
