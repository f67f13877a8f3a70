//! A completed record, as an audit needs it.

use lambda_idempotency::protocol::record::{Found, Status, StoredOutcome};
use lambda_idempotency::{EpochMillis, EpochSeconds};

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
        parts(&self.id).map(|(_, operation, _)| operation)
    }

    /// The namespace, as its id has it. `None` in an id that a caller supplied.
    pub fn namespace(&self) -> Option<&str> {
        parts(&self.id).map(|(namespace, ..)| namespace)
    }
}

/// The namespace of the engine that keeps the record with this id, where it only observes. `None` in
/// any other id. Its records are in a namespace of their own, which ends with `.observed`.
pub fn observed_namespace(id: &str) -> Option<&str> {
    let (namespace, _) = id.split_once('#')?;
    let (_, hash) = id.rsplit_once('#')?;
    namespace
        .strip_suffix(".observed")
        .filter(|_| is_hash(hash))
}

/// Returns the namespace, the operation and the hash of an id that an engine made; `None` of a raw
/// one.
pub fn parts(id: &str) -> Option<(&str, &str, &str)> {
    let (namespace, rest) = id.split_once('#')?;
    let (operation, hash) = rest.rsplit_once('#')?;
    is_hash(hash).then_some((namespace, operation, hash))
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
