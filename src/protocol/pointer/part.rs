//! Takes one part of a JSON value.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Takes the part of a JSON text that has this name: a member's, or an item's index. Nothing else is
/// kept.
pub(super) fn named<'a>(name: &str, json: &'a str) -> Option<&'a str> {
    let mut json = serde_json::Deserializer::from_str(json);
    let found = json.deserialize_any(Part(name)).ok()?;
    json.end().ok()?;
    found.map(RawValue::get)
}

struct Part<'a>(&'a str);

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Name(name)) = members.next_key()? {
            if name == self.0.as_bytes() {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut left = index(self.0);
        let mut found = None;
        while let Some(item) = items.next_element()? {
            if left == Some(0) {
                found = Some(item);
            }
            left = left.and_then(|left| left.checked_sub(1));
        }
        Ok(found)
    }
}

/// The name of a member, unescaped. As bytes it may have half of a surrogate pair.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, [u8]>);

/// Parses an index (RFC 6901, 4): digits, without a sign or a leading zero.
fn index(name: &str) -> Option<usize> {
    let index: usize = name.parse().ok()?;
    (index.to_string() == name).then_some(index)
}
