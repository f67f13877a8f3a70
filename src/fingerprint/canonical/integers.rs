//! The canonical form of documents whose numbers are all integers of 64 bits: most of them, and several times faster.
//!
//! `serde_json` hands an integer on exactly, but a fraction as the double nearest to it, its digits lost. So a document with
//! one fraction, or anything else out of the ordinary, is left to the exact reader, which agrees with this one on the rest.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{canonical_number, sort_and_check, write_string};

/// Every integer up to here is a double, and is written as its digits.
const LARGEST_PLAIN: u64 = 1 << 53;

/// What `serde_json` hands on instead of a number, where some crate of the build has switched on `arbitrary_precision`.
const NUMBER_IN_DISGUISE: &str = "$serde_json::private::Number";

/// The canonical form; `None` where the exact reader has to decide.
pub(super) fn canonicalize(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut reader = serde_json::Deserializer::from_slice(text);
    Value(&mut out).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(out)
}

/// Writes the value that comes next.
struct Value<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON whose numbers are integers")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.extend_from_slice(b"null");
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0
            .extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        write_string(text, self.0).ok_or_else(|| E::custom("a string that can't be written"))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        let digits = number.to_string();
        let form = if number <= LARGEST_PLAIN {
            Some(digits)
        } else {
            canonical_number(&digits)
        };
        let form = form.ok_or_else(|| E::custom("a number without a form"))?;
        self.0.extend_from_slice(form.as_bytes());
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        let digits = number.to_string();
        let form = if number.unsigned_abs() <= LARGEST_PLAIN {
            Some(digits)
        } else {
            canonical_number(&digits)
        };
        let form = form.ok_or_else(|| E::custom("a number without a form"))?;
        self.0.extend_from_slice(form.as_bytes());
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Err(E::custom("a fraction, whose digits are lost here"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let start = self.0.len();
        loop {
            let before = self.0.len();
            if before > start {
                self.0.push(b',');
            }
            if items.next_element_seed(Value(self.0))?.is_none() {
                self.0.truncate(before);
                break;
            }
        }
        self.0.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let start = self.0.len();
        let mut ranges: Vec<(String, Range<usize>)> = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == NUMBER_IN_DISGUISE {
                return Err(A::Error::custom(
                    "a number, whose digits only the exact reader sees",
                ));
            }
            let from = self.0.len();
            members.next_value_seed(Value(self.0))?;
            ranges.push((name, from..self.0.len()));
        }
        let lost = || A::Error::custom("a member that can't be written");
        sort_and_check(&mut ranges).ok_or_else(lost)?;
        let values = self.0.split_off(start);
        self.0.push(b'{');
        for (position, (name, range)) in ranges.into_iter().enumerate() {
            if position > 0 {
                self.0.push(b',');
            }
            write_string(&name, self.0).ok_or_else(lost)?;
            self.0.push(b':');
            let value = values
                .get(range.start - start..range.end - start)
                .ok_or_else(lost)?;
            self.0.extend_from_slice(value);
        }
        self.0.push(b'}');
        Ok(())
    }
}
