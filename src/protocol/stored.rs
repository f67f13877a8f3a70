//! Writes parts of a record as texts, for stores whose database has no types for them. The texts
//! are part of those stores' layouts, so they must never change. Pure.

use serde::{Deserialize, Serialize};

use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::{StepEntry, StepResult, StepState};
use crate::protocol::packed::{PackedOutcome, Place};
use crate::protocol::record::{Omission, Owner, StoredOutcome};

/// An outcome in parts: one of the first three is set, and `content` beside `packed` where the record
/// itself holds the compressed bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "each store has a place for each part"
)]
pub struct OutcomeParts {
    /// The outcome's JSON text.
    pub inline: Option<String>,
    /// The word for why it was not kept.
    pub omitted: Option<String>,
    /// The place of its compressed bytes, as JSON.
    pub packed: Option<String>,
    /// The compressed bytes.
    pub content: Option<Vec<u8>>,
}

const RECORD: &str = "record";
const ROW: &str = "row";
const OBJECT: &str = "object";

#[derive(Debug, Serialize, Deserialize)]
struct Packed {
    sha256: String,
    bytes: u64,
    #[serde(rename = "in")]
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

impl OutcomeParts {
    /// Takes an outcome apart.
    pub fn of(outcome: Option<&StoredOutcome>) -> Self {
        let none = Self::default();
        match outcome {
            None => none,
            Some(StoredOutcome::Inline(text)) => Self {
                inline: Some(text.clone()),
                ..none
            },
            Some(StoredOutcome::Omitted(reason)) => Self {
                omitted: Some(reason.as_str().to_owned()),
                ..none
            },
            Some(StoredOutcome::Packed(packed)) => {
                let (place, owner, content) = match &packed.place {
                    Place::Record(content) => (RECORD, None, Some(content.clone())),
                    Place::Entry(owner) => (ROW, Some(owner.as_str().to_owned()), None),
                    Place::Object(owner) => (OBJECT, Some(owner.as_str().to_owned()), None),
                };
                let packed = Packed {
                    sha256: packed.sha256.clone(),
                    bytes: packed.bytes,
                    place: place.to_owned(),
                    owner,
                };
                Self {
                    packed: serde_json::to_string(&packed).ok(),
                    content,
                    ..none
                }
            }
        }
    }

