//! Makes the keys of records that a function with Powertools for AWS Lambda (Python) has written.
//!
//! A team that replaces such a function points this crate at the same table. [`id`] makes the ids that
//! the function made, so that its finished work isn't repeated, and so that both may run side by side
//! while one replaces the other. `docs/recipes/powertools.md` describes how each side treats the
//! other's records.
//!
//! The ids are those of the Python version: the others write their hashes, or their results, in
//! another form.

use std::fmt::Write;

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use serde_json::{Number, Value};

use crate::protocol::fingerprint::Fingerprint;

/// Makes an id as a function with Powertools for AWS Lambda (Python) makes it:
/// `{prefix}#{MD5 of the selected value's JSON}`. `None` where Powertools finds no key in the value:
/// `null`, an empty text, and a list or an object of nothing but `null`.
///
/// The prefix is the function's `key_prefix`, or without one
/// `{Lambda function}.{module}.{function}`, such as `payments-prod.app.charge`; a look at any
/// record of the table shows it. The value is what `event_key_jmespath` selects, with its type: `7`
/// and `"7"` are two keys. `[order_id, tenant]` selects a list.
///
/// The hash is MD5, which is Powertools' default; for another `hash_function`, make the id yourself.
///
/// ```
/// use lambda_idempotency::powertools;
///
/// let id = powertools::id("payments-prod.app.charge", "order-1734");
/// assert_eq!(id.as_deref(), Some("payments-prod.app.charge#10b0e2eb63929ef412d806663f7b1666"));
/// ```
///
/// In the SQS layer with [`raw_id`](crate::sqs::BatchLayer::raw_id), in a function of one event with
/// [that of `InvokeLayer`](crate::invoke::InvokeLayer::raw_id); anywhere else with
/// [`Key::raw`](crate::Key::raw):
///
/// ```
/// # use lambda_idempotency::{Fingerprint, Idempotency, Key, powertools, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// # let received = br#"{"order_id": "order-1734", "amount": 1250}"#;
/// let id = powertools::id("payments-prod.app.charge", "order-1734");
/// let key = id.map(|id| Key::raw("charge", id));
/// let receipt = once
///     .run(key, Fingerprint::json(received), |claim| async move {
///         Ok::<_, std::io::Error>("receipt".to_owned())
///     })
///     .await?;
/// # Ok(()) }
/// ```
pub fn id(prefix: &str, selected: impl Into<Value>) -> Option<String> {
    let selected = selected.into();
    (!is_missing(&selected)).then(|| format!("{prefix}#{}", hash(&selected)))
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
    HEXLOWER.encode(&Md5::digest(dumps(selected)))
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

/// Writes a value. A [`Value`] holds integers beyond 64 bits as doubles, and they are written as
/// these.
fn dumps(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) => value.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => quoted(text),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(dumps).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Object(members) => {
            // Python orders names by code points, and so do their bytes in UTF-8.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.as_str());
            let members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!("{}: {}", quoted(name), dumps(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}

/// Writes printable ASCII as it is, and everything else as escaped UTF-16.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    // JSON's own escapes are those of Python.
    for c in Value::from(text).to_string().chars() {
        if matches!(c, ' '..='~') {
            quoted.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string never fails.
            let _ = write!(quoted, "\\u{unit:04x}");
        }
    }
    quoted
}

/// Writes a number. Of a double, the shortest digits that give it again; with an exponent from 1e16
/// on, and below 1e-4.
fn number_text(number: &Number) -> String {
    let Some(double) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let text = format!("{double:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or_default();
            format!("{digits}e{exponent:+03}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_without_a_key_in_it_has_no_id() {
        for missing in [
            json!(null),
            json!(""),
            json!([]),
            json!([null, null]),
            json!({}),
            json!({"a": null}),
        ] {
            assert_eq!(id("f.app.charge", missing.clone()), None, "{missing}");
        }
        for present in [
            json!(0),
            json!(false),
            json!([null, ""]),
            json!({"a": 0}),
            json!({"a": null, "b": []}),
        ] {
            assert!(id("f.app.charge", present.clone()).is_some(), "{present}");
        }
    }

    #[test]
    fn a_number_and_its_text_are_two_keys() {
        assert_ne!(id("f.app.charge", 7), id("f.app.charge", "7"));
    }

    #[test]
    fn separators_have_a_space_and_names_are_in_order() {
        let value = json!({"b": [1, "x", null, true], "a": {}, "Z": []});
        assert_eq!(
            dumps(&value),
            r#"{"Z": [], "a": {}, "b": [1, "x", null, true]}"#
        );
    }

    #[test]
    fn a_text_is_written_in_ascii() {
        let text = json!("\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}é😀");
        assert_eq!(
            dumps(&text),
            "\"\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u007f\\u00e9\\ud83d\\ude00\"",
        );
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        for (number, text) in [
            ("7", "7"),
            ("-7", "-7"),
            ("18446744073709551615", "18446744073709551615"),
            ("7.0", "7.0"),
            ("-0.0", "-0.0"),
            ("1250.5", "1250.5"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1.5e-7", "1.5e-07"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("5e-324", "5e-324"),
        ] {
            let value: Value = serde_json::from_str(number).unwrap();
            assert_eq!(dumps(&value), text);
        }
    }
}
