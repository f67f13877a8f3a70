//! What a person can safely do, by what a delivery would be told.

use std::fmt::{self, Write as _};

use lambda_idempotency::RecordId;

use super::{Answer, SafeAct};

/// Quotes a word for the shell, as a string that shows no control character: an escape sequence would
/// reach the terminal.
pub(super) fn quoted(word: &str) -> String {
    if !word.chars().any(char::is_control) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut text = "$'".to_owned();
    for char in word.chars() {
        match char {
            '\'' | '\\' => text.extend(['\\', char]),
            char if char.is_control() => {
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

pub(super) fn ask_again(id: &RecordId, when: &str) -> SafeAct {
    act(when, format!("explain {}", quoted(id.as_str())))
}

pub(super) fn release(id: &RecordId) -> SafeAct {
    let id = quoted(id.as_str());
    act(
        "the effect did not happen: the next delivery runs the handler",
        format!("release {id} --reason WHY"),
    )
}

pub(super) fn safe_acts(id: &RecordId, answer: Answer, waiting: Option<&str>) -> Vec<SafeAct> {
    let release = release(id);
    let asked = ask_again(id, "wait until the lease is over, then ask again");
    let id = quoted(id.as_str());
    let complete = act(
        "the effect happened: duplicates get this outcome, and nothing runs",
        format!("complete {id} --outcome JSON --reason WHY"),
    );
    let give_up = act(
        "the effect did not happen and must not any more: duplicates get this failure",
        format!("fail {id} --message WORDS --reason WHY"),
    );
    match (answer, waiting) {
        (Answer::Interrupted, Some(step)) => {
            let step = word(step);
            vec![
                act(
                    "the step's effect happened, with this result: deliveries go on behind it",
                    format!("settle-step {id} --confirmed {step} --result JSON --reason WHY"),
                ),
                act(
                    "the step's effect did not happen: the next delivery fires it",
                    format!("settle-step {id} --failed {step} --reason WHY"),
                ),
            ]
        }
        (Answer::Interrupted | Answer::Exhausted, _) => vec![release, complete, give_up],
        // A delivery runs by itself.
        (Answer::RunsAgain, _) => vec![complete, give_up],
        (Answer::InFlight, _) => vec![
            asked,
            act(
                "the log says `unrecorded` of it, so the effect happened: don't wait",
                format!("complete {id} --outcome JSON --reason WHY --while-live"),
            ),
        ],
        (Answer::FailureReplayed, _) => vec![act(
            "the cause is corrected, and the next delivery shall run the handler",
            format!("release {id} --reason WHY"),
        )],
        (Answer::Replayed, _) => vec![act(
            "the outcome holds personal data that must go",
            format!("redact {id} --reason WHY"),
        )],
        (Answer::Runs | Answer::Unreadable | Answer::Unknown, _) => Vec::new(),
    }
}
