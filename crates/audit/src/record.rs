//! A completed record, as an audit needs it.

use lambda_idempotency::http::response_of;
use lambda_idempotency::protocol::record::{Found, Status, StoredOutcome};
use lambda_idempotency::{EpochMillis, EpochSeconds, RecordId};

/// A record whose handler succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its id, as the table has it.
    pub id: String,
    /// The time at which its outcome was stored. Powertools writes none, and its record is not judged.
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
    /// Takes a record that has completed; `None` of any other, and of a stored HTTP response of status 400
    /// or above: a request that was refused has no effect.
    pub fn of(id: &str, found: &Found) -> Option<Self> {
        let record = found.content.as_ref().ok()?;
        if record.status != Status::Completed {
            return None;
        }
        let outcome = match &record.outcome {
            Some(StoredOutcome::Inline(text)) => Some(text.clone()),
            _ => None,
        };
        let response = outcome.as_deref().and_then(response_of);
        if response.is_some_and(|response| response.status().as_u16() >= 400) {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use lambda_idempotency::protocol::record::Record;

    use super::*;

    #[test]
    fn a_refused_http_request_has_no_effect() {
        for (outcome, is_taken) in [
            (r#"{"status":201,"headers":[],"body":""}"#, true),
            (r#"{"status":422,"headers":[],"body":""}"#, false),
            (r#"{"status":422}"#, true),
        ] {
            let mut record = Record::new(Status::Completed, EpochSeconds(4_000_000_000));
            record.outcome = Some(StoredOutcome::Inline(outcome.to_owned()));
            let found = Found::readable(record);
            let taken = Completed::of("shop#POST /orders#0f", &found);
            assert_eq!(taken.is_some(), is_taken, "{outcome}");
        }
    }
}
