//! Writes JSON text as Python's `json.dumps(value, sort_keys=True)` does, byte for byte: the text
//! is hashed.

use std::fmt::Write;

use serde_json::{Map, Number, Value};

/// Writes a value. A [`Value`] holds integers beyond 64 bits as doubles, and they are written as
/// these.
pub(super) fn dumps(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => write_number(text, number),
        Value::String(string) => write_string(text, string),
        Value::Array(values) => {
            text.push('[');
            for (position, value) in values.iter().enumerate() {
                separate(text, position);
                write_value(text, value);
            }
            text.push(']');
        }
        Value::Object(members) => write_object(text, members),
    }
}

fn write_object(text: &mut String, members: &Map<String, Value>) {
    // Python orders names by code points, and so do their bytes in UTF-8.
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(name, _)| name.as_str());
    text.push('{');
    for (position, (name, value)) in members.into_iter().enumerate() {
        separate(text, position);
        write_string(text, name);
        text.push_str(": ");
        write_value(text, value);
    }
    text.push('}');
}

fn separate(text: &mut String, position: usize) {
    if position > 0 {
        text.push_str(", ");
    }
}

/// Writes printable ASCII as it is, and everything else as escaped UTF-16.
fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string never fails.
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text.push('"');
}

fn write_number(text: &mut String, number: &Number) {
    match number.as_f64() {
        Some(double) if number.is_f64() => write_double(text, double),
        _ => text.push_str(&number.to_string()),
    }
}

/// Writes the shortest digits that give the same double again; with an exponent from 1e16 on, and
/// below 1e-4.
fn write_double(text: &mut String, double: f64) {
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let written = if (-4..16).contains(&exponent) {
        // Rust leaves out the `.0` of a whole number.
        let plain = double.to_string();
        let point = if plain.contains('.') { "" } else { ".0" };
        write!(text, "{plain}{point}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(text, "{digits}e{sign}{:02}", exponent.abs())
    };
    // Writing to a string never fails.
    let _ = written;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
