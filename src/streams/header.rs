//! Decodes the value of a header that a source writes as a list of numbers. Pure.

use data_encoding::BASE64;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// The bytes of a header. Java's bytes are signed, so 200 and -56 are the same byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderBytes(Option<Vec<u8>>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Numbers(Vec<i64>),
    Other(IgnoredAny),
}

impl HeaderBytes {
    /// Gives the bytes; `None` where the value is null or is no list of bytes.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// Gives the value as text, or in Base64 where it is not UTF-8.
    pub(crate) fn text(&self) -> Option<String> {
        self.bytes().map(text)
    }
}

impl<'de> Deserialize<'de> for HeaderBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match Written::deserialize(deserializer)? {
            Written::Numbers(numbers) => numbers.into_iter().map(byte).collect(),
            Written::Other(_) => None,
        };
        Ok(Self(bytes))
    }
}

fn byte(number: i64) -> Option<u8> {
    let signed = || i8::try_from(number).map(i8::cast_unsigned);
    u8::try_from(number).or_else(|_| signed()).ok()
}

/// Gives bytes as text, or in Base64 where they are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => BASE64.encode(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> HeaderBytes {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn signed_and_unsigned_numbers_are_the_same_bytes() {
        assert_eq!(read("[-56, -1, 0, 127]"), read("[200, 255, 0, 127]"));
        assert_eq!(read("[-56]").bytes(), Some([200].as_slice()));
        assert_eq!(read("[195, -68]").text().as_deref(), Some("ü"));
        assert_eq!(read("[-56]").text().as_deref(), Some("yA=="));
        assert_eq!(read("[]").text().as_deref(), Some(""));
    }

    #[test]
    fn what_is_no_list_of_bytes_is_no_value() {
        for other in ["null", "[256]", "[-129]", "[1.5]", r#""dGV4dA==""#, "{}"] {
            assert_eq!(read(other).text(), None, "{other}");
        }
    }
}
