//! What names an effect: a value that the record has, or that follows from its id.

use std::str::FromStr;

use lambda_idempotency::http::response_of;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, Key};
use serde_json::Value;

use crate::record::Completed;

/// What names a record's effect.
///
/// | text | the effect's name is |
/// |---|---|
/// | `id` | the record's id |
/// | `hash` | its hash |
/// | `derived:NAME` | what [`Claim::derive_key`](lambda_idempotency::Claim::derive_key) gave the handler |
/// | `derived-uuid:NAME` | what `derive_uuid` gave |
/// | `/payment_id` | the value at this JSON pointer of the outcome; of an HTTP response, of its body |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EffectKey {
    /// The record's id.
    Id,
    /// The record's hash.
    Hash,
    /// The key that the claim derived for this effect.
    Derived(String),
    /// The UUID that the claim derived for this effect.
    DerivedUuid(String),
    /// The value at this JSON pointer of the outcome.
    Outcome(String),
}

/// A text that names no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no effect: write id, hash, derived:NAME, derived-uuid:NAME, or a JSON pointer such as /payment_id"
)]
pub struct EffectKeyError(String);

impl FromStr for EffectKey {
    type Err = EffectKeyError;

    fn from_str(text: &str) -> Result<Self, EffectKeyError> {
        match text.split_once(':') {
            Some(("derived", effect)) if !effect.is_empty() => Ok(Self::Derived(effect.to_owned())),
            Some(("derived-uuid", effect)) if !effect.is_empty() => {
                Ok(Self::DerivedUuid(effect.to_owned()))
            }
            _ if text == "id" => Ok(Self::Id),
            _ if text == "hash" => Ok(Self::Hash),
            _ if text.starts_with('/') => Ok(Self::Outcome(text.to_owned())),
            _ => Err(EffectKeyError(text.to_owned())),
        }
    }
}

impl EffectKey {
    /// The name of the record's effect; `None` where the record doesn't tell.
    pub fn of(&self, record: &Completed) -> Option<String> {
        match self {
            Self::Id => Some(record.id.clone()),
            Self::Hash => Some(record.hash().to_owned()),
            Self::Derived(effect) => Some(record_id(record)?.derive_key(effect)),
            Self::DerivedUuid(effect) => Some(record_id(record)?.derive_uuid(effect)),
            Self::Outcome(pointer) => {
                let outcome = record.outcome.as_deref()?;
                let value: Value = match response_of(outcome) {
                    Some(response) => serde_json::from_slice(response.body()).ok()?,
                    None => serde_json::from_str(outcome).ok()?,
                };
                match value.pointer(pointer)? {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(number) => Some(number.to_string()),
                    _ => None,
                }
            }
        }
    }
}

/// The id as the library has it.
fn record_id(record: &Completed) -> Option<lambda_idempotency::RecordId> {
    let engine = Idempotency::builder(MemoryStore::new())
        .namespace("audit")
        .build()
        .ok()?;
    engine.record_id(&Key::raw("audit", &record.id)).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn record(outcome: &str) -> Completed {
        Completed {
            id: "payments#charge#0f".to_owned(),
            completed_at: None,
            outcome: Some(outcome.to_owned()),
        }
    }

    #[test]
    fn an_outcome_names_its_effect_by_a_pointer() {
        let key: EffectKey = "/payment/id".parse().unwrap();
        for (outcome, name) in [
            (r#"{"payment": {"id": "p-1"}}"#, Some("p-1")),
            (r#"{"payment": {"id": 17}}"#, Some("17")),
            (
                r#"{"status":201,"headers":[],"body":"{\"payment\":{\"id\":\"p-2\"}}"}"#,
                Some("p-2"),
            ),
            (r#"{"payment": null}"#, None),
            ("no json", None),
        ] {
            assert_eq!(key.of(&record(outcome)).as_deref(), name, "{outcome}");
        }
    }

    #[test]
    fn words_that_name_nothing_are_refused() {
        for text in ["", "payment_id", "derived:", "hash "] {
            assert!(text.parse::<EffectKey>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_derived_key_is_the_one_that_the_handler_was_given() {
        let engine = Idempotency::builder(MemoryStore::new())
            .namespace("payments")
            .build()
            .unwrap();
        let key = Key::new("charge", "A-17");
        let id = engine.record_id(&key).unwrap().as_str().to_owned();
        let given = Mutex::new(Vec::new());
        let handler = async |claim: lambda_idempotency::Claim| {
            let keys = [claim.derive_key("gateway"), claim.derive_uuid("gateway")];
            given.lock().unwrap().extend(keys);
            Ok::<_, std::io::Error>(())
        };
        engine.run(key, None, handler).await.unwrap();
        let record = Completed {
            id,
            ..record("null")
        };
        let found = ["derived:gateway", "derived-uuid:gateway"]
            .map(|text| text.parse::<EffectKey>().unwrap().of(&record).unwrap());
        assert_eq!(given.into_inner().unwrap(), found);
    }
}
