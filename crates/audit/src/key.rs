//! The name of an effect: a value that the record has, or that follows from its id.

use std::str::FromStr;

use lambda_idempotency::http::response_of;
use lambda_idempotency::{Pointer, RecordId};

use crate::record::Completed;

/// The rule for the name of a record's effect.
///
/// | text | the effect's name is |
/// |---|---|
/// | `id` | the record's id |
/// | `hash` | its hash |
/// | `derived:NAME` | the key that [`Claim::derive_key`](lambda_idempotency::Claim::derive_key) gave the handler |
/// | `derived-uuid:NAME` | the UUID that `derive_uuid` gave the handler |
/// | `/payment_id` | the text or the number at this JSON pointer of the outcome; of an HTTP response, of its body. A number is as it stands there, to its last digit |
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
    Outcome(Pointer),
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
            _ => match text.parse() {
                Ok(pointer) if !text.is_empty() => Ok(Self::Outcome(pointer)),
                _ => Err(EffectKeyError(text.to_owned())),
            },
        }
    }
}

impl EffectKey {
    /// The name of the record's effect; `None` where the record doesn't tell. A record of an engine that
    /// only observes doesn't: its handler knows the key by the id that protection will give it. A step that
    /// was kept under new keys fired under an older one; which, the record doesn't say.
    pub fn of(&self, record: &Completed) -> Option<String> {
        if RecordId::observed_in(&record.id).is_some() {
            return None;
        }
        match self {
            Self::Id => Some(record.id.clone()),
            Self::Hash => Some(record_id(record)?.hash().to_owned()),
            Self::Derived(step) | Self::DerivedUuid(step) if record.kept_steps.contains(step) => {
                None
            }
            Self::Derived(effect) => {
                Some(record_id(record)?.derive_key_in(record.key_generation, effect))
            }
            Self::DerivedUuid(effect) => {
                Some(record_id(record)?.derive_uuid_in(record.key_generation, effect))
            }
            Self::Outcome(pointer) => {
                let outcome = record.outcome.as_deref()?;
                match response_of(outcome) {
                    Some(response) => named(str::from_utf8(response.body()).ok()?, pointer),
                    None => named(outcome, pointer),
                }
            }
        }
    }
}

/// The text or the number at a JSON pointer. A number isn't read, so that it keeps all digits.
fn named(json: &str, pointer: &Pointer) -> Option<String> {
    match pointer.find(json)? {
        text if text.starts_with('"') => serde_json::from_str(text).ok(),
        text if decimal(text).is_some() => Some(text.to_owned()),
        _ => None,
    }
}

/// A JSON number in a form that other texts of it have, too: 12.50 and 1.25e1 are one number. `None`
/// for what is none.
pub(crate) fn decimal(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    let begins_with_zero = whole.len() > 1 && whole.starts_with('0');
    if whole.is_empty() || begins_with_zero || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let zeros = all.len() - all.trim_end_matches('0').len();
    let shift = i64::try_from(zeros).ok()? - i64::try_from(fraction.len()).ok()?;
    Some(format!(
        "{sign}{significant}e{}",
        exponent.checked_add(shift)?
    ))
}

