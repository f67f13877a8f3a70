//! The fingerprint identifies the payload that a key was first used with.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::protocol::hash::digest;
use crate::protocol::key::error::KeyError;
use crate::protocol::pointer::Pointer;

mod canonical;

/// The length of the digest of a payload or an operation.
const DIGITS: usize = 64;

/// The hash of a payload as it was *received*: a key that is sent again with another payload is a
/// mistake of the sender's, and gets [`Error::Mismatch`](crate::Error::Mismatch) instead of another
/// request's answer.
///
/// JSON is hashed in its canonical form ([RFC 8785](https://www.rfc-editor.org/rfc/rfc8785)), so
/// that white space and the order of members don't matter. Numbers that a double can't hold keep
/// their exact digits. A text that isn't JSON, repeats a member name, is nested deeper than 128
/// levels, or has more than 50,000 values (elements, members, and what holds them) is hashed as
/// bytes: there white space and order count. A payload of 6 MB, the most that Lambda takes, then
/// costs at most about 0.15 s, whatever it holds.
///
/// ```
/// use lambda_idempotency::Fingerprint;
///
/// let sent = Fingerprint::json(br#"{"amount": 1250, "currency": "EUR"}"#);
/// assert_eq!(sent, Fingerprint::json(br#"{"currency":"EUR","amount":1.25e3}"#));
/// assert_ne!(sent, Fingerprint::json(br#"{"currency":"EUR","amount":1251}"#));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(Arc<str>);

impl Fingerprint {
    /// Hashes a JSON text as received, or its bytes, where it isn't JSON.
    pub fn json(payload: &[u8]) -> Self {
        Self::json_without(payload, &[])
    }

    /// Hashes a JSON text as received without these fields, or all its bytes, where it has no
    /// [canonical form](Self). The pointer to the whole text leaves nothing out.
    pub(crate) fn json_without(payload: &[u8], left_out: &[Pointer]) -> Self {
        match canonical::canonicalize(payload, left_out) {
            Some(canonical) => Self::digest("lambda-idempotency/json/1", [canonical.as_slice()]),
            None => Self::bytes(payload),
        }
    }

    fn digest<'a>(domain: &'a str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(digest(domain, parts).as_str().into())
    }

    /// Hashes bytes as they are.
    pub fn bytes(payload: &[u8]) -> Self {
        Self::digest("lambda-idempotency/bytes/1", [payload])
    }

    /// Hashes a value, for callers that have no received text.
    ///
    /// Prefer [`json`](Self::json) where there is one: a new field with a default changes the
    /// value's fingerprint, not that of the text.
    ///
    /// # Errors
    ///
    /// When the value can't be serialised as JSON.
    pub fn of<T: Serialize + ?Sized>(payload: &T) -> Result<Self, KeyError> {
        serde_json::to_vec(payload)
            .map(|text| Self::json(&text))
            .map_err(|error| KeyError::InvalidPayload {
                reason: error.to_string(),
            })
    }

    /// Hashes several fingerprints together, in this order: of a method, a path and a body, say.
    #[cfg(any(test, feature = "batch", feature = "http", feature = "invoke"))]
    pub(crate) fn combine<'a>(parts: impl IntoIterator<Item = &'a Fingerprint>) -> Self {
        let parts = parts.into_iter().map(|part| part.0.as_bytes());
        Self::digest("lambda-idempotency/parts/1", parts)
    }

    /// Binds the record of a raw id to an operation, and to a payload where there is one: the id of
    /// the record doesn't tell operations apart. Another library's fingerprint stays as it is, for
    /// that library compares it.
    pub(crate) fn of_operation(operation: &str, payload: Option<&Self>) -> Self {
        let payload = match payload.map(Self::as_str) {
            Some(other) if other.len() != DIGITS => return Self(other.into()),
            own => own.unwrap_or_default(),
        };
        let operation = digest("lambda-idempotency/operation/1", [operation.as_bytes()]);
        Self(format!("{operation}:{payload}").into())
    }

    /// Returns whether two requests differ: in their operation, or in their payload, where both say
    /// it.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        if self == other {
            return false;
        }
        let [(operation, payload), (other_operation, other_payload)] =
            [self, other].map(Self::split);
        let differ = |one: &str, two: &str| !one.is_empty() && !two.is_empty() && one != two;
        differ(operation, other_operation) || differ(payload, other_payload)
    }

    /// Returns the operation's part, where there is one, and the payload's.
    fn split(&self) -> (&str, &str) {
        match self.0.split_once(':') {
            Some((operation, payload)) if operation.len() == DIGITS => (operation, payload),
            _ => ("", &self.0),
        }
    }

    /// Takes a fingerprint as it was read from a store.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the 64 lower-case hex digits, or the text of another library. Under a raw id those of the
    /// operation and `:` stand before them, and they are missing where the payload isn't compared.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.0)
    }
}

