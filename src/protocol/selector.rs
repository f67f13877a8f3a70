//! Selects a value of a JSON text, and makes a token of it. Pure.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
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
        b'[' | b'{' => of_parts(json),
        _ => canonical_text(json.as_bytes()),
    }
}

/// Hashes an identity of several parts, so that it fits whatever its length. One that lacks a part, or a
/// part of a part, would be shared by all that lack it.
fn of_parts(json: &str) -> Option<String> {
    let seen = Seen::of(json).or_else(|| Seen::of_text(json))?;
    (seen.values > 1 && !seen.lacks).then(|| Fingerprint::json(json.as_bytes()).as_str().to_owned())
}

/// What was seen of a JSON value. The value isn't kept: hostile text takes a hundred times its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The number of values, this one and those in it.
    values: usize,
    /// It is or has a `null` or an empty string.
    lacks: bool,
}

impl Seen {
    const VALUE: Self = Self {
        values: 1,
        lacks: false,
    };
    const NOTHING: Self = Self {
        values: 1,
        lacks: true,
    };

    /// Looks at a JSON text; `None` where it is none, or is nested deeper than 128 levels.
    fn of(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Looks at the text of what can't be read, such as a number beyond a double's range, or half of a
    /// surrogate pair: it lacks nothing where nothing looks so.
    fn of_text(json: &str) -> Option<Self> {
        let json = serde_json::from_str::<&RawValue>(json).ok()?.get();
        Some(Self {
            values: 2,
            lacks: json.contains("null") || json.contains(r#""""#),
        })
    }

    fn with(self, part: Self) -> Self {
        Self {
            values: self.values + part.values,
            lacks: self.lacks || part.lacks,
        }
    }
}

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Looks)
    }
}

struct Looks;

impl<'de> Visitor<'de> for Looks {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::NOTHING)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::VALUE)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::VALUE)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Seen, E> {
        Ok(Seen::VALUE)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::VALUE)
    }

    fn visit_str<E>(self, text: &str) -> Result<Seen, E> {
        Ok(if text.is_empty() {
            Seen::NOTHING
        } else {
            Seen::VALUE
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Seen, A::Error> {
        let mut seen = Seen::VALUE;
        while let Some(item) = items.next_element()? {
            seen = seen.with(item);
        }
        Ok(seen)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Seen, A::Error> {
        let mut seen = Seen::VALUE;
        while let Some((IgnoredAny, member)) = members.next_entry()? {
            seen = seen.with(member);
        }
        Ok(seen)
    }
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
            r#"["a",["b",null]]"#,
            r#"["a",{"b":""}]"#,
            r#"{"a":{"b":{"c":null}}}"#,
            "[1,",
            "[null,1e400]",
            r#"["",1e400]"#,
        ] {
            assert_eq!(of_json(json), None, "{json}");
        }
        let deep = format!("[1,{}1{}]", "[".repeat(200), "]".repeat(200));
        for json in [r#"["t",1e400]"#, r#"["t","\ud800"]"#, &deep, r#"{"a":[]}"#] {
            assert!(of_json(json).is_some(), "{json}");
        }
    }
}