    /// Puts an outcome together; `None` where there is none.
    ///
    /// # Errors
    ///
    /// The reason why it can't be understood, for an operator.
    pub fn read(self) -> Result<Option<StoredOutcome>, String> {
        if let Some(reason) = self.omitted {
            return omission(&reason).map(StoredOutcome::Omitted).map(Some);
        }
        let Some(packed) = self.packed else {
            return Ok(self.inline.map(StoredOutcome::Inline));
        };
        let packed: Packed =
            serde_json::from_str(&packed).map_err(|error| format!("`packed`: {error}"))?;
        let owner = || {
            let owner = packed.owner.clone().map(Owner::from_stored);
            owner.ok_or_else(|| "`packed owner` is missing".to_owned())
        };
        let place = match (packed.place.as_str(), self.content) {
            (RECORD, Some(content)) => Place::Record(content),
            (ROW, _) => Place::Entry(owner()?),
            (OBJECT, _) => Place::Object(owner()?),
            _ => return Err("`packed` names an unknown place".to_owned()),
        };
        let packed = PackedOutcome {
            sha256: packed.sha256,
            bytes: packed.bytes,
            place,
        };
        Ok(Some(StoredOutcome::Packed(packed)))
    }
}

const PENDING: &str = "PENDING";
const CONFIRMED: &str = "CONFIRMED";
const FAILED: &str = "FAILED";

/// A step's entry, as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    state: String,
    revision: u32,
    tries: u32,
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl Entry {
    /// Takes an entry to write.
    pub fn of(entry: &StepEntry) -> Self {
        let (state, result, omitted) = match &entry.state {
            StepState::Confirmed(StepResult::Text(text)) => (CONFIRMED, Some(text.clone()), None),
            StepState::Confirmed(StepResult::Omitted(reason)) => {
                (CONFIRMED, None, Some(reason.as_str().to_owned()))
            }
            StepState::Failed => (FAILED, None, None),
            StepState::Pending => (PENDING, None, None),
        };
        Self {
            state: state.to_owned(),
            revision: entry.revision,
            tries: entry.tries,
            at: entry.at.0,
            result,
            omitted,
            last_error: entry.last_error.clone(),
        }
    }

    /// Makes the entry that was written.
    ///
    /// # Errors
    ///
    /// The reason why it can't be understood, for an operator.
    pub fn read(self) -> Result<StepEntry, String> {
        let state = match self.state.as_str() {
            PENDING => StepState::Pending,
            FAILED => StepState::Failed,
            CONFIRMED => StepState::Confirmed(match (self.result, self.omitted) {
                (Some(text), None) => StepResult::Text(text),
                (None, Some(reason)) => StepResult::Omitted(omission(&reason)?),
                _ => return Err("a confirmed step has no result".to_owned()),
            }),
            _ => return Err("a step has an unknown state".to_owned()),
        };
        let mut entry = StepEntry::new(state, self.revision, self.tries, EpochMillis(self.at));
        entry.last_error = self.last_error;
        Ok(entry)
    }
}

fn omission(reason: &str) -> Result<Omission, String> {
    Omission::parse(reason).ok_or_else(|| "`omitted` is unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are what stores hold: a change of one loses outcomes.
    #[test]
    fn each_outcome_is_read_from_the_texts_that_were_written() {
        let owner = || Owner::from_stored("1f");
        let packed = |place| {
            StoredOutcome::Packed(PackedOutcome {
                sha256: "ab".to_owned(),
                bytes: 7,
                place,
            })
        };
        for (outcome, text) in [
            (StoredOutcome::Inline("{}".into()), "{}"),
            (StoredOutcome::Omitted(Omission::TooLarge), "too_large"),
            (
                packed(Place::Record(vec![1, 2])),
                r#"{"sha256":"ab","bytes":7,"in":"record"}"#,
            ),
            (
                packed(Place::Entry(owner())),
                r#"{"sha256":"ab","bytes":7,"in":"row","owner":"1f"}"#,
            ),
            (
                packed(Place::Object(owner())),
                r#"{"sha256":"ab","bytes":7,"in":"object","owner":"1f"}"#,
            ),
        ] {
            let parts = OutcomeParts::of(Some(&outcome));
            let texts = [&parts.inline, &parts.omitted, &parts.packed];
            let texts: Vec<_> = texts.into_iter().flatten().collect();
            assert_eq!(texts, [text]);
            assert_eq!(parts.read(), Ok(Some(outcome)));
        }
        assert_eq!(OutcomeParts::of(None).read(), Ok(None));
    }

    #[test]
    fn each_step_is_read_from_the_text_that_was_written() {
        let confirmed = |result| StepState::Confirmed(result);
        for (state, text) in [
            (
                StepState::Pending,
                r#"{"state":"PENDING","revision":3,"tries":2,"at":9}"#,
            ),
            (
                StepState::Failed,
                r#"{"state":"FAILED","revision":3,"tries":2,"at":9}"#,
            ),
            (
                confirmed(StepResult::Text("1".into())),
                r#"{"state":"CONFIRMED","revision":3,"tries":2,"at":9,"result":"1"}"#,
            ),
            (
                confirmed(StepResult::Omitted(Omission::NotKept)),
                r#"{"state":"CONFIRMED","revision":3,"tries":2,"at":9,"omitted":"not_kept"}"#,
            ),
        ] {
            let entry = StepEntry::new(state, 3, 2, EpochMillis(9));
            assert_eq!(serde_json::to_string(&Entry::of(&entry)).unwrap(), text);
            let read = serde_json::from_str::<Entry>(text).unwrap().read();
            assert_eq!(read, Ok(entry));
        }
    }
}
