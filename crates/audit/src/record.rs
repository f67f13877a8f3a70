//! A completed record, as an audit needs it.

use lambda_idempotency::http::response_of;
use lambda_idempotency::protocol::packed::Place;
use lambda_idempotency::protocol::record::{Found, Omission, Status, StoredOutcome};
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
    /// Its outcome, where the record itself keeps it.
    pub outcome: Option<String>,
    /// Whether its request may have been refused, so that it has no effect: it is an HTTP request, and an
    /// operator has erased the response.
    pub may_be_refused: bool,
    /// The generation of the keys that its handler derived:
    /// `Journal::key_generation`.
    pub key_generation: u32,
    /// The confirmed steps that an operator kept when it gave the record new keys: their effects have
    /// older ones.
    pub kept_steps: Vec<String>,
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
            Some(StoredOutcome::Packed(packed)) => match &packed.place {
                Place::Record(content) => packed.unpack(content),
                _ => None,
            },
            _ => None,
        };
        let erased = StoredOutcome::Omitted(Omission::Redacted);
        let response = outcome.as_deref().and_then(response_of);
        if response.is_some_and(|response| response.status().as_u16() >= 400) {
            return None;
        }
        Some(Self {
            id: id.to_owned(),
            completed_at: record.completed_at,
            expiration: record.expiration,
            outcome,
            may_be_refused: record.outcome.as_ref() == Some(&erased) && is_http(id),
            key_generation: record.journal.key_generation(),
            kept_steps: record.journal.kept_steps().map(str::to_owned).collect(),
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

/// Returns whether the operation of an id has the name that the HTTP layer gives it: a method and a path.
pub fn is_http(id: &str) -> bool {
    let operation = RecordId::parts_of(id).map(|(_, operation, _)| operation);
    let named = operation.and_then(|operation| operation.split_once(" /"));
    named.is_some_and(|(method, _)| {
        !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase())
    })
}

#[cfg(test)]
impl Completed {
    /// One that has nothing but an id.
    pub(crate) fn example(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            completed_at: None,
            expiration: EpochSeconds(4_000_000_000),
            outcome: None,
            may_be_refused: false,
            key_generation: 0,
            kept_steps: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use lambda_idempotency::protocol::packed::PackedOutcome;
    use lambda_idempotency::protocol::record::Record;

    use super::*;

    const CREATED: &str = r#"{"status":201,"headers":[],"body":""}"#;
    const REFUSED: &str = r#"{"status":422,"headers":[],"body":""}"#;

    fn taken(id: &str, outcome: StoredOutcome) -> Option<Completed> {
        let mut record = Record::new(Status::Completed, EpochSeconds(4_000_000_000));
        record.outcome = Some(outcome);
        Completed::of(id, &Found::readable(record))
    }

    /// An outcome in one block that isn't compressed.
    fn packed(text: &str, sha256: &str) -> StoredOutcome {
        let length = u8::try_from(text.len()).unwrap();
        let content = [&[1, length, 0, !length, 255], text.as_bytes()].concat();
        StoredOutcome::Packed(PackedOutcome {
            sha256: sha256.to_owned(),
            bytes: length.into(),
            place: Place::Record(content),
        })
    }

    #[test]
    fn a_refused_http_request_has_no_effect() {
        let inline = |text: &str| StoredOutcome::Inline(text.to_owned());
        let created = "bf49d03e2d95d5eef01232426cbbbeccd7617dafa5e39fc3de28506e70305ece";
        let refused = "b02b5e6a9adc3d6884519f9225e44a6611e9eaffb3ea7ca0c60586bb43a54c9b";
        for (outcome, is_taken) in [
            (inline(CREATED), true),
            (inline(REFUSED), false),
            (inline(r#"{"status":422}"#), true),
            (packed(CREATED, created), true),
            (packed(REFUSED, refused), false),
        ] {
            let taken = taken("shop#POST /orders#0f", outcome.clone());
            assert_eq!(taken.is_some(), is_taken, "{outcome:?}");
            let outcome = taken.and_then(|record| record.outcome);
            assert_eq!(outcome.is_some(), is_taken, "{outcome:?}");
        }
    }

    #[test]
    fn a_response_that_was_erased_may_have_been_a_refusal() {
        for (operation, reason, may_be_refused) in [
            ("POST /orders", Omission::Redacted, true),
            ("POST /orders", Omission::NotSerializable, false),
            ("POST /orders", Omission::TooLarge, false),
            ("pay", Omission::Redacted, false),
        ] {
            let id = format!("shop#{operation}#{}", "0f".repeat(32));
            let taken = taken(&id, StoredOutcome::Omitted(reason)).unwrap();
            let found = taken.may_be_refused;
            assert_eq!(found, may_be_refused, "{operation}, {reason:?}");
        }
    }
}
