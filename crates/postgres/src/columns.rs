//! Encodes records into columns, and decodes them strictly: a row that can't be understood is
//! unreadable for a stated reason.

use std::collections::BTreeMap;

use lambda_idempotency::Fingerprint;
use lambda_idempotency::protocol::journal::{Journal, StepEntry};
use lambda_idempotency::protocol::record::{Found, Owner, Record, Version};
use lambda_idempotency::protocol::stored::{
    Entry, Fields, OutcomeParts, read_json, read_record, required,
};

use crate::statement::OPEN;
use crate::value::{Cell, Value};

/// The columns of a record beside its id, in the order in which they are written and read.
pub(crate) const COLUMNS: [(&str, &str); 15] = [
    ("status", "text"),
    ("expiration", "bigint"),
    ("owner", "text"),
    ("lease", "bigint"),
    ("attempt", "bigint"),
    ("fingerprint", "text"),
    ("outcome", "text"),
    ("omitted", "text"),
    ("packed", "text"),
    ("content", "bytea"),
    ("last_error", "text"),
    ("journal", "text"),
    ("started_at", "bigint"),
    ("completed_at", "bigint"),
    ("layout", "bigint"),
];

/// The values of a record's columns.
pub(crate) fn encode(record: &Record) -> [Value; COLUMNS.len()] {
    let outcome = OutcomeParts::of(record.outcome.as_ref());
    [
        record.status.as_str().into(),
        record.expiration.0.into(),
        record.owner.as_ref().map(Owner::as_str).into(),
        record.lease.map(|lease| lease.0).into(),
        record.attempt.into(),
        record.fingerprint.as_ref().map(Fingerprint::as_str).into(),
        outcome.inline.into(),
        outcome.omitted.into(),
        outcome.packed.into(),
        outcome.content.into(),
        record.last_error.clone().into(),
        journal(&record.journal).into(),
        record.started_at.map(|at| at.0).into(),
        record.completed_at.map(|at| at.0).into(),
        record.layout.into(),
    ]
}

/// A step's entry as JSON.
pub(crate) fn entry(entry: &StepEntry) -> String {
    serde_json::to_string(&Entry::of(entry)).unwrap_or_default()
}

/// The entries of several steps as JSON.
pub(crate) fn journal(journal: &Journal) -> String {
    let entries: BTreeMap<&str, Entry> = journal
        .iter()
        .map(|(name, entry)| (name, Entry::of(entry)))
        .collect();
    serde_json::to_string(&entries).unwrap_or_default()
}

/// Decodes a record's columns, in the order of [`COLUMNS`]; `None` where the row is not there.
pub(crate) fn decode(cells: &[Cell]) -> Option<Found> {
    let mut version = Version::default();
    let row = Row(cells);
    let status = row.text("status").ok().flatten();
    // Without a status there is no row: the column is never NULL.
    version.status = Some(status?);
    version.owner = row.text("owner").ok().flatten();
    version.lease = row.number("lease").ok().flatten();
    version.expiration = row.number("expiration").ok().flatten();
    Some(match row.record() {
        Ok(record) => Found::readable(record),
        Err(reason) => Found::unreadable(version, reason),
    })
}

struct Row<'a>(&'a [Cell]);

impl Fields for Row<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.cell(name) {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text.clone())),
            _ => Err(format!("`{name}` is no text")),
        }
    }

    fn number(&self, name: &str) -> Result<Option<i64>, String> {
        match self.cell(name) {
            Cell::Null => Ok(None),
            Cell::Int(number) => Ok(Some(*number)),
            _ => Err(format!("`{name}` is no number")),
        }
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        match self.cell(name) {
            Cell::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl Row<'_> {
    fn cell(&self, name: &str) -> &Cell {
        let place = COLUMNS.iter().position(|(column, _)| *column == name);
        place
            .and_then(|place| self.0.get(place))
            .unwrap_or(&Cell::Null)
    }

    fn record(&self) -> Result<Record, String> {
        if self.text("status")?.as_deref() == Some(OPEN) {
            return Err(
                "its handler sent COMMIT itself: what it wrote until then is written, and its \
                 outcome is not; remove COMMIT from the handler"
                    .to_owned(),
            );
        }
        read_record(self, "layout", Self::journal)
    }

    /// A step that can't be understood might be one that must not run again.
    fn journal(&self) -> Result<Journal, String> {
        let text = required("journal", self.text("journal")?)?;
        let entries: BTreeMap<String, Entry> =
            read_json(&text).map_err(|reason| format!("`journal`: {reason}"))?;
        let mut journal = Journal::default();
        for (name, entry) in entries {
            let entry = entry
                .read()
                .map_err(|reason| format!("`journal`, {name}: {reason}"))?;
            journal.put(name, entry);
        }
        Ok(journal)
    }
}
