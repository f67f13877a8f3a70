//! Canonical JSON follows RFC 8785, except that numbers which a double can't hold keep their exact
//! digits.
//!
//! The RFC writes every number as the shortest form of a double, so 2^53 and 2^53 + 1 would meet.
//! Here a number whose decimal value survives the round trip through a double is written as the RFC
//! says, and any other as its own digits. Both forms state their value exactly, so two numbers
//! share a form only if they are equal.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use hifijson::num::LexWrite as _;
use hifijson::str::LexAlloc as _;
use hifijson::token::Lex as _;
use hifijson::{Expect, Read as _, SliceLexer, Write as _};

use crate::protocol::pointer::{Pointer, below, is_target};

#[cfg(test)]
mod tests;

/// Deeper documents are not canonicalised. `serde_json` refuses them too.
const MAX_DEPTH: usize = 128;

/// Documents with more values are not canonicalised: sorting hundreds of thousands of members would
/// take most of a second before the claim. Neither white space nor the order of members changes the
/// count: two copies of a document fare alike.
pub(super) const MAX_VALUES: usize = 50_000;

/// Writes the canonical form of what is left when these fields are taken away; `None` for what is
/// not I-JSON, is nested deeper than 128 levels, or has more than
/// 50,000 values.
pub(super) fn canonicalize(text: &[u8], left_out: &[Pointer]) -> Option<Vec<u8>> {
    // Checked at once, so that no string is checked by itself.
    std::str::from_utf8(text).ok()?;
    let left_out: Vec<&[String]> = left_out.iter().map(Pointer::names).collect();
    let mut writer = Writer {
        out: Vec::with_capacity(text.len()),
        members: Vec::with_capacity(USUAL_MEMBERS),
        values_left: MAX_VALUES,
    };
    SliceLexer::new(text)
        .exactly_one(SliceLexer::ws_peek, |first, lexer| {
            writer.value(first, lexer, 0, &left_out)
        })
        .ok()?;
    Some(writer.out)
}

/// Most documents have no more in the objects that are open at one time.
const USUAL_MEMBERS: usize = 12;

/// The text has no canonical form.
struct NoForm;

impl From<Expect> for NoForm {
    fn from(_: Expect) -> Self {
        Self
    }
}

/// The text that is being written.
struct Writer<'a> {
    out: Vec<u8>,
    /// The members of all objects that are open, the outermost first.
    members: Vec<Member<'a>>,
    /// The number of values that may still come.
    values_left: usize,
}

impl<'a> Writer<'a> {
    fn value(
        &mut self,
        first: u8,
        lexer: &mut SliceLexer<'a>,
        depth: usize,
        left_out: &[&[String]],
    ) -> Result<(), NoForm> {
        if depth > MAX_DEPTH {
            return Err(NoForm);
        }
        self.values_left = self.values_left.checked_sub(1).ok_or(NoForm)?;
        match first {
            b'{' => self.object(lexer.discarded(), depth, left_out),
            b'[' => self.array(lexer.discarded(), depth, left_out),
            b'"' => {
                let text = read_string(lexer.discarded())?;
                write_string(&text, &mut self.out)
            }
            b'-' | b'0'..=b'9' => {
                let (digits, _) = lexer.num_bytes().validated().map_err(|_| NoForm)?;
                write_number(digits, &mut self.out).ok_or(NoForm)
            }
            _ => {
                let word: &[u8] = match lexer.null_or_bool().ok_or(NoForm)? {
                    None => b"null",
                    Some(true) => b"true",
                    Some(false) => b"false",
                };
                self.out.extend_from_slice(word);
                Ok(())
            }
        }
    }

    fn array(
        &mut self,
        lexer: &mut SliceLexer<'a>,
        depth: usize,
        left_out: &[&[String]],
    ) -> Result<(), NoForm> {
        self.out.push(b'[');
        let start = self.out.len();
        let mut index = 0_usize;
        lexer.seq(b']', SliceLexer::ws_peek, |next, lexer| {
            let below = below(left_out, || index.to_string());
            let before = self.out.len();
            self.value(next, lexer, depth + 1, &below)?;
            self.out.push(b',');
            if is_target(&below) {
                self.out.truncate(before);
            }
            index += 1;
            Ok::<_, NoForm>(())
        })?;
        self.close(start, b']');
        Ok(())
    }

    /// Members are written as they come, each with a comma after it, and put into their order at
    /// the end: objects whose members are in order already are never copied.
    fn object(
        &mut self,
        lexer: &mut SliceLexer<'a>,
        depth: usize,
        left_out: &[&[String]],
    ) -> Result<(), NoForm> {
        self.out.push(b'{');
        let (start, first) = (self.out.len(), self.members.len());
        lexer.seq(b'}', SliceLexer::ws_peek, |next, lexer| {
            self.member(next, lexer, depth, left_out)
        })?;
        self.sort(start, first)?;
        self.members.truncate(first);
        self.close(start, b'}');
        Ok(())
    }

