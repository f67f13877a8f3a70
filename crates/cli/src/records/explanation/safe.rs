//! What a person can safely do, by what a delivery would be told.

use lambda_idempotency::RecordId;

use super::{Answer, SafeAct};

pub(super) fn safe_acts(id: &RecordId, answer: Answer, waiting: Option<&str>) -> Vec<SafeAct> {
    // Quoted for the shell.
    let id = format!("'{}'", id.as_str().replace('\'', r"'\''"));
    let act = |when: &str, command: String| SafeAct {
        when: when.to_owned(),
        command: format!("idempotency {command}"),
    };
    let release = act(
        "the effect did not happen: the next delivery runs the handler",
        format!("release {id} --reason WHY"),
    );
    let complete = act(
        "the effect happened: duplicates get this outcome, and nothing runs",
        format!("complete {id} --outcome JSON --reason WHY"),
    );
    let give_up = act(
        "the effect did not happen and must not any more: duplicates get this failure",
        format!("fail {id} --message WORDS --reason WHY"),
    );
    match (answer, waiting) {
        (Answer::Interrupted, Some(step)) => vec![
            act(
                "the step's effect happened, with this result: deliveries go on behind it",
                format!("settle-step {id} --confirmed {step} --result JSON --reason WHY"),
            ),
            act(
                "the step's effect did not happen: the next delivery fires it",
                format!("settle-step {id} --failed {step} --reason WHY"),
            ),
        ],
        (Answer::Interrupted | Answer::Exhausted, _) => vec![release, complete, give_up],
        // A delivery runs by itself.
        (Answer::RunsAgain, _) => vec![complete, give_up],
        (Answer::InFlight, _) => vec![
            act(
                "wait until the lease is over, then ask again",
                format!("explain {id}"),
            ),
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
