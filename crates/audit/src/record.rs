//! A completed record, as an audit needs it.

use lambda_idempotency::protocol::record::{Found, Status, StoredOutcome};
use lambda_idempotency::{EpochMillis, EpochSeconds, RecordId};

/// A record whose handler succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its id, as the table has it.
    pub id: String,
    /// The time at which its outcome was stored.
    pub completed_at: Option<EpochMillis>,
    /// The time from which a duplicate runs again. The table may keep the record for longer.
    pub expiration: EpochSeconds,
    /// Its outcome, where the record itself keeps it as text.
    pub outcome: Option<String>,
    /// The generation of the keys that its handler derived:
    /// `Journal::key_generation`.
    pub key_generation: u32,
}

impl Completed {
    /// Takes a record that has completed; `None` of any other.
    pub fn of(id: &str, found: &Found) -> Option<Self> {
        let record = found.content.as_ref().ok()?;
        if record.status != Status::Completed {
            return None;
        }
        let outcome = match &record.outcome {
            Some(StoredOutcome::Inline(text)) => Some(text.clone()),
            _ => None,
        };
        Some(Self {
            id: id.to_owned(),
            completed_at: record.completed_at,
            expiration: record.expiration,
            outcome,
            key_generation: record.journal.key_generation(),
        })
    }

    /// The operation, as its id has it: between the namespace and the hash. `None` in an id that a
    /// caller supplied.
    pub fn operation(&self) -> Option<&str> {
        RecordId::parts_of(&self.id).map(|(_, operation, _)| operation)
    }

    /// The namespace, as its id has it. `None` in an id that a caller supplied.
    pub fn namespace(&self) -> Option<&str> {
        RecordId::parts_of(&self.id).map(|(namespace, ..)| namespace)
    }
}