    fn member(
        &mut self,
        next: u8,
        lexer: &mut SliceLexer<'a>,
        depth: usize,
        left_out: &[&[String]],
    ) -> Result<(), NoForm> {
        lexer.expect(|_| Some(next), b'"').ok_or(NoForm)?;
        let name = read_string(lexer)?;
        let below = below(left_out, || String::from_utf8_lossy(&name).into_owned());
        let start = self.out.len();
        write_string(&name, &mut self.out)?;
        self.out.push(b':');
        lexer.expect(SliceLexer::ws_peek, b':').ok_or(NoForm)?;
        let next = lexer.ws_peek().ok_or(NoForm)?;
        self.value(next, lexer, depth + 1, &below)?;
        self.out.push(b',');
        if is_target(&below) {
            // It counts when repeated names are looked for, and is written nowhere.
            self.out.truncate(start);
        }
        let written = start..self.out.len();
        self.members.push(Member::new(name, written));
        Ok(())
    }

    /// Puts the members of the innermost object, from `first` on, into their order; their text
    /// begins at `start`. No name may come twice.
    fn sort(&mut self, start: usize, first: usize) -> Result<(), NoForm> {
        let members = self.members.get_mut(first..).ok_or(NoForm)?;
        if members.is_sorted_by(|a, b| a.order(b).is_lt()) {
            return Ok(());
        }
        members.sort_unstable_by(Member::order);
        if !members.is_sorted_by(|a, b| a.order(b).is_lt()) {
            return Err(NoForm);
        }
        let end = self.out.len();
        self.out.reserve(end - start);
        for member in members {
            self.out.extend_from_within(member.written.clone());
        }
        self.out.drain(start..end);
        Ok(())
    }

    /// Closes an array or object that began at `start`: the bracket replaces the last comma.
    fn close(&mut self, start: usize, bracket: u8) {
        if self.out.len() > start {
            self.out.pop();
        }
        self.out.push(bracket);
    }
}

/// A member of an object that is being read.
struct Member<'a> {
    name: Text<'a>,
    /// The beginning of the name, which is mostly enough to compare it by.
    beginning: u64,
    /// The range of name and value, with the comma after them.
    written: Range<usize>,
}

impl<'a> Member<'a> {
    fn new(name: Text<'a>, written: Range<usize>) -> Self {
        Self {
            beginning: beginning(&name),
            name,
            written,
        }
    }

    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// Compares two names by UTF-16 code units (RFC 8785, 3.2.3), which differs from byte order
    /// beyond the BMP.
    fn order(&self, other: &Self) -> Ordering {
        const NOT_ASCII: u64 = 0x8080_8080_8080_8080;
        let (one, two) = (self.beginning, other.beginning);
        if one != two && (one | two) & NOT_ASCII == 0 {
            return one.cmp(&two);
        }
        let (one, two) = (self.text(), other.text());
        one.encode_utf16().cmp(two.encode_utf16())
    }
}

/// Returns the first eight bytes, so that numbers compare as texts do. A shorter name is filled up
/// with zeros; the whole names are compared where that leaves them equal.
fn beginning(name: &[u8]) -> u64 {
    if let Some(first) = name.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0; 8];
    for (byte, first) in bytes.iter_mut().zip(name) {
        *byte = *first;
    }
    u64::from_be_bytes(bytes)
}

/// A string's UTF-8: borrowed, where it came without an escape.
type Text<'a> = Cow<'a, [u8]>;

/// Reads a string after its first quote. Most have no escape, and are found by their end alone.
fn read_string<'a>(lexer: &mut SliceLexer<'a>) -> Result<Text<'a>, NoForm> {
    let begin = lexer.as_slice();
    let mut plain: &[u8] = &[];
    lexer.write_until(&mut plain, |byte| matches!(byte, b'"' | b'\\' | 0..b' '));
    if lexer.take_next() == Some(b'"') {
        return Ok(Cow::Borrowed(plain));
    }
    *lexer = SliceLexer::new(begin);
    let text = lexer.str_string().map_err(|_| NoForm)?;
    Ok(Cow::Owned(text.into_owned().into_bytes()))
}

/// Writes a string (RFC 8785, 3.2.2.2). A string that came without an escape needs none: what must
/// have one can't come without.
fn write_string(text: &Text<'_>, out: &mut Vec<u8>) -> Result<(), NoForm> {
    match text {
        Cow::Borrowed(plain) => {
            out.push(b'"');
            out.extend_from_slice(plain);
            out.push(b'"');
            Ok(())
        }
        Cow::Owned(text) => {
            let text = std::str::from_utf8(text).map_err(|_| NoForm)?;
            // `serde_json` escapes exactly what the RFC asks for.
            serde_json::to_writer(out, text).map_err(|_| NoForm)
        }
    }
}

/// The number of digits that always survive the round trip through a double.
const SAFE_DIGITS: usize = 15;

fn write_number(digits: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // A whole number that a double holds is its own shortest form: JSON allows no leading zeros,
    // and a `-` makes this test fail.
    if digits.len() <= SAFE_DIGITS && digits.iter().all(u8::is_ascii_digit) {
        out.extend_from_slice(digits);
        return Some(());
    }
    let digits = std::str::from_utf8(digits).ok()?;
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

/// A decimal number has one form per value: digits without zeros at either end, times a power of
/// ten.
#[derive(Default, PartialEq, Eq)]
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
            return Some(Self::default());
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