/// The id as the library has it.
fn record_id(record: &Completed) -> Option<RecordId> {
    RecordId::stored(&record.id).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use lambda_idempotency::protocol::journal::{StepEntry, StepState};
    use lambda_idempotency::protocol::record::{Found, Record, Status};
    use lambda_idempotency::store::MemoryStore;
    use lambda_idempotency::{Idempotency, Key};

    use super::*;

    fn record(outcome: &str) -> Completed {
        Completed {
            outcome: Some(outcome.to_owned()),
            ..Completed::example("payments#charge#0f")
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
            (
                r#"{"payment": {"id": 12345678901234567890123}}"#,
                Some("12345678901234567890123"),
            ),
            (r#" {"payment": {"id": 12.50 } }"#, Some("12.50")),
            (
                r#"{"status":201,"headers":[],"body":"{\"payment\":{\"id\":9007199254740993.0}}"}"#,
                Some("9007199254740993.0"),
            ),
            (r#"{"payment": {"id": true}}"#, None),
            (r#"{"payment": ["id"]}"#, None),
            (r#"{"payment": {"id": "p-1"}"#, None),
            (r#"{"payment": null}"#, None),
            ("no json", None),
        ] {
            assert_eq!(key.of(&record(outcome)).as_deref(), name, "{outcome}");
        }
    }

    #[test]
    fn a_pointer_goes_through_arrays_and_escaped_names() {
        for (pointer, name) in [
            ("/a~1b/1/~0", Some("here")),
            ("/a~1b/0", Some("-0.5")),
            ("/a~1b/01", None),
            ("/a~1b/+1", None),
            ("/a~1b/2", None),
            ("/a~1b/-", None),
            ("/a~1b", None),
            ("/", Some("empty")),
        ] {
            let json = r#"{"a/b": [-0.5, {"~": "here"}], "": "empty"}"#;
            let key: EffectKey = pointer.parse().unwrap();
            assert_eq!(key.of(&record(json)).as_deref(), name, "{pointer}");
        }
    }

    #[test]
    fn texts_of_one_number_are_one() {
        for (text, other) in [
            ("12.50", "12.5"),
            ("12.50", "1.25e1"),
            ("1200", "1.2E+3"),
            ("0.0", "-0"),
            ("12345678901234567890123", "12345678901234567890123.0"),
        ] {
            assert!(decimal(text).is_some(), "{text}");
            assert_eq!(decimal(text), decimal(other), "{text}, {other}");
        }
        assert_ne!(
            decimal("12345678901234567890123"),
            decimal("12345678901234567890124")
        );
        assert_ne!(decimal("1"), decimal("-1"));
        assert_ne!(decimal("1"), decimal("10"));
        for text in ["", "-", ".5", "0x1", "007", "1e", "p-1", "true", "null"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn words_that_name_nothing_are_refused() {
        for text in ["", "payment_id", "order/id", "/a~b", "derived:", "hash "] {
            assert!(text.parse::<EffectKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_record_that_was_given_new_keys_names_its_effect_by_them() {
        let at = lambda_idempotency::EpochMillis(7);
        let expiration = lambda_idempotency::EpochSeconds(4_000_000_000);
        let mut rerun = Record::new(Status::Completed, expiration);
        let (name, entry) = rerun.journal.next_keys(at);
        rerun.journal.put(name, entry);
        let found = Found::readable(rerun);
        let record = Completed::of("payments#charge#0f", &found).unwrap();
        let id = record_id(&record).unwrap();
        for (text, key) in [
            ("derived:gateway", id.derive_key_in(1, "gateway")),
            ("derived-uuid:gateway", id.derive_uuid_in(1, "gateway")),
        ] {
            let named = text.parse::<EffectKey>().unwrap().of(&record);
            assert_eq!(named, Some(key));
        }
    }

    /// Its effect has the key that it had.
    #[test]
    fn a_step_that_was_kept_when_the_record_got_new_keys_names_no_effect() {
        let at = lambda_idempotency::EpochMillis;
        let expiration = lambda_idempotency::EpochSeconds(4_000_000_000);
        let mut rerun = Record::new(Status::Completed, expiration);
        for (name, ended) in [("reserve", 6), ("charge", 7), ("ship", 8)] {
            let confirmed = StepState::Confirmed(Ok("17".to_owned()));
            let entry = StepEntry::new(confirmed, 2, 1, at(ended));
            rerun.journal.put(name, entry);
        }
        let (name, entry) = rerun.journal.next_keys(at(7));
        rerun.journal.put(name, entry);
        let found = Found::readable(rerun);
        let record = Completed::of("payments#charge#0f", &found).unwrap();
        for rule in ["derived", "derived-uuid"] {
            let is_named = |effect: &str| {
                let key: EffectKey = format!("{rule}:{effect}").parse().unwrap();
                key.of(&record).is_some()
            };
            let judged = ["reserve", "charge", "ship", "gateway"].map(is_named);
            assert_eq!(judged, [false, false, true, true], "{rule}");
        }
    }

    #[test]
    fn an_id_has_the_hash_of_its_claim_and_a_raw_one_neither_namespace_nor_operation() {
        let engine = Idempotency::builder(MemoryStore::new()).namespace("payments");
        let engine = engine.build().unwrap();
        let made = (Some("payments"), Some("charge"));
        for (key, parts) in [
            (Key::new("charge", "order-17"), made),
            (Key::raw("charge", "order-17"), (None, None)),
            (Key::raw("charge", "eu#refund#17"), (None, None)),
        ] {
            let id = engine.record_id(&key).unwrap();
            let record = Completed {
                id: id.as_str().to_owned(),
                ..record("{}")
            };
            assert_eq!(EffectKey::Hash.of(&record).as_deref(), Some(id.hash()));
            assert_eq!((record.namespace(), record.operation()), parts);
        }
    }

    #[tokio::test]
    async fn a_record_of_an_engine_that_observes_tells_no_effect() {
        let store = MemoryStore::new();
        let engine = Idempotency::builder(store).namespace("payments");
        let engine = engine.observe(true).build().unwrap();
        for key in [Key::new("charge", "A-17"), Key::raw("charge", "A-17")] {
            let record = Completed {
                id: engine.record_id(&key).unwrap().as_str().to_owned(),
                ..record(r#"{"payment": "p-1"}"#)
            };
            for text in ["id", "hash", "derived:gateway", "derived-uuid:gateway"] {
                let named = text.parse::<EffectKey>().unwrap().of(&record);
                assert_eq!(named, None, "{text} of {}", record.id);
            }
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
