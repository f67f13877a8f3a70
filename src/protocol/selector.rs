//! Selects a value of a JSON text, and makes a token of it. Pure.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::protocol::fingerprint::{Fingerprint, canonical_text};
use crate::protocol::pointer::Pointer;
use crate::setup::BuildError;

#[cfg(feature = "jmespath")]
mod jmespath;

#[cfg(feature = "jmespath")]
use crate::protocol::selector::jmespath::Query;

/// Selects a value of a JSON text.
#[derive(Clone, Debug)]
pub(crate) enum JsonSelector {
    Pointer(Arc<Pointer>),
    #[cfg(feature = "jmespath")]
    Jmespath(Arc<Query>),
}

impl JsonSelector {
    pub(crate) fn pointer(pointer: &str) -> Result<Self, BuildError> {
        Ok(Self::Pointer(Arc::new(pointer.parse::<Pointer>()?)))
    }

    #[cfg(feature = "jmespath")]
    pub(crate) fn jmespath(expression: &str) -> Result<Self, BuildError> {
        let query = Query::compile(expression).map_err(|reason| BuildError::Jmespath {
            expression: expression.to_owned(),
            reason,
        })?;
        Ok(Self::Jmespath(Arc::new(query)))
    }

    /// Finds the value in a text, as JSON text.
    pub(crate) fn find<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        match self {
            Self::Pointer(pointer) => pointer.find(text).map(Cow::Borrowed),
            #[cfg(feature = "jmespath")]
            Self::Jmespath(query) => query.find(text).map(Cow::Owned),
        }
    }

    /// Makes the token of the value in a text; `None` where there is none, or where it identifies
    /// nothing.
    pub(crate) fn token(&self, text: &str) -> Option<String> {
        of_json(&self.find(text)?)
    }
}

/// Writes the pointer or the expression as it was given.
impl fmt::Display for JsonSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(pointer) => pointer.fmt(f),
            #[cfg(feature = "jmespath")]
            Self::Jmespath(query) => query.fmt(f),
        }
    }
}

/// Makes the token of a JSON text; `None` where the text identifies nothing.
fn of_json(json: &str) -> Option<String> {
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
