//! Writes parts of a record as texts, for stores whose database has no types for them. The texts
//! are part of those stores' layouts, so they must never change. Pure.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::protocol::causes::unquoted;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{Journal, StepEntry, StepState};
use crate::protocol::packed::{PackedOutcome, Place};
use crate::protocol::record::{LAYOUT, Omission, Owner, Record, Status, StoredOutcome};

/// The fields of a stored record, by the names that they have in every such store.
pub trait Fields {
    /// Returns a text field; `None` if absent.
    ///
    /// # Errors
    ///
    /// The reason why it can't be understood, for an operator.
    fn text(&self, name: &str) -> Result<Option<String>, String>;

    /// Returns a number field; `None` if absent.
    ///
    /// # Errors
    ///
    /// The reason why it can't be understood, for an operator.
    fn number(&self, name: &str) -> Result<Option<i64>, String>;

    /// Returns a field of bytes; `None` if absent.
    fn bytes(&self, name: &str) -> Option<Vec<u8>>;
}

/// Returns the value of a required field.
///
/// # Errors
///
/// The field is absent; the text names it for an operator.
pub fn required<T>(name: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("`{name}` is missing"))
}

/// Reads a field's JSON.
///
/// # Errors
///
/// The reason why it can't be understood, for an operator. It quotes nothing of the text.
pub fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| unquoted(&error))
}

