//! A completed record, as an audit needs it.

use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::record::{Found, Status, StoredOutcome};

/// A record whose handler succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its id, as the table has it.
    pub id: String,
    /// The time at which its outcome was stored.
    pub completed_at: Option<EpochMillis>,
    /// Its outcome, where the record itself keeps it as text.
    pub outcome: Option<String>,
    /// The generation of the keys that its handler derived:
    /// [`Journal::key_generation`](lambda_idempotency::protocol::journal::Journal::key_generation).
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
            outcome,
            key_generation: record.journal.key_generation(),
        })
    }

    /// The operation, as its id has it: between the namespace and the hash. `None` in an id that a
    /// caller supplied.
    pub fn operation(&self) -> Option<&str> {
        let (_, rest) = self.id.split_once('#')?;
        rest.rsplit_once('#').map(|(operation, _)| operation)
    }

    /// The namespace, as its id has it. `None` in an id that a caller supplied.
    pub fn namespace(&self) -> Option<&str> {
        self.operation()?;
        self.id.split_once('#').map(|(namespace, _)| namespace)
    }

    /// The end of its id: the hash that log events name its key by.
    pub fn hash(&self) -> &str {
        self.id.rsplit('#').next().unwrap_or(&self.id)
    }
}
