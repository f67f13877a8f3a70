//! RFC 8785 canonical JSON, except that numbers which a double can't hold keep their exact digits.
//!
//! The RFC writes every number as the shortest form of a double, so 2^53 and 2^53 + 1 would meet. Here a number whose
//! decimal value survives the round trip through a double is written as the RFC says, and any other as its own digits. Both
//! forms state their value exactly, so two numbers share a form only if they are equal.

use std::borrow::Cow;

use json_event_parser::{JsonEvent, LowLevelJsonParser};

mod integers;

/// Deeper documents are not canonicalised. `serde_json` refuses them too.
const MAX_DEPTH: usize = 128;

/// The canonical form; `None` for what is not I-JSON, or is nested deeper than 128 levels.
pub(super) fn canonicalize(text: &[u8]) -> Option<Vec<u8>> {
    integers::canonicalize(text).or_else(|| canonicalize_exactly(text))
}

fn canonicalize_exactly(text: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(text);
    let mut canonical = Vec::with_capacity(text.len());
    let first = reader.next()?;
    read_value(&mut reader, first, &mut canonical, 0)?;
    matches!(reader.next()?, JsonEvent::Eof).then_some(canonical)
}

struct Reader<'a> {
    parser: LowLevelJsonParser,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            // An object costs two entries of the parser's stack.
            parser: LowLevelJsonParser::new().with_max_stack_size(2 * MAX_DEPTH + 2),
            rest: text,
        }
    }

    fn next(&mut self) -> Option<JsonEvent<'a>> {
        loop {
            let step = self.parser.parse_next(self.rest, true);
            self.rest = self.rest.get(step.consumed_bytes..)?;
            if let Some(event) = step.event {
                return event.ok();
            }
        }
    }
}

fn read_value(
    reader: &mut Reader<'_>,
    event: JsonEvent<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match event {
        JsonEvent::Null => out.extend_from_slice(b"null"),
        JsonEvent::Boolean(true) => out.extend_from_slice(b"true"),
        JsonEvent::Boolean(false) => out.extend_from_slice(b"false"),
        JsonEvent::String(text) => write_string(&text, out)?,
        JsonEvent::Number(digits) => out.extend_from_slice(canonical_number(&digits)?.as_bytes()),
        JsonEvent::StartArray => read_array(reader, out, depth)?,
        JsonEvent::StartObject => read_object(reader, out, depth)?,
        JsonEvent::EndArray | JsonEvent::EndObject | JsonEvent::ObjectKey(_) | JsonEvent::Eof => {
            return None;
        }
    }
    Some(())
}

fn read_array(reader: &mut Reader<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    out.push(b'[');
    let mut first = true;
    loop {
        match reader.next()? {
            JsonEvent::EndArray => break,
            event => {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                read_value(reader, event, out, depth + 1)?;
            }
        }
    }
    out.push(b']');
    Some(())
}

