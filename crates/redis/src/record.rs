//! Encodes records into the fields of a hash, and decodes them strictly: a hash that can't be understood is unreadable for a stated reason.

use std::collections::BTreeMap;

use lambda_idempotency::protocol::journal::{StepEntry, StepNote, StepResult, StepState};
use lambda_idempotency::protocol::packed::{PackedOutcome, Place};
use lambda_idempotency::protocol::record::{
    Found, LAYOUT, Omission, Owner, Record, Status, StoredOutcome, Version,
};
use lambda_idempotency::{EpochMillis, EpochSeconds, Fingerprint};
use serde::{Deserialize, Serialize};

pub(crate) const STATUS: &str = "status";
pub(crate) const EXPIRATION: &str = "expiration";
pub(crate) const OWNER: &str = "owner";
pub(crate) const LEASE: &str = "lease";
pub(crate) const ATTEMPT: &str = "attempt";
pub(crate) const FINGERPRINT: &str = "fingerprint";
pub(crate) const OUTCOME: &str = "outcome";
pub(crate) const OMITTED: &str = "omitted";
pub(crate) const PACKED: &str = "packed";
pub(crate) const CONTENT: &str = "content";
pub(crate) const LAST_ERROR: &str = "last_error";
pub(crate) const STARTED_AT: &str = "started_at";
pub(crate) const COMPLETED_AT: &str = "completed_at";
pub(crate) const VERSION: &str = "v";

/// Prefixes the names of steps' fields.
const STEP: &str = "step:";

/// The fields that an outcome may have: one of the first three, and the last beside `packed`.
pub(crate) const OUTCOME_FIELDS: [&str; 4] = [OUTCOME, OMITTED, PACKED, CONTENT];

/// The fields of a hash.
pub(crate) type Fields = BTreeMap<String, Vec<u8>>;

pub(crate) fn step_field(step: &str) -> String {
    format!("{STEP}{step}")
}

/// Makes the fields of an outcome.
pub(crate) fn outcome_fields(outcome: &StoredOutcome) -> Vec<(&'static str, Vec<u8>)> {
    match outcome {
        StoredOutcome::Inline(text) => vec![(OUTCOME, text.clone().into_bytes())],
        StoredOutcome::Omitted(reason) => vec![(OMITTED, reason.as_str().into())],
        StoredOutcome::Packed(packed) => {
            let (place, owner, content) = match &packed.place {
                Place::Record(content) => (RECORD, None, Some(content)),
                Place::Entry(owner) => (KEY, Some(owner), None),
                Place::Object(owner) => (OBJECT, Some(owner), None),
                // A place of a later release: the bytes can't be found again.
                _ => ("unknown", None, None),
            };
            let packed = Packed {
                sha256: packed.sha256.clone(),
                bytes: packed.bytes,
                place: place.to_owned(),
                owner: owner.map(|owner| owner.as_str().to_owned()),
            };
            let mut fields = vec![(PACKED, serde_json::to_vec(&packed).unwrap_or_default())];
            fields.extend(content.map(|content| (CONTENT, content.clone())));
            fields
        }
        _ => Vec::new(),
    }
}

const RECORD: &str = "record";
const KEY: &str = "key";
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

const PENDING: &str = "PENDING";
const CONFIRMED: &str = "CONFIRMED";
const FAILED: &str = "FAILED";

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    state: String,
    tries: u32,
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Makes the text of a step's entry: its revision, which the script compares, and JSON.
pub(crate) fn entry(entry: &StepEntry) -> String {
    let (state, result, omitted) = match &entry.state {
        StepState::Confirmed(StepResult::Text(text)) => (CONFIRMED, Some(text.clone()), None),
        StepState::Confirmed(StepResult::Omitted(reason)) => {
            (CONFIRMED, None, Some(reason.as_str().to_owned()))
        }
        StepState::Failed => (FAILED, None, None),
        _ => (PENDING, None, None),
    };
    let written = Entry {
        state: state.to_owned(),
        tries: entry.tries,
        at: entry.at.0,
        result,
        omitted,
        last_error: entry.last_error.clone(),
    };
    let json = serde_json::to_string(&written).unwrap_or_default();
    format!("{} {json}", entry.revision)
}

fn read_entry(text: &str) -> Result<StepEntry, String> {
    let (revision, json) = text.split_once(' ').ok_or("a step has no revision")?;
    let revision = revision
        .parse()
        .map_err(|_| "a step's revision is no count")?;
    // The parser's message would quote a result.
    let entry: Entry = serde_json::from_str(json).map_err(|_| "a step is no JSON")?;
    let state = match entry.state.as_str() {
        PENDING => StepState::Pending,
        FAILED => StepState::Failed,
        CONFIRMED => StepState::Confirmed(match (entry.result, entry.omitted) {
            (Some(text), None) => StepResult::Text(text),
            (None, Some(reason)) => StepResult::Omitted(omission(&reason)?),
            _ => return Err("a confirmed step has no result".to_owned()),
        }),
        _ => return Err("a step has an unknown state".to_owned()),
    };
    let mut read = StepEntry::new(state, revision, entry.tries, EpochMillis(entry.at));
    read.last_error = entry.last_error;
    Ok(read)
}

