//! RFC 8785 canonical JSON, except that numbers which a double can't hold keep their exact digits.
//!
//! The RFC writes every number as the shortest form of a double, so 2^53 and 2^53 + 1 would meet. Here a number whose
//! decimal value survives the round trip through a double is written as the RFC says, and any other as its own digits. Both
//! forms state their value exactly, so two numbers share a form only if they are equal.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use json_event_parser::{JsonEvent, LowLevelJsonParser};

use super::pointer::{JsonPointer, below, is_target};

/// Deeper documents are not canonicalised. `serde_json` refuses them too.
const MAX_DEPTH: usize = 128;

/// The canonical form; `None` for what is not I-JSON, or is nested deeper than 128 levels.
pub(super) fn canonicalize(text: &[u8]) -> Option<Vec<u8>> {
    canonicalize_without(text, &[])
}

/// The canonical form of what is left when these fields are taken away.
pub(super) fn canonicalize_without(text: &[u8], left_out: &[JsonPointer]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(text);
    let mut canonical = Vec::with_capacity(text.len());
    let first = reader.next()?;
    let left_out: Vec<&[String]> = left_out.iter().map(JsonPointer::tokens).collect();
    read_value(&mut reader, first, &mut canonical, 0, &left_out)?;
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
    left_out: &[&[String]],
) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match event {
        JsonEvent::Null => out.extend_from_slice(b"null"),
        JsonEvent::Boolean(true) => out.extend_from_slice(b"true"),
        JsonEvent::Boolean(false) => out.extend_from_slice(b"false"),
        JsonEvent::String(text) => write_string(&text, out)?,
        JsonEvent::Number(digits) => write_number(&digits, out)?,
        JsonEvent::StartArray => read_array(reader, out, depth, left_out)?,
        JsonEvent::StartObject => read_object(reader, out, depth, left_out)?,
        JsonEvent::EndArray | JsonEvent::EndObject | JsonEvent::ObjectKey(_) | JsonEvent::Eof => {
            return None;
        }
    }
    Some(())
}

fn read_array(
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
    depth: usize,
    left_out: &[&[String]],
) -> Option<()> {
    out.push(b'[');
    let mut first = true;
    for index in 0_usize.. {
        match reader.next()? {
            JsonEvent::EndArray => break,
            event => {
                let below = below(left_out, || index.to_string());
                if is_target(&below) {
                    read_value(reader, event, &mut Vec::new(), depth + 1, &[])?;
                    continue;
                }
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                read_value(reader, event, out, depth + 1, &below)?;
            }
        }
    }
    out.push(b']');
    Some(())
}

/// Members are written as they come, each with a comma after it, and put into their order at the end: objects whose members
/// are in order already are never copied.
fn read_object(
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
    depth: usize,
    left_out: &[&[String]],
) -> Option<()> {
    out.push(b'{');
    let first = out.len();
    let mut members: Vec<Member<'_>> = Vec::new();
    loop {
        match reader.next()? {
            JsonEvent::EndObject => break,
            JsonEvent::ObjectKey(name) => {
                let start = out.len();
                write_string(&name, out)?;
                out.push(b':');
                let event = reader.next()?;
                let below = below(left_out, || name.to_string());
                read_value(reader, event, out, depth + 1, &below)?;
                out.push(b',');
                if is_target(&below) {
                    // It counts when repeated names are looked for, and is written nowhere.
                    out.truncate(start);
                }
                members.push(Member {
                    name,
                    written: start..out.len(),
                });
            }
            _ => return None,
        }
    }
    if !members.is_sorted_by(|a, b| a.order(b).is_lt()) {
        members.sort_by(Member::order);
        let repeated = members
            .iter()
            .zip(members.iter().skip(1))
            .any(|(a, b)| a.name == b.name);
        if repeated {
            return None;
        }
        let mut ordered = Vec::with_capacity(out.len() - first);
        for member in &members {
            ordered.extend_from_slice(out.get(member.written.clone())?);
        }
        out.truncate(first);
        out.append(&mut ordered);
    }
    if out.len() > first {
        out.pop();
    }
    out.push(b'}');
    Some(())
}

/// A member of an object that is being read.
struct Member<'a> {
    name: Cow<'a, str>,
    /// Where name and value stand, with the comma after them.
    written: Range<usize>,
}

impl Member<'_> {
    /// RFC 8785, 3.2.3: by UTF-16 code units, which differs from byte order beyond the basic plane.
    fn order(&self, other: &Self) -> Ordering {
        if self.name.is_ascii() && other.name.is_ascii() {
            return self.name.cmp(&other.name);
        }
        self.name.encode_utf16().cmp(other.name.encode_utf16())
    }
}

/// `serde_json` escapes exactly what RFC 8785, 3.2.2.2 asks for. Most strings hold nothing of that.
fn write_string(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if !text.bytes().all(plain) {
        return serde_json::to_writer(out, text).ok();
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Some(())
}

/// So many digits always survive the round trip through a double.
const SAFE_DIGITS: usize = 15;

fn write_number(digits: &str, out: &mut Vec<u8>) -> Option<()> {
    // A whole number that a double holds is its own shortest form: JSON allows no leading zeros, and a `-` makes this test fail.
    if digits.len() <= SAFE_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        out.extend_from_slice(digits.as_bytes());
        return Some(());
    }
    let double: f64 = digits.parse().ok()?;
    if double.is_finite() {
        let mut buffer = ryu_js::Buffer::new();
        let shortest = buffer.format_finite(double);
        if shortest == digits || Decimal::parse(shortest)? == Decimal::parse(digits)? {
            out.extend_from_slice(shortest.as_bytes());
            return Some(());
        }
    }
    out.extend_from_slice(Decimal::parse(digits)?.to_text().as_bytes());
    Some(())
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

    #[test]
    fn members_that_come_in_order_and_those_that_do_not_end_alike() {
        let ordered = r#"{"a":{"x":1,"y":[]},"b":"\\\"","c":{}}"#;
        assert_eq!(canonical(ordered).as_deref(), Some(ordered));
        let shuffled = r#"{"c":{},"b":"\\\"","a":{"y":[],"x":1}}"#;
        assert_eq!(canonical(shuffled).as_deref(), Some(ordered));
    }

    #[test]
    fn a_repeated_member_has_no_form_wherever_it_stands() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"b":1,"a":2,"b":3}"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_around_the_fast_path_are_their_own_form() {
        for digits in [
            "0",
            "7",
            "999999999999999",
            "1000000000000000",
            "9007199254740992",
        ] {
            assert_eq!(canonical(digits).as_deref(), Some(digits));
        }
        assert_eq!(
            canonical("-999999999999999").as_deref(),
            Some("-999999999999999")
        );
        assert_eq!(canonical("-0").as_deref(), Some("0"));
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
        fn arbitrary_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = canonicalize(&bytes);
        }
    }
}
