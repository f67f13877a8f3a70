//! The acts of operators on a record: its journal keeps them, under a name that no handler can give
//! a step.

use std::fmt;

use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::journal::{Journal, MAX_STEP_RESULT_BYTES, StepEntry, StepState};
use lambda_idempotency::protocol::packed::Place;
use lambda_idempotency::protocol::record::{
    NOT_STARTED, Owner, Record, Status, StoredOutcome, WITHOUT_REPLY,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::records::rerun;

/// The entry of the journal that keeps what operators did. A handler's step can't have this name.
pub const OPERATOR_STEP: &str = "@operator";
/// The entry that lists where earlier attempts keep large outcomes, or may.
const KEPT_STEP: &str = "@kept";

/// An operator's act on a record, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Act {
    /// The time, in epoch milliseconds.
    pub at: i64,
    /// `release`, `complete`, `fail`, `settle-step charge confirmed`, `redact`, `rerun`.
    pub act: String,
    /// The operator.
    pub by: String,
    /// The reason that the operator gave.
    pub reason: String,
    /// The outcomes that the operator has to delete by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// The terms on which a `rerun` gave the key back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenBack>,
}

impl Act {
    /// Compares two acts by time, kind, operator and reason, not by what is left to delete.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let of = |act: &Self| (act.at, act.act.clone(), act.by.clone(), act.reason.clone());
        of(self) == of(other)
    }
}

/// The terms on which a `rerun` gave a key back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenBack {
    /// The number of the last attempt before.
    pub attempt: u32,
    /// Whether later attempts derive other keys.
    pub new_keys: bool,
    /// Whether confirmed steps fire again.
    pub repeats_steps: bool,
}

impl fmt::Display for GivenBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = if self.new_keys { "new" } else { "same" };
        let steps = if self.repeats_steps {
            " --steps repeat"
        } else {
            ""
        };
        write!(f, "--keys {keys}{steps}")
    }
}

impl GivenBack {
    /// Returns whether no attempt has left a trace since: the record waits for its next delivery. An
    /// attempt of the claimless form that commits nothing leaves none.
    pub(crate) fn waits(self, record: &Record) -> bool {
        // Neither began its work.
        let is_unstarted = |how: &str| matches!(how, NOT_STARTED | WITHOUT_REPLY);
        let ended_unstarted = record.last_error.as_deref().is_some_and(is_unstarted);
        let begun = record.attempt.saturating_sub(u32::from(ended_unstarted));
        record.is_released() && begun <= self.attempt
    }
}

/// The place of a large outcome that is kept outside of its record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// `item` or `object`.
    r#in: String,
    /// The attempt under whose name it is kept.
    pub(crate) owner: String,
}

impl Kept {
    const ITEM: &str = "item";

    /// Returns the place of the record's outcome, or the one that the attempt which holds the record may have
    /// given it, before its completion; `None` of any other record.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let is_held = record.status == Status::InProgress && !record.is_released();
        let (word, owner) = match &record.outcome {
            Some(StoredOutcome::Packed(packed)) => match &packed.place {
                Place::Entry(owner) => (Self::ITEM, owner),
                Place::Object(owner) => ("object", owner),
                _ => return None,
            },
            None if is_held => (Self::ITEM, record.owner.as_ref()?),
            _ => return None,
        };
        Some(Self {
            r#in: word.to_owned(),
            owner: owner.as_str().to_owned(),
        })
    }

    /// Returns the places that earlier acts have noted.
    pub(crate) fn before(record: &Record) -> Vec<Self> {
        listed(&record.journal, KEPT_STEP)
    }

    /// Returns the places of the outcomes of all of its attempts, as far as the record names them.
    pub(crate) fn all(record: &Record) -> Vec<Self> {
        let before = Self::before(record).into_iter();
        before.chain(Self::of(record)).collect()
    }

    /// The note that keeps the name of the record's outcome, for an act that takes it from the record.
    pub(crate) fn note(record: &Record, at: EpochMillis) -> Option<(String, StepEntry)> {
        Self::of(record)?;
        let all = Self::all(record);
        Some(list(&record.journal, KEPT_STEP, all, at, |_| 0))
    }

    /// The attempt, where the outcome is in its own item, or a row.
    pub(crate) fn item(&self) -> Option<Owner> {
        (self.r#in == Self::ITEM).then(|| Owner::from_stored(&*self.owner))
    }
}

/// The acts that a journal has, the oldest first. One that this release can't read is left out.
pub(crate) fn acts(journal: &Journal) -> Vec<Act> {
    listed(journal, OPERATOR_STEP)
}

/// Returns the list in an entry.
fn listed<T: DeserializeOwned>(journal: &Journal, entry: &str) -> Vec<T> {
    match journal.get(entry).map(|entry| &entry.state) {
        Some(StepState::Confirmed(Ok(text))) => serde_json::from_str(text).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Makes the note that lists these. While they exceed the limit, removes the item at the index that `first`
/// returns.
fn list<T: Serialize>(
    journal: &Journal,
    entry: &str,
    mut all: Vec<T>,
    at: EpochMillis,
    first: impl Fn(&[T]) -> usize,
) -> (String, StepEntry) {
    let text = |all: &[T]| serde_json::to_string(all).unwrap_or_default();
    while text(&all).len() > MAX_STEP_RESULT_BYTES && all.len() > 1 {
        all.remove(first(&all));
    }
    let begun = StepEntry::begun(journal.get(entry), at);
    let listed = StepState::Confirmed(Ok(text(&all)));
    (entry.to_owned(), begun.ended(listed, None, at))
}

/// The note that adds an act. The oldest go where there is no room for all; those that gave the key
/// back last, since they keep a rerun from being carried out again. The act itself stays.
pub(crate) fn note(journal: &Journal, act: Act, at: EpochMillis) -> (String, StepEntry) {
    let mut all = acts(journal);
    all.push(act);
    let first = |all: &[Act]| {
        let is_rerun = |act: &Act| act.act.starts_with(rerun::WORD);
        let mut before = all.iter().take(all.len().saturating_sub(1));
        before.position(|act| !is_rerun(act)).unwrap_or(0)
    };
    list(journal, OPERATOR_STEP, all, at, first)
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
            given: None,
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
            let (name, entry) = note(&journal, act, EpochMillis(number));
            let known = journal.get(&name).map_or(0, |known| known.revision);
            assert!(known < entry.revision);
            journal.put(name, entry);
        }
        let kept = acts(&journal);
        assert_eq!(kept.last().unwrap().at, 39);
        assert!((10..20).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept[0].act, "rerun, steps kept");
        // Where only reruns are left, the oldest of them goes.
        let fill = |number| {
            let mut act = act(number);
            act.act = rerun::WORD.to_owned();
            act
        };
        for act in (40..80).map(fill).chain([act(80)]) {
            let (name, entry) = note(&journal, act, EpochMillis(80));
            journal.put(name, entry);
        }
        assert_eq!(acts(&journal).last().unwrap().at, 80);
    }
}
