//! Writes DynamoDB's JSON, in which each value names its type, as plain JSON. Pure.
//!
//! [AWS's page](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_AttributeValue.html)
//! lists the types.

use data_encoding::BASE64;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::batch::BodyError;

const UNKNOWN: BodyError =
    BodyError::new("the record has a value that is not of a type of DynamoDB's");

/// Adds an item: `{"id": {"N": "7"}}` is written `{"id":7}`. Numbers keep all their digits, bytes
/// are Base64 text, and sets are arrays.
pub(super) fn write_item(item: &Value, out: &mut Vec<u8>) -> Result<(), BodyError> {
    write_map(item.as_object().ok_or(UNKNOWN)?, out)
}

/// Adds a text as a JSON string.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(Value::from(text).to_string().as_bytes());
}

fn write_map(map: &Map<String, Value>, out: &mut Vec<u8>) -> Result<(), BodyError> {
    out.push(b'{');
    for (position, (name, value)) in map.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_text(name, out);
        out.push(b':');
        write_value(value, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_list(
    list: &Value,
    out: &mut Vec<u8>,
    write: fn(&Value, &mut Vec<u8>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    out.push(b'[');
    for (position, value) in list.as_array().ok_or(UNKNOWN)?.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write(value, out)?;
    }
    out.push(b']');
    Ok(())
}

fn write_value(value: &Value, out: &mut Vec<u8>) -> Result<(), BodyError> {
    let mut members = value.as_object().ok_or(UNKNOWN)?.iter();
    let (Some((kind, value)), None) = (members.next(), members.next()) else {
        return Err(UNKNOWN);
    };
    match kind.as_str() {
        "S" => string(value, out),
        "N" => number(value, out),
        "B" => bytes(value, out),
        "BOOL" => {
            let is_true = value.as_bool().ok_or(UNKNOWN)?;
            out.extend_from_slice(if is_true { b"true" } else { b"false" });
            Ok(())
        }
        "NULL" if value == &Value::Bool(true) => {
            out.extend_from_slice(b"null");
            Ok(())
        }
        "M" => write_item(value, out),
        "L" => write_list(value, out, write_value),
        "SS" => write_list(value, out, string),
        "NS" => write_list(value, out, number),
        "BS" => write_list(value, out, bytes),
        _ => Err(UNKNOWN),
    }
}

fn string(value: &Value, out: &mut Vec<u8>) -> Result<(), BodyError> {
    write_text(value.as_str().ok_or(UNKNOWN)?, out);
    Ok(())
}

/// Adds the digits as they are: parsed to a double, a number of DynamoDB's could lose some of its
/// 38.
fn number(value: &Value, out: &mut Vec<u8>) -> Result<(), BodyError> {
    const NO_NUMBER: BodyError = BodyError::new("the record has a number that is none");
    let text = value.as_str().ok_or(NO_NUMBER)?;
    if !is_json_number(text) {
        return Err(NO_NUMBER);
    }
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Tells whether a text is a number as RFC 8259 has it, with nothing before or after it.
fn is_json_number(text: &str) -> bool {
    let parsed = serde_json::from_str::<&RawValue>(text);
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && parsed.is_ok_and(|raw| raw.get() == text)
}

fn bytes(value: &Value, out: &mut Vec<u8>) -> Result<(), BodyError> {
    const NOT_BASE64: BodyError = BodyError::new("the record has bytes that are not Base64");
    let text = value.as_str().ok_or(NOT_BASE64)?;
    BASE64.decode(text.as_bytes()).map_err(|_| NOT_BASE64)?;
    write_text(text, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(item: &Value) -> Result<String, BodyError> {
        let mut out = Vec::new();
        write_item(item, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
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
