//! Makes the keys of records that a function with Powertools for AWS Lambda (Python) has written.
//!
//! A team that replaces such a function points this crate at the same table. [`PowertoolsKeys`]
//! makes the ids that the function made, so that its finished work isn't repeated, and so that both
//! may run side by side while one replaces the other. `docs/recipes/powertools.md` describes how each side
//! treats the other's records.
//!
//! The ids are those of the Python version: the others write their hashes, or their results, in
//! another form.
//!
//! ```
//! use lambda_idempotency::powertools::PowertoolsKeys;
//!
//! let keys = PowertoolsKeys::of("payments-prod.app.charge");
//! let id = keys.id("order-1734");
//! assert_eq!(id.as_deref(), Some("payments-prod.app.charge#10b0e2eb63929ef412d806663f7b1666"));
//! ```

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use serde_json::Value;

use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;

mod python;

/// Makes ids as one function with Powertools for AWS Lambda (Python) makes them:
/// `{prefix}#{MD5 of the selected value's JSON}`.
///
/// The prefix is the function's `key_prefix`, or without one
/// `{Lambda function}.{module}.{function}`, such as `payments-prod.app.charge`; a look at any
/// record of the table shows it. The value is what `event_key_jmespath` selects, with its type: `7`
/// and `"7"` are two keys. `[order_id, tenant]` selects a list.
///
/// The hash is MD5, which is Powertools' default; for another `hash_function`, make the id yourself
/// and use [`Key::raw`].
///
/// ```
/// use lambda_idempotency::powertools::PowertoolsKeys;
///
/// let keys = PowertoolsKeys::of("payments-prod.app.charge");
/// assert_eq!(
///     keys.id("order-1734").as_deref(),
///     Some("payments-prod.app.charge#10b0e2eb63929ef412d806663f7b1666"),
/// );
/// ```
///
/// In the SQS layer with [`raw_id`](crate::sqs::BatchLayer::raw_id), in a function of one event with
/// [that of `InvokeLayer`](crate::invoke::InvokeLayer::raw_id); anywhere else:
///
/// ```
/// # use lambda_idempotency::{Fingerprint, Idempotency, powertools::PowertoolsKeys, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// # let received = br#"{"order_id": "order-1734", "amount": 1250}"#;
/// let keys = PowertoolsKeys::of("payments-prod.app.charge");
/// let receipt = once
///     .run(keys.key("charge", "order-1734"), Fingerprint::json(received), |claim| async move {
///         Ok::<_, std::io::Error>("receipt".to_owned())
///     })
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowertoolsKeys {
    prefix: String,
}

impl PowertoolsKeys {
    /// Makes the keys of the function whose records begin with this prefix and a `#`.
    pub fn of(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
        }
    }

    /// Makes the id of the record for the value that `event_key_jmespath` selects. `None` where
    /// Powertools finds no key in it: `null`, an empty text, and a list or an object of nothing but
    /// `null`.
    pub fn id(&self, selected: impl Into<Value>) -> Option<String> {
        let selected = selected.into();
        (!is_missing(&selected)).then(|| format!("{}#{}", self.prefix, hash(&selected)))
    }

    /// Makes the id as a key, for [`run`](crate::Idempotency::run). Metrics name the work by the
    /// operation; it isn't part of the id, but a record belongs to the operation that made it.
    pub fn key(&self, operation: impl Into<String>, selected: impl Into<Value>) -> Option<Key> {
        self.id(selected).map(|id| Key::raw(operation, id))
    }
}

/// Makes the fingerprint that a function with `payload_validation_jmespath` writes and expects, of
/// the value that this selects.
///
/// Without it, such a function refuses each record of this crate as another payload's. It is an
/// MD5: a caller who can choose payloads can make two with the same.
///
/// ```
/// use lambda_idempotency::powertools::payload;
///
/// assert_eq!(payload(1250).as_str().len(), 32);
/// ```
pub fn payload(selected: impl Into<Value>) -> Fingerprint {
    Fingerprint::from_stored(hash(&selected.into()))
}

fn hash(selected: &Value) -> String {
    HEXLOWER.encode(&Md5::digest(python::dumps(selected)))
}

fn is_missing(selected: &Value) -> bool {
    match selected {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.iter().all(Value::is_null),
        Value::Object(members) => members.values().all(Value::is_null),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_without_a_key_in_it_has_no_id() {
        let keys = PowertoolsKeys::of("f.app.charge");
        for missing in [
            json!(null),
            json!(""),
            json!([]),
            json!([null, null]),
            json!({}),
            json!({"a": null}),
        ] {
            assert_eq!(keys.id(missing.clone()), None, "{missing}");
            assert_eq!(keys.key("charge", missing), None);
        }
        for present in [json!(0), json!(false), json!([null, ""]), json!({"a": 0})] {
            assert!(keys.id(present.clone()).is_some(), "{present}");
        }
    }

    #[test]
    fn a_number_and_its_text_are_two_keys() {
        let keys = PowertoolsKeys::of("f.app.charge");
        assert_ne!(keys.id(7), keys.id("7"));
    }
}
