//! Writes DynamoDB's JSON, in which each value names its type, as plain JSON. Pure.
//!
//! [AWS's page](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_AttributeValue.html)
//! lists the types.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::batch::BodyError;

pub(super) const UNKNOWN: BodyError =
    BodyError::new("the record has a value that is not of a type of DynamoDB's");

/// The plain JSON of a value.
type Plain = Result<Box<RawValue>, BodyError>;

/// Writes an item: `{"id": {"N": "7"}}` is written `{"id":7}`. Numbers keep all their digits, bytes
/// are Base64 text, and sets are arrays.
pub(super) fn item(item: &Value) -> Plain {
    let members = item.as_object().ok_or(UNKNOWN)?.iter();
    let members = members.map(|(name, typed)| Ok((name, value(typed)?)));
    json(&members.collect::<Result<BTreeMap<_, _>, BodyError>>()?)
}

fn json(value: &(impl Serialize + ?Sized)) -> Plain {
    to_raw_value(value).map_err(|_| UNKNOWN)
}

fn list(list: &Value, write: fn(&Value) -> Plain) -> Plain {
    let items = list.as_array().ok_or(UNKNOWN)?.iter();
    json(&items.map(write).collect::<Result<Vec<_>, _>>()?)
}

fn value(typed: &Value) -> Plain {
    let mut members = typed.as_object().ok_or(UNKNOWN)?.iter();
    let (Some((kind, held)), None) = (members.next(), members.next()) else {
        return Err(UNKNOWN);
    };
    match kind.as_str() {
        "S" => string(held),
        "N" => number(held),
        "B" => bytes(held),
        "BOOL" => json(&held.as_bool().ok_or(UNKNOWN)?),
        "NULL" if held == &Value::Bool(true) => json(&()),
        "M" => item(held),
        "L" => list(held, value),
        "SS" => list(held, string),
        "NS" => list(held, number),
        "BS" => list(held, bytes),
        _ => Err(UNKNOWN),
    }
}

fn string(text: &Value) -> Plain {
    json(text.as_str().ok_or(UNKNOWN)?)
}

/// Keeps the digits as they are: parsed to a double, a number of DynamoDB's could lose some of its
/// 38. It is a number as RFC 8259 has it, with nothing before or after it.
fn number(digits: &Value) -> Plain {
    const NO_NUMBER: BodyError = BodyError::new("the record has a number that is none");
    let text = digits.as_str().ok_or(NO_NUMBER)?;
    // Of JSON's values, a number alone ends with a digit.
    let is_number = text.ends_with(|last: char| last.is_ascii_digit());
    let raw = serde_json::from_str::<Box<RawValue>>(text).ok();
    let raw = raw.filter(|raw| is_number && raw.get() == text);
    raw.ok_or(NO_NUMBER)
}

fn bytes(text: &Value) -> Plain {
    const NOT_BASE64: BodyError = BodyError::new("the record has bytes that are not Base64");
    let text = text.as_str().ok_or(NOT_BASE64)?;
    BASE64.decode(text.as_bytes()).map_err(|_| NOT_BASE64)?;
    json(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(typed: &Value) -> Result<String, BodyError> {
        item(typed).map(|json| json.get().to_owned())
    }

    #[test]
    fn each_type_has_its_plain_form() {
        for (typed, expected) in [
            (json!({ "S": "a \"b\"\n" }), r#""a \"b\"\n""#),
            (json!({ "S": "" }), r#""""#),
            (json!({ "N": "-1.50" }), "-1.50"),
            (json!({ "N": "-0.1E+999" }), "-0.1E+999"),
            (json!({ "B": "AP8=" }), r#""AP8=""#),
            (json!({ "BOOL": true }), "true"),
            (json!({ "BOOL": false }), "false"),
            (json!({ "NULL": true }), "null"),
            (json!({ "M": {} }), "{}"),
            (
                json!({ "M": { "a": { "L": [{ "N": "1" }, { "S": "x" }] } } }),
                r#"{"a":[1,"x"]}"#,
            ),
            (json!({ "SS": ["a", "b"] }), r#"["a","b"]"#),
            (json!({ "NS": ["1", "2"] }), "[1,2]"),
            (json!({ "BS": ["AP8=", ""] }), r#"["AP8=",""]"#),
        ] {
            let item = json!({ "it": typed });
            assert_eq!(plain(&item).unwrap(), format!(r#"{{"it":{expected}}}"#));
        }
    }

    #[test]
    fn a_number_keeps_all_its_digits() {
        let digits = "12345678901234567890123456789012345678";
        let item = json!({ "n": { "N": digits } });
        assert_eq!(plain(&item).unwrap(), format!(r#"{{"n":{digits}}}"#));
    }

    #[test]
    fn what_is_no_value_of_dynamodb_is_an_error() {
        for value in [
            json!("x"),
            json!({}),
            json!({ "S": "x", "N": "1" }),
            json!({ "S": 1 }),
            json!({ "N": 1 }),
            json!({ "N": "" }),
            json!({ "N": "1,\"admin\":true" }),
            json!({ "N": "01" }),
            json!({ "N": " 1" }),
            json!({ "N": "1 " }),
            json!({ "N": "-" }),
            json!({ "N": "1." }),
            json!({ "N": "1e" }),
            json!({ "N": "NaN" }),
            json!({ "N": "true" }),
            json!({ "B": "%%%" }),
            json!({ "BOOL": "true" }),
            json!({ "NULL": false }),
            json!({ "L": {} }),
            json!({ "M": [] }),
            json!({ "SS": [1] }),
            json!({ "Q": "x" }),
        ] {
            assert!(plain(&json!({ "it": value })).is_err(), "{value}");
        }
        assert!(plain(&json!(["it"])).is_err());
    }
}