fn read_object(reader: &mut Reader<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    let mut members: Vec<(Cow<'_, str>, Vec<u8>)> = Vec::new();
    loop {
        match reader.next()? {
            JsonEvent::EndObject => break,
            JsonEvent::ObjectKey(name) => {
                let event = reader.next()?;
                let mut value = Vec::new();
                read_value(reader, event, &mut value, depth + 1)?;
                members.push((name, value));
            }
            _ => return None,
        }
    }
    sort_and_check(&mut members)?;
    out.push(b'{');
    for (position, (name, value)) in members.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_string(name, out)?;
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    Some(())
}

/// Orders members by UTF-16 code units (RFC 8785, 3.2.3), which differs from byte order beyond the basic plane; `None` where a
/// name is there twice.
fn sort_and_check<N: AsRef<str>, V>(members: &mut [(N, V)]) -> Option<()> {
    let order = |a: &str, b: &str| {
        if a.is_ascii() && b.is_ascii() {
            a.cmp(b)
        } else {
            a.encode_utf16().cmp(b.encode_utf16())
        }
    };
    members.sort_by(|(a, _), (b, _)| order(a.as_ref(), b.as_ref()));
    let mut neighbours = members.iter().zip(members.iter().skip(1));
    neighbours
        .all(|((a, _), (b, _))| a.as_ref() != b.as_ref())
        .then_some(())
}

/// `serde_json` escapes exactly what RFC 8785, 3.2.2.2 asks for.
fn write_string(text: &str, out: &mut Vec<u8>) -> Option<()> {
    serde_json::to_writer(out, text).ok()
}

fn canonical_number(digits: &str) -> Option<String> {
    let exact = Decimal::parse(digits)?;
    let double: f64 = digits.parse().ok()?;
    if double.is_finite() {
        let mut buffer = ryu_js::Buffer::new();
        let shortest = buffer.format_finite(double);
        if Decimal::parse(shortest)? == exact {
            return Some(shortest.to_owned());
        }
    }
    Some(exact.to_text())
}

/// A decimal number in one form per value: digits without zeros at either end, times a power of ten.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self {
                negative: false,
                digits: String::new(),
                exponent: 0,
            });
        }
        let dropped = i64::try_from(significant.len() - digits.len()).ok()?;
        let exponent = exponent
            .checked_sub(i64::try_from(fraction.len()).ok()?)?
            .checked_add(dropped)?;
        Some(Self {
            negative,
            digits: digits.to_owned(),
            exponent,
        })
    }

    fn to_text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        format!("{sign}{}e{}", self.digits, self.exponent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> Option<String> {
        canonicalize(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn equal_values_have_one_form() {
        for text in ["1", "1.0", "10e-1", "0.1e1", "1E0", "1e+0"] {
            assert_eq!(canonical(text).as_deref(), Some("1"), "{text}");
        }
        for text in ["0", "-0", "0.0", "0e5", "-0.00e-7"] {
            assert_eq!(canonical(text).as_deref(), Some("0"), "{text}");
        }
    }

    #[test]
    fn numbers_that_a_double_cannot_hold_stay_apart() {
        let numbers = [
            "9007199254740992",
            "9007199254740993",
            "9007199254740994",
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709551617",
            "1e400",
            "1e401",
            "-1e400",
            "1e-400",
            "0",
            "0.1",
            "0.10000000000000000001",
            "1.0000000000000000001",
            "1",
        ];
        for (i, one) in numbers.iter().enumerate() {
            for other in numbers.iter().skip(i + 1) {
                assert_ne!(canonical(one), canonical(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn exact_digits_have_one_form_too() {
        assert_eq!(canonical("1e400"), canonical("10e399"));
        assert_eq!(
            canonical("9007199254740993"),
            canonical("9007199254740993.0")
        );
    }

    #[test]
    fn an_exact_number_does_not_meet_a_string_of_its_digits() {
        assert_ne!(
            canonical("9007199254740993"),
            canonical("\"9007199254740993\"")
        );
        assert_ne!(
            canonical("9007199254740993"),
            canonical("\"9007199254740993e0\"")
        );
    }

    #[test]
    fn an_exponent_beyond_reason_is_not_canonical() {
        assert_eq!(canonical("1e99999999999999999999"), None);
        assert_eq!(
            canonical("[1e9223372036854775807, 10e9223372036854775807]"),
            None
        );
    }

    #[test]
    fn members_are_ordered_by_utf16() {
        // U+1F600 is D83D DE00 in UTF-16: before U+FB33, though its UTF-8 comes after.
        assert_eq!(
            canonical("{\"\u{fb33}\":1,\"\u{1f600}\":2}").unwrap(),
            "{\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }

    #[test]
    fn nesting_is_bounded_where_serde_json_bounds_it() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(canonical(&nested(128)).is_some());
        assert!(canonical(&nested(130)).is_none());
        let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
        assert!(canonical(&objects(127)).is_some());
        assert!(canonical(&objects(130)).is_none());
    }

    #[test]
    fn what_is_not_ijson_has_no_form() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,\"a\":1}",
            "\"\\ud800\"",
            "nul",
            "01",
            "1 2",
            "{\"a\":1}}",
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
        assert_eq!(canonicalize(b"\"\xff\""), None);
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i32>().prop_map(Into::into),
            any::<f64>()
                .prop_filter("finite", |f| f.is_finite())
                .prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::hash_map(any::<String>(), inner, 0..8)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_another_implementation_of_the_rfc(value in json()) {
            let text = serde_json::to_string(&value).unwrap();
            let theirs = serde_json_canonicalizer::to_string(&value).unwrap();
            prop_assert_eq!(canonical(&text), Some(theirs));
        }

        #[test]
        fn pretty_printing_changes_nothing(value in json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(canonical(&pretty), canonical(&value.to_string()));
        }

        #[test]
        fn different_integers_never_meet(a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(a == b, canonical(&a.to_string()) == canonical(&b.to_string()));
        }

        #[test]
        fn both_readers_agree(value in json()) {
            let text = serde_json::to_string(&value).unwrap();
            if let Some(form) = integers::canonicalize(text.as_bytes()) {
                prop_assert_eq!(Some(form), canonicalize_exactly(text.as_bytes()));
            }
        }

        #[test]
        fn both_readers_agree_on_integers(numbers in prop::collection::vec(any::<i64>(), 0..4), more in any::<u64>()) {
            let text = format!("{{\"a\":{numbers:?},\"b\":{more}}}");
            let form = integers::canonicalize(text.as_bytes());
            prop_assert!(form.is_some());
            prop_assert_eq!(form, canonicalize_exactly(text.as_bytes()));
        }

        #[test]
        fn arbitrary_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = canonicalize(&bytes);
        }
    }
}