/// Puts a record together that has this journal. Its layout is the field of this name.
///
/// # Errors
///
/// The reason why it can't be understood, for an operator.
pub fn read_record<F: Fields>(
    fields: &F,
    layout: &str,
    journal: impl FnOnce(&F) -> Result<Journal, String>,
) -> Result<Record, String> {
    let layout = fields.number(layout)?;
    if let Some(other) = layout.filter(|layout| *layout != LAYOUT) {
        return Err(format!(
            "layout version {other}, where this release knows {LAYOUT}"
        ));
    }
    let status = required("status", fields.text("status")?)?;
    let status = Status::parse(&status).ok_or("`status` is unknown")?;
    let expiration = required("expiration", fields.number("expiration")?)?;
    let mut record = Record::new(status, EpochSeconds(expiration));
    record.layout = layout;
    record.owner = fields.text("owner")?.map(Owner::from_stored);
    record.lease = fields.number("lease")?.map(EpochMillis);
    let attempt = required("attempt", fields.number("attempt")?)?;
    record.attempt = u32::try_from(attempt).map_err(|_| "`attempt` is no count")?;
    record.fingerprint = fields.text("fingerprint")?.map(Fingerprint::from_stored);
    record.last_error = fields.text("last_error")?;
    record.started_at = fields.number("started_at")?.map(EpochMillis);
    record.completed_at = fields.number("completed_at")?.map(EpochMillis);
    let outcome = OutcomeParts {
        inline: fields.text("outcome")?,
        omitted: fields.text("omitted")?,
        packed: fields.text("packed")?,
        content: fields.bytes("content"),
    };
    record.outcome = outcome.read()?;
    record.journal = journal(fields)?.checked(status == Status::InProgress)?;
    if layout.is_some() {
        required("owner", record.owner.as_ref())?;
    }
    if status == Status::InProgress {
        required("lease", record.lease)?;
    } else {
        required("outcome", record.outcome.as_ref())?;
    }
    Ok(record)
}

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
        let packed: Packed = read_json(&packed).map_err(|reason| format!("`packed`: {reason}"))?;
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
            StepState::Confirmed(Ok(text)) => (CONFIRMED, Some(text.clone()), None),
            StepState::Confirmed(Err(reason)) => {
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
                (Some(text), None) => Ok(text),
                (None, Some(reason)) => Err(omission(&reason)?),
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
    use std::collections::BTreeMap;

    use super::*;

    struct Texts(BTreeMap<&'static str, &'static str>);

    impl Fields for Texts {
        fn text(&self, name: &str) -> Result<Option<String>, String> {
            Ok(self.0.get(name).map(|text| (*text).to_owned()))
        }

        fn number(&self, name: &str) -> Result<Option<i64>, String> {
            Ok(self.0.get(name).map(|text| text.parse().unwrap()))
        }

        fn bytes(&self, name: &str) -> Option<Vec<u8>> {
            self.0.get(name).map(|text| text.as_bytes().to_vec())
        }
    }

    /// Reads a record in progress after these changes.
    fn read(changes: &[(&'static str, Option<&'static str>)]) -> Result<Record, String> {
        let mut texts = BTreeMap::from([
            ("v", "1"),
            ("status", "INPROGRESS"),
            ("expiration", "9"),
            ("owner", "me"),
            ("lease", "7"),
            ("attempt", "2"),
            ("fingerprint", "ab"),
            ("last_error", "no"),
            ("started_at", "6"),
        ]);
        for (name, text) in changes {
            match text {
                Some(text) => texts.insert(*name, *text),
                None => texts.remove(name),
            };
        }
        read_record(&Texts(texts), "v", |_| Ok(Journal::default()))
    }

    #[test]
    fn a_record_is_read_from_its_fields() {
        let mut record = Record::new(Status::InProgress, EpochSeconds(9));
        record.layout = Some(1);
        record.owner = Some(Owner::from_stored("me"));
        record.lease = Some(EpochMillis(7));
        record.attempt = 2;
        record.fingerprint = Some(Fingerprint::from_stored("ab"));
        record.last_error = Some("no".to_owned());
        record.started_at = Some(EpochMillis(6));
        assert_eq!(read(&[]), Ok(record.clone()));

        record.status = Status::Completed;
        record.lease = None;
        record.outcome = Some(StoredOutcome::Inline("{}".to_owned()));
        record.completed_at = Some(EpochMillis(8));
        let changes = [
            ("status", Some("COMPLETED")),
            ("lease", None),
            ("outcome", Some("{}")),
            ("completed_at", Some("8")),
        ];
        assert_eq!(read(&changes), Ok(record));
    }

    #[test]
    fn a_record_that_cannot_be_understood_names_the_field() {
        for (name, text, reason) in [
            (
                "v",
                Some("2"),
                "layout version 2, where this release knows 1",
            ),
            ("status", None, "`status` is missing"),
            ("status", Some("DONE"), "`status` is unknown"),
            ("status", Some("COMPLETED"), "`outcome` is missing"),
            ("expiration", None, "`expiration` is missing"),
            ("attempt", None, "`attempt` is missing"),
            ("attempt", Some("-1"), "`attempt` is no count"),
            ("owner", None, "`owner` is missing"),
            ("lease", None, "`lease` is missing"),
            ("omitted", Some("for no reason"), "`omitted` is unknown"),
        ] {
            assert_eq!(read(&[(name, text)]), Err(reason.to_owned()));
        }
        // Another library wrote it.
        assert!(read(&[("v", None), ("owner", None)]).is_ok());
    }

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

    /// The reason goes into logs, and the fields hold outcomes and results.
    #[test]
    fn what_cannot_be_understood_is_not_quoted() {
        for (text, of_entry) in [
            (r#""4111""#, "Data error at line 1"),
            (r#"{"4111""#, "Eof error at line 1"),
            ("4111", "Data error at line 1"),
            (r#"{"state":"4111"}"#, "missing field `revision` at line 1"),
        ] {
            let parts = OutcomeParts {
                packed: Some(text.to_owned()),
                ..OutcomeParts::default()
            };
            let entry = read_json::<Entry>(text).unwrap_err();
            assert!(entry.starts_with(of_entry), "{entry}");
            let packed = parts.read().unwrap_err();
            assert!(packed.starts_with("`packed`: "), "{packed}");
            assert!(!entry.contains("4111") && !packed.contains("4111"));
        }
    }

    #[test]
    fn each_step_is_read_from_the_text_that_was_written() {
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
                StepState::Confirmed(Ok("1".into())),
                r#"{"state":"CONFIRMED","revision":3,"tries":2,"at":9,"result":"1"}"#,
            ),
            (
                StepState::Confirmed(Err(Omission::NotKept)),
                r#"{"state":"CONFIRMED","revision":3,"tries":2,"at":9,"omitted":"not_kept"}"#,
            ),
        ] {
            let entry = StepEntry::new(state, 3, 2, EpochMillis(9));
            assert_eq!(serde_json::to_string(&Entry::of(&entry)).unwrap(), text);
            let read = serde_json::from_str::<Entry>(text).unwrap().read();
            assert_eq!(read, Ok(entry));
        }
        let mut failed = StepEntry::new(StepState::Failed, 3, 2, EpochMillis(9));
        failed.last_error = Some("Timeout".to_owned());
        let text = serde_json::to_string(&Entry::of(&failed)).unwrap();
        assert!(text.ends_with(r#","last_error":"Timeout"}"#), "{text}");
        let read = serde_json::from_str::<Entry>(&text).unwrap().read();
        assert_eq!(read, Ok(failed));
    }
}
