//! What operators did to a record is kept in its journal, under a name that no handler can give a
//! step.

use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::journal::{
    Journal, MAX_STEP_RESULT_BYTES, StepEntry, StepNote, StepResult, StepState,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::rerun;

/// The entry of the journal that keeps what operators did. A handler's step can't have this name.
pub const OPERATOR_STEP: &str = "@operator";

/// What an operator did to a record, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Act {
    /// When, in epoch milliseconds.
    pub at: i64,
    /// `release`, `complete`, `fail`, `settle-step charge confirmed`, `redact`, `rerun`.
    pub act: String,
    /// The operator.
    pub by: String,
    /// The reason that the operator gave.
    pub reason: String,
    /// Names what the operator has to do by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// The acts that a journal has, the oldest first. One that this release can't read is left out.
pub(crate) fn acts(journal: &Journal) -> Vec<Act> {
    let Some(entry) = journal.get(OPERATOR_STEP) else {
        return Vec::new();
    };
    match &entry.state {
        StepState::Confirmed(StepResult::Text(text)) => {
            serde_json::from_str(text).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// The note that adds an act. The oldest go where there is no room for all; those that gave the key
/// back last, since they keep a rerun from being carried out again.
pub(crate) fn note(journal: &Journal, act: Act, at: EpochMillis) -> StepNote {
    let mut all = acts(journal);
    all.push(act);
    let mut text = serde_json::to_string(&all).unwrap_or_default();
    while text.len() > MAX_STEP_RESULT_BYTES && all.len() > 1 {
        let is_rerun = |act: &Act| act.act.starts_with(rerun::WORD);
        let oldest = all.iter().position(|act| !is_rerun(act));
        all.remove(oldest.unwrap_or(0));
        text = serde_json::to_string(&all).unwrap_or_default();
    }
    let begun = StepEntry::begun(journal.get(OPERATOR_STEP), at);
    let entry = begun.ended(StepState::Confirmed(StepResult::Text(text)), None, at);
    StepNote::new(OPERATOR_STEP, entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(number: i64) -> Act {
        Act {
            at: number,
            act: "release".to_owned(),
            by: "alice".to_owned(),
            reason: "x".repeat(500),
            left: None,
        }
    }

    #[test]
    fn acts_are_added_and_the_oldest_go_where_there_is_no_room() {
        let mut journal = Journal::default();
        for number in 0..40 {
            let mut act = act(number);
            if number == 0 {
                act.act = "rerun, steps kept".to_owned();
            }
            let note = note(&journal, act, EpochMillis(number));
            assert!(journal.takes(&note));
            journal.put(note);
        }
        let kept = acts(&journal);
        assert_eq!(kept.last().unwrap().at, 39);
        assert!((10..20).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept[0].act, "rerun, steps kept");
    }
}
