//! Encodes records into the fields of a hash, and decodes them strictly: a hash that can't be understood is unreadable for a stated reason.

use std::collections::BTreeMap;

use lambda_idempotency::protocol::journal::{Journal, StepEntry};
use lambda_idempotency::protocol::record::{Found, Record, StoredOutcome, Version};
use lambda_idempotency::protocol::stored::{
    Entry, Fields as StoredFields, OutcomeParts, read_json, read_record, required,
};

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
    let parts = OutcomeParts::of(Some(outcome));
    let texts = [
        (OUTCOME, parts.inline),
        (OMITTED, parts.omitted),
        (PACKED, parts.packed),
    ];
    let texts = texts.map(|(field, text)| (field, text.map(String::into_bytes)));
    let fields = texts.into_iter().chain([(CONTENT, parts.content)]);
    fields
        .filter_map(|(field, value)| Some((field, value?)))
        .collect()
}

/// Makes the text of a step's entry: its revision, which the script compares, and JSON.
pub(crate) fn entry(entry: &StepEntry) -> String {
    let json = serde_json::to_string(&Entry::of(entry)).unwrap_or_default();
    format!("{} {json}", entry.revision)
}

fn read_entry(text: &str) -> Result<StepEntry, String> {
    let (_, json) = text.split_once(' ').ok_or("a step has no revision")?;
    read_json::<Entry>(json)?.read()
}

/// Decodes a hash; `None` where the key is not there.
pub(crate) fn decode(fields: &Fields) -> Option<Found> {
    if fields.is_empty() {
        return None;
    }
    let hash = Hash(fields);
    Some(match hash.record() {
        Ok(record) => Found::readable(record),
        // Without a version there is nothing to compare, so it can't be taken over, not even when it has expired.
        Err(reason) => Found::unreadable(hash.version().unwrap_or_default(), reason),
    })
}

struct Hash<'a>(&'a Fields);

impl StoredFields for Hash<'_> {
    fn text(&self, field: &str) -> Result<Option<String>, String> {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone());
        let found = self.0.get(field).map(text).transpose();
        found.map_err(|_| format!("`{field}` is no text"))
    }

    /// Reads a number as this store writes it: the script compares its text.
    fn number(&self, field: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.text(field)? else {
            return Ok(None);
        };
        let number = text.parse::<i64>().ok();
        let number = number.filter(|number| number.to_string() == text);
        number
            .map(Some)
            .ok_or_else(|| format!("`{field}` is no number"))
    }

    fn bytes(&self, field: &str) -> Option<Vec<u8>> {
        self.0.get(field).cloned()
    }
}

impl Hash<'_> {
    fn version(&self) -> Result<Version, String> {
        let mut version = Version::default();
        version.status = self.text(STATUS)?;
        version.owner = self.text(OWNER)?;
        version.lease = self.number(LEASE)?;
        version.expiration = self.number(EXPIRATION)?;
        Ok(version)
    }

    fn record(&self) -> Result<Record, String> {
        let record = read_record(self, VERSION, Self::journal)?;
        required(OWNER, record.owner.as_ref())?;
        Ok(record)
    }

    fn journal(&self) -> Result<Journal, String> {
        let mut journal = Journal::default();
        for field in self.0.keys() {
            let Some(name) = field.strip_prefix(STEP) else {
                continue;
            };
            let text = required(field, self.text(field)?)?;
            let entry = read_entry(&text).map_err(|reason| format!("`{field}`: {reason}"))?;
            journal.put(name, entry);
        }
        Ok(journal)
    }
}
