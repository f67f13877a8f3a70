//! RFC 8785 canonical JSON, except that numbers which a double can't hold keep their exact digits.
//!
//! The RFC writes every number as the shortest form of a double, so 2^53 and 2^53 + 1 would meet. Here a number whose
//! decimal value survives the round trip through a double is written as the RFC says, and any other as its own digits. Both
//! forms state their value exactly, so two numbers share a form only if they are equal.

use std::cmp::Ordering;
use std::ops::Range;

use jiter::{Jiter, Peek};

use self::number::write_number;
use super::pointer::{JsonPointer, below, is_target};

mod number;
#[cfg(test)]
mod tests;

/// Deeper documents are not canonicalised. `serde_json` refuses them too.
const MAX_DEPTH: usize = 128;

/// The canonical form; `None` for what is not I-JSON, is nested deeper than 128 levels, or holds a whole part of over 4,300
/// digits.
pub(super) fn canonicalize(text: &[u8]) -> Option<Vec<u8>> {
    canonicalize_without(text, &[])
}

/// The canonical form of what is left when these fields are taken away.
pub(super) fn canonicalize_without(text: &[u8], left_out: &[JsonPointer]) -> Option<Vec<u8>> {
    let mut reader = Jiter::new(text);
    let mut canonical = Vec::with_capacity(text.len());
    let left_out: Vec<&[String]> = left_out.iter().map(JsonPointer::tokens).collect();
    let first = reader.peek().ok()?;
    read_value(&mut reader, first, &mut canonical, 0, &left_out)?;
    reader.finish().ok()?;
    Some(canonical)
}

fn read_value(
    reader: &mut Jiter<'_>,
    first: Peek,
    out: &mut Vec<u8>,
    depth: usize,
    left_out: &[&[String]],
) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match first {
        Peek::Null => {
            reader.known_null().ok()?;
            out.extend_from_slice(b"null");
        }
        Peek::True | Peek::False => {
            let value = reader.known_bool(first).ok()?;
            out.extend_from_slice(if value { b"true" } else { b"false" });
        }
        Peek::String => write_string(reader.known_str().ok()?, out)?,
        Peek::Array => read_array(reader, out, depth, left_out)?,
        Peek::Object => read_object(reader, out, depth, left_out)?,
        _ => {
            let digits = reader.known_number_bytes(first).ok()?;
            write_number(std::str::from_utf8(digits).ok()?, out)?;
        }
    }
    Some(())
}

fn read_array(
    reader: &mut Jiter<'_>,
    out: &mut Vec<u8>,
    depth: usize,
    left_out: &[&[String]],
) -> Option<()> {
    out.push(b'[');
    let first = out.len();
    let mut element = reader.known_array().ok()?;
    for index in 0_usize.. {
        let Some(peek) = element else { break };
        let below = below(left_out, || index.to_string());
        let start = out.len();
        read_value(reader, peek, out, depth + 1, &below)?;
        out.push(b',');
        if is_target(&below) {
            out.truncate(start);
        }
        element = reader.array_step().ok()?;
    }
    close(out, first, b']');
    Some(())
}

/// Members are written as they come, each with a comma after it, and put into their order at the end: objects whose members
/// are in order already are never copied.
fn read_object(
    reader: &mut Jiter<'_>,
    out: &mut Vec<u8>,
    depth: usize,
    left_out: &[&[String]],
) -> Option<()> {
    out.push(b'{');
    let first = out.len();
    let mut members: Vec<Member> = Vec::new();
    let mut next = reader.known_object().ok()?;
    while let Some(name) = next {
        let start = out.len();
        write_string(name, out)?;
        let below = below(left_out, || name.to_owned());
        let leaves_out = !left_out.is_empty();
        let name = Name::of(name, start + 1..out.len() - 1, leaves_out);
        out.push(b':');
        let value = reader.peek().ok()?;
        read_value(reader, value, out, depth + 1, &below)?;
        out.push(b',');
        if is_target(&below) {
            // It counts when repeated names are looked for, and is written nowhere.
            out.truncate(start);
        }
        let written = start..out.len();
        members.push(Member { name, written });
        next = reader.next_key().ok()?;
    }
    if !members.is_sorted_by(|a, b| a.name.order(&b.name, out).is_lt()) {
        members.sort_by(|a, b| a.name.order(&b.name, out));
        let mut pairs = members.iter().zip(members.iter().skip(1));
        if pairs.any(|(a, b)| a.name.order(&b.name, out).is_eq()) {
            return None;
        }
        let mut ordered = Vec::with_capacity(out.len() - first);
        for member in &members {
            ordered.extend_from_slice(out.get(member.written.clone())?);
        }
        out.truncate(first);
        out.append(&mut ordered);
    }
    close(out, first, b'}');
    Some(())
}

/// In place of the comma after the last of what was written since `first`.
fn close(out: &mut Vec<u8>, first: usize, bracket: u8) {
    if out.len() > first {
        out.pop();
    }
    out.push(bracket);
}

/// A member of an object that is being read.
struct Member {
    name: Name,
    /// Where name and value stand, with the comma after them.
    written: Range<usize>,
}

/// The name of a member.
enum Name {
    /// Of ASCII characters that need no escape, as most names are: where it stands in what was written, and how it begins,
    /// which is mostly enough to compare it by.
    Plain(u64, Range<usize>),
    Kept(String),
}

impl Name {
    /// `written` is where it stands, which may be taken away again where something `leaves_out` members.
    fn of(name: &str, written: Range<usize>, leaves_out: bool) -> Self {
        // An escape would have made it longer.
        if name.is_ascii() && name.len() == written.len() && !leaves_out {
            Self::Plain(beginning(name), written)
        } else {
            Self::Kept(name.to_owned())
        }
    }

    fn text<'a>(&'a self, out: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Plain(_, written) => out.get(written.clone()).unwrap_or_default(),
            Self::Kept(name) => name.as_bytes(),
        }
    }

    /// RFC 8785, 3.2.3: by UTF-16 code units, which differs from byte order beyond the basic plane.
    fn order(&self, other: &Self, out: &[u8]) -> Ordering {
        if let (Self::Plain(one, _), Self::Plain(two, _)) = (self, other) {
            let texts = || self.text(out).cmp(other.text(out));
            return one.cmp(two).then_with(texts);
        }
        let one = String::from_utf8_lossy(self.text(out));
        let two = String::from_utf8_lossy(other.text(out));
        one.encode_utf16().cmp(two.encode_utf16())
    }
}

/// The first eight bytes, so that numbers compare as texts do. A shorter one is filled up with zeros, which no plain name holds.
fn beginning(name: &str) -> u64 {
    let mut bytes = [0; 8];
    for (byte, first) in bytes.iter_mut().zip(name.bytes()) {
        *byte = first;
    }
    u64::from_be_bytes(bytes)
}

/// `serde_json` escapes exactly what RFC 8785, 3.2.2.2 asks for. Most strings hold nothing of that.
fn write_string(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    // All bytes, without a way out half-way: so the compiler looks at many at a time.
    if !text.bytes().fold(true, |all, byte| all & plain(byte)) {
        return serde_json::to_writer(out, text).ok();
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Some(())
}
