//! Makes a token of a JSON value. Pure.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::protocol::fingerprint::{Fingerprint, canonical_text};

/// Makes the token of a JSON text; `None` where the text identifies nothing.
pub(super) fn of_json(json: &str) -> Option<String> {
    match json.trim_start().bytes().next()? {
        b'"' => serde_json::from_str(json).ok(),
        b'n' => None,
        b'[' => of_parts(json, &serde_json::from_str::<Vec<&RawValue>>(json).ok()?),
        b'{' => {
            let members: HashMap<String, &RawValue> = serde_json::from_str(json).ok()?;
            of_parts(json, &members.into_values().collect::<Vec<_>>())
        }
        _ => canonical_text(json.as_bytes()),
    }
}

/// Hashes an identity of several parts, so that it fits whatever its length. One that lacks a part
/// would be shared by all that lack it.
fn of_parts(json: &str, parts: &[&RawValue]) -> Option<String> {
    let complete = |part: &&RawValue| !matches!(part.get(), "null" | r#""""#);
    (!parts.is_empty() && parts.iter().all(complete))
        .then(|| Fingerprint::json(json.as_bytes()).as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_its_own_token() {
        assert_eq!(
            of_json(r#" "a\u0062 \"c\"" "#).as_deref(),
            Some(r#"ab "c""#)
        );
    }

    #[test]
    fn numbers_and_booleans_have_one_text_per_value() {
        for (json, token) in [
            ("7", "7"),
            ("7.0", "7"),
            ("70e-1", "7"),
            ("-0", "0"),
            ("true", "true"),
            ("false", "false"),
        ] {
            assert_eq!(of_json(json).as_deref(), Some(token), "{json}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_ne!(
            of_json("18446744073709551616"),
            of_json("18446744073709551617")
        );
    }

    #[test]
    fn the_form_of_a_list_or_an_object_does_not_matter() {
        assert_eq!(
            of_json(r#"{"a":1,"b":[2]}"#),
            of_json(r#" { "b" : [ 2.0 ], "a" : 1 } "#)
        );
        assert_ne!(of_json(r#"["a","b"]"#), of_json(r#"["b","a"]"#));
        assert_ne!(of_json(r#"["a#","b"]"#), of_json(r##"["a","#b"]"##));
        assert_eq!(of_json(r#"["t",7]"#).unwrap().len(), 64);
    }

    #[test]
    fn what_identifies_nothing_has_no_token() {
        for json in [
            "",
            "null",
            " null ",
            "[]",
            "{}",
            "[ ]",
            r#"["a",null]"#,
            r#"{"a": null}"#,
            r#"["", 1]"#,
        ] {
            assert_eq!(of_json(json), None, "{json}");
        }
    }
}