fn omission(reason: &str) -> Result<Omission, String> {
    Omission::parse(reason).ok_or_else(|| "`omitted` is unknown".to_owned())
}

/// Decodes a hash; `None` where the key is not there.
pub(crate) fn decode(fields: &Fields) -> Option<Found> {
    if fields.is_empty() {
        return None;
    }
    let hash = Hash(fields);
    Some(match hash.record() {
        Ok(record) => Found::readable(record),
        Err(reason) => {
            let mut version = Version::default();
            version.status = hash.text(STATUS).ok().flatten();
            version.owner = hash.text(OWNER).ok().flatten();
            version.lease = hash.number(LEASE).ok().flatten();
            version.expiration = hash.number(EXPIRATION).ok().flatten();
            Found::unreadable(version, reason)
        }
    })
}

struct Hash<'a>(&'a Fields);

impl Hash<'_> {
    fn text(&self, field: &str) -> Result<Option<String>, String> {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone());
        let found = self.0.get(field).map(text).transpose();
        found.map_err(|_| format!("`{field}` is no text"))
    }

    fn number(&self, field: &str) -> Result<Option<i64>, String> {
        let found = self.text(field)?.map(|text| text.parse()).transpose();
        found.map_err(|_| format!("`{field}` is no number"))
    }

    fn record(&self) -> Result<Record, String> {
        let layout = self.number(VERSION)?;
        if let Some(other) = layout.filter(|layout| *layout != LAYOUT) {
            return Err(format!(
                "layout version {other}, where this release knows {LAYOUT}"
            ));
        }
        let status = required(STATUS, self.text(STATUS)?)?;
        let status = Status::parse(&status).ok_or("`status` is unknown")?;
        let expiration = required(EXPIRATION, self.number(EXPIRATION)?)?;
        let mut record = Record::new(status, EpochSeconds(expiration));
        record.layout = layout;
        record.owner = self.text(OWNER)?.map(Owner::from_stored);
        record.lease = self.number(LEASE)?.map(EpochMillis);
        let attempt = required(ATTEMPT, self.number(ATTEMPT)?)?;
        record.attempt = u32::try_from(attempt).map_err(|_| "`attempt` is no count")?;
        record.fingerprint = self.text(FINGERPRINT)?.map(Fingerprint::from_stored);
        record.last_error = self.text(LAST_ERROR)?;
        record.started_at = self.number(STARTED_AT)?.map(EpochMillis);
        record.completed_at = self.number(COMPLETED_AT)?.map(EpochMillis);
        record.outcome = self.outcome()?;
        for field in self.0.keys() {
            let Some(name) = field.strip_prefix(STEP) else {
                continue;
            };
            let text = required(field, self.text(field)?)?;
            let entry = read_entry(&text).map_err(|reason| format!("`{field}`: {reason}"))?;
            record.journal.put(StepNote::new(name, entry));
        }
        required(OWNER, record.owner.as_ref())?;
        if status == Status::InProgress {
            required(LEASE, record.lease)?;
        } else {
            required(OUTCOME, record.outcome.as_ref())?;
        }
        Ok(record)
    }

    fn outcome(&self) -> Result<Option<StoredOutcome>, String> {
        if let Some(reason) = self.text(OMITTED)? {
            return omission(&reason).map(StoredOutcome::Omitted).map(Some);
        }
        if let Some(packed) = self.text(PACKED)? {
            return self.packed(&packed).map(StoredOutcome::Packed).map(Some);
        }
        Ok(self.text(OUTCOME)?.map(StoredOutcome::Inline))
    }

    fn packed(&self, text: &str) -> Result<PackedOutcome, String> {
        let packed: Packed = serde_json::from_str(text).map_err(|_| "`packed` is no JSON")?;
        let owner = || required("packed owner", packed.owner.clone()).map(Owner::from_stored);
        let place = match packed.place.as_str() {
            RECORD => Place::Record(required(CONTENT, self.0.get(CONTENT).cloned())?),
            KEY => Place::Entry(owner()?),
            OBJECT => Place::Object(owner()?),
            _ => return Err("`packed` names an unknown place".to_owned()),
        };
        Ok(PackedOutcome::from_stored(
            packed.sha256,
            packed.bytes,
            place,
        ))
    }
}

fn required<T>(name: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("`{name}` is missing"))
}
