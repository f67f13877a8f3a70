//! Selects a value of a JSON text, and makes a token of it. Pure.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::IgnoredAny;

use crate::protocol::fingerprint::{Fingerprint, canonical_text};
use crate::protocol::pointer::Pointer;
use crate::setup::BuildError;

#[cfg(feature = "jmespath")]
mod jmespath;

#[cfg(feature = "jmespath")]
use crate::protocol::selector::jmespath::Query;

/// Selects a value of the JSON that a layer gets.
///
/// It reads the text as it was received, not the decoded one, so that a handler's type needs no field
/// for it: of a message the body, or what is in its [envelope](crate::batch::Envelope); of an event that an
/// [`InvokeLayer`](crate::invoke::InvokeLayer) gets from SNS the message, of one of an EventBridge bus the `detail`, of one of an S3 Batch Operations job the whole
/// event; of a request the body, out of its [coding](crate::http#the-same-request).
///
/// [`Settings::fingerprint_from`](crate::batch::Settings::fingerprint_from) compares what it finds, and
/// `key_from` of a [batch](crate::batch::BatchLayer::key_from), of an
/// [event](crate::invoke::InvokeLayer::key_from) or of a [route](crate::http::RoutePolicy::key_from) makes
/// a token of it:
///
/// | what is found | the token |
/// |---|---|
/// | a string | the string |
/// | a number, `true`, `false` | its canonical JSON text ([RFC 8785](https://www.rfc-editor.org/rfc/rfc8785)): `7`, `7.0` and `"7"` are one token |
/// | a list, an object | the [fingerprint](crate::Fingerprint) of its canonical JSON, as [`Key::of`](crate::Key::of) makes it |
/// | nothing, `null`, `""`, `[]`, `{}` | none: the route's policy for a missing key, or the [engine's](crate::Builder::on_missing_key) |
/// | a list or an object that holds `null` or `""`, at any depth | none: a part of the identity is missing |
///
/// ```
/// use lambda_idempotency::Selector;
///
/// let by_order = Selector::pointer("/order/id")?;
/// assert!(Selector::pointer("order.id").is_err());
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Selector(Language);

#[derive(Clone, Debug)]
enum Language {
    Pointer(Arc<Pointer>),
    #[cfg(feature = "jmespath")]
    Jmespath(Arc<Query>),
}

impl Selector {
    /// Selects the value that a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901))
    /// finds, such as `/order/id` or `/items/0/id`. Numbers keep all their digits.
    ///
    /// # Errors
    ///
    /// The text is no JSON pointer.
    pub fn pointer(pointer: &str) -> Result<Self, BuildError> {
        let pointer: Pointer = pointer.parse()?;
        Ok(Self(Language::Pointer(Arc::new(pointer))))
    }

    /// Selects the value that a [JMESPath](https://jmespath.org) expression finds, such as
    /// `[tenant, order.id]`.
    ///
    /// The expression is compiled once, here. One that fails on a text, because a function was
    /// given the wrong type, finds nothing in it. Numbers beyond 64 bits lose digits, and `7` and
    /// `7.0` are not equal; a pointer keeps all digits, and takes each spelling of a number for the
    /// same. JSON with half of a surrogate pair, with a number beyond a double's range or of more
    /// than 127 levels can't be read: such a message is
    /// [rejected](crate::batch::Rejection::Undecodable), and as a fingerprint the whole of it is
    /// compared; such an event fails as [`Undecodable`](crate::invoke::InvokeError::Undecodable); such a
    /// request gets [`body-not-json`](crate::http#body-not-json), even where the key is optional.
    ///
    /// ```
    /// use lambda_idempotency::Selector;
    ///
    /// let of_an_order = Selector::jmespath("[tenant, order.id]")?;
    /// let error = Selector::jmespath("order.[").unwrap_err();
    /// assert!(error.to_string().starts_with("`order.[` is no JMESPath expression"));
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    pub fn jmespath(expression: &str) -> Result<Self, BuildError> {
        let query = Query::compile(expression).map_err(|reason| BuildError::Jmespath {
            expression: expression.to_owned(),
            reason,
        })?;
        Ok(Self(Language::Jmespath(Arc::new(query))))
    }

    /// Finds the value in a text, as JSON text. An error says why an expression can't read the text,
    /// although it is JSON.
    #[allow(clippy::unnecessary_wraps, reason = "a pointer reads any JSON")]
    pub(crate) fn find<'a>(&self, text: &'a str) -> Result<Option<Cow<'a, str>>, String> {
        Ok(match &self.0 {
            Language::Pointer(pointer) => pointer.find(text).map(Cow::Borrowed),
            #[cfg(feature = "jmespath")]
            Language::Jmespath(query) => query.find(text)?.map(Cow::Owned),
        })
    }

    /// Makes the token of the value in a text; `None` where there is none, or where it identifies
    /// nothing.
    pub(crate) fn token(&self, text: &str) -> Result<Option<String>, String> {
        Ok(self.find(text)?.and_then(|json| of_json(&json)))
    }
}

/// Writes the pointer or the expression as it was given.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Language::Pointer(pointer) => pointer.fmt(f),
            #[cfg(feature = "jmespath")]
            Language::Jmespath(query) => query.fmt(f),
        }
    }
}

/// Returns whether a text is JSON. A number in it may be beyond a double's range, a string may have half
/// of a surrogate pair, and its depth has no limit.
pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Makes the token of a JSON text; `None` where the text identifies nothing. A list or an object is
/// hashed, so that it fits whatever its length, and so is what can't be decoded.
fn of_json(json: &str) -> Option<String> {
    let text = match json.trim_start().bytes().next()? {
        b'n' => return None,
        b'[' | b'{' if lacks_a_part(json) => return None,
        b'[' | b'{' => None,
        b'"' => serde_json::from_str(json).ok(),
        _ => canonical_text(json.as_bytes()),
    };
    let hash = || Fingerprint::json(json.as_bytes()).as_str().to_owned();
    text.or_else(|| is_json(json).then(hash))
}

/// Returns whether a list or an object is empty, or has a `null` or an empty string, at any depth: its
/// token would be shared by all that lack this part. Nothing is decoded: not every value can be, and
/// decoded, hostile text takes a hundred times its size.
fn lacks_a_part(json: &str) -> bool {
    let mut chars = json.trim_start().chars();
    chars.next();
    if chars.as_str().trim_start().starts_with([']', '}']) {
        return true;
    }
    while let Some(c) = chars.next() {
        match c {
            // Outside of strings, only `null` has an `n`.
            'n' => return true,
            '"' => {
                let after = chars.as_str().strip_prefix('"').map(str::trim_start);
                if after.is_some_and(|after| !after.starts_with(':')) {
                    return true;
                }
                while let Some(c) = chars.next()
                    && c != '"'
                {
                    if c == '\\' {
                        chars.next();
                    }
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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
            r#"{"a\"" : "" }"#,
        ] {
            assert_eq!(of_json(json), None, "{json}");
        }
        let deep = format!("[1,{}1{}]", "[".repeat(200), "]".repeat(200));
        for json in [
            r#"["annulled-7",1e400]"#,
            r#"["a\"","\ud800"]"#,
            r#"{"" : 7}"#,
            &deep,
            r#"{"a":[]}"#,
        ] {
            assert!(of_json(json).is_some(), "{json}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_has_a_token_of_its_own() {
        let all = [r#""\ud83d""#, r#""\ud83e""#, "1e99999999999999999999"];
        let tokens = all.map(|json| of_json(json).unwrap());
        assert_eq!(HashSet::from(tokens).len(), all.len());
    }
}