/// Writes a JSON text in its canonical form (RFC 8785); `None` where it has none.
pub fn canonical_text(json: &[u8]) -> Option<String> {
    canonical::canonicalize(json, &[]).and_then(|text| String::from_utf8(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_and_member_order_do_not_matter() {
        assert_eq!(
            Fingerprint::json(br#"{"b":[1,2],"a":"x"}"#),
            Fingerprint::json(b"\n{ \"a\" : \"x\" , \"b\" : [ 1, 2 ] }\t")
        );
    }

    #[test]
    fn array_order_types_and_null_matter() {
        let all = [
            "[1,2]",
            "[2,1]",
            r#""1""#,
            "1",
            "null",
            r#""null""#,
            "{}",
            "[]",
            "0",
            "false",
            r#""""#,
            r#"{"a":null}"#,
        ];
        for (i, one) in all.iter().enumerate() {
            for other in all.iter().skip(i + 1) {
                assert_ne!(
                    Fingerprint::json(one.as_bytes()),
                    Fingerprint::json(other.as_bytes()),
                    "{one} {other}"
                );
            }
        }
    }

    #[test]
    fn text_that_is_not_json_is_hashed_as_bytes() {
        for payload in [
            &b"plain"[..],
            b"\xff\xfe",
            b"",
            b"{",
            br#"{"a":1,"a":2}"#,
            b"eyJhIjoxfQ==",
        ] {
            assert_eq!(Fingerprint::json(payload), Fingerprint::bytes(payload));
        }
    }

    #[test]
    fn nesting_ten_thousand_deep_is_hashed_as_bytes() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert_eq!(
            Fingerprint::json(deep.as_bytes()),
            Fingerprint::bytes(deep.as_bytes())
        );
    }

    #[test]
    fn a_text_of_too_many_values_is_hashed_as_bytes() {
        // The array is a value, too.
        let of = |values: usize| format!("[{}1]", "1, ".repeat(values - 2));
        let most = of(canonical::MAX_VALUES);
        assert_ne!(
            Fingerprint::json(most.as_bytes()),
            Fingerprint::bytes(most.as_bytes())
        );
        let more = of(canonical::MAX_VALUES + 1);
        assert_eq!(
            Fingerprint::json(more.as_bytes()),
            Fingerprint::bytes(more.as_bytes())
        );
    }

    #[test]
    fn bytes_that_equal_a_canonical_text_do_not_meet_it() {
        assert_ne!(Fingerprint::json(b"1"), Fingerprint::bytes(b"1"));
    }

    #[test]
    fn operations_differ_and_payloads_where_both_are_known() {
        let of = |operation, payload: Option<&[u8]>| {
            let payload = payload.map(Fingerprint::bytes);
            Fingerprint::of_operation(operation, payload.as_ref())
        };
        let charge = of("charge", Some(b"a"));
        assert!(!charge.differs(&of("charge", Some(b"a"))));
        assert!(charge.differs(&of("charge", Some(b"b"))));
        assert!(charge.differs(&of("refund", Some(b"a"))));
        assert!(!charge.differs(&of("charge", None)));
        assert!(charge.differs(&of("refund", None)));
        assert!(!of("charge", None).differs(&of("charge", None)));
        assert!(
            !charge.differs(&Fingerprint::bytes(b"a")),
            "of an operation that isn't known"
        );
        assert!(Fingerprint::bytes(b"b").differs(&charge));
        assert!(Fingerprint::bytes(b"a").differs(&Fingerprint::bytes(b"b")));
        let md5 = Fingerprint::from_stored("098f6bcd4621d373cade4e832627b4f6");
        assert_eq!(Fingerprint::of_operation("charge", Some(&md5)), md5);
        assert!(charge.differs(&md5));
    }

    #[test]
    fn parts_keep_their_order() {
        let (a, b) = (Fingerprint::bytes(b"a"), Fingerprint::bytes(b"b"));
        assert_ne!(
            Fingerprint::combine([&a, &b]),
            Fingerprint::combine([&b, &a])
        );
    }

    #[test]
    fn a_field_that_is_left_out_may_differ_or_be_missing() {
        let pointers = ["/sent_at", "/meta/trace", "/lines/1/note", "/a~1b"];
        let pointers: Vec<_> = pointers
            .iter()
            .map(|text| text.parse::<Pointer>().unwrap())
            .collect();
        let print = |text: &str| Fingerprint::json_without(text.as_bytes(), &pointers);
        let base = print(r#"{"lines":[{"note":1},{"n":2}],"meta":{},"x":1}"#);
        assert_eq!(
            base,
            Fingerprint::json(br#"{"lines":[{"note":1},{"n":2}],"meta":{},"x":1}"#)
        );
        for same in [
            r#"{"sent_at":17,"lines":[{"note":1},{"n":2}],"meta":{},"x":1}"#,
            r#"{"sent_at":{"deep":[1]},"a/b":1,"lines":[{"note":1},{"n":2,"note":"x"}],"meta":{"trace":"t"},"x":1}"#,
        ] {
            assert_eq!(print(same), base, "{same}");
        }
        for other in [
            r#"{"lines":[{"note":2},{"n":2}],"meta":{},"x":1}"#,
            r#"{"lines":[{"note":1},{"n":3}],"meta":{},"x":1}"#,
            r#"{"lines":[{"note":1},{"n":2}],"meta":{"span":1},"x":1}"#,
            r#"{"lines":[{"note":1},{"n":2}],"meta":{},"x":2}"#,
            // A member that repeats is no I-JSON, even where it is left out.
            r#"{"sent_at":1,"sent_at":2,"lines":[{"note":1},{"n":2}],"meta":{},"x":1}"#,
        ] {
            assert_ne!(print(other), base, "{other}");
        }
    }

    #[test]
    fn the_whole_text_is_never_left_out() {
        let whole: Pointer = "".parse().unwrap();
        let print = |text: &[u8]| Fingerprint::json_without(text, std::slice::from_ref(&whole));
        assert_eq!(print(b"{}"), Fingerprint::json(b"{}"));
        assert_ne!(print(b"1"), print(b"2"));
    }
}
