//! Decodes the Base64 text that a source carries bytes in. Pure.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer};

use crate::batch::BodyError;

/// The bytes of a record, or why there are none. A text that isn't Base64 is an error of its record
/// alone, not of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Data(Result<Vec<u8>, BodyError>);

impl Data {
    /// Decodes a text; `None` is a record without data.
    pub(crate) fn of(text: Option<&str>) -> Self {
        const NOT_BASE64: BodyError = BodyError::new("the data is not Base64");
        let text = text.ok_or(BodyError::MISSING);
        Self(text.and_then(|text| BASE64.decode(text.as_bytes()).map_err(|_| NOT_BASE64)))
    }

    /// Holds bytes that were decoded, or says why they can't be.
    pub(crate) fn decoded(bytes: Result<&[u8], BodyError>) -> Self {
        Self(bytes.map(<[u8]>::to_vec))
    }

    pub(crate) fn bytes(&self) -> Result<&[u8], BodyError> {
        self.0.as_deref().map_err(|error| *error)
    }
}

impl Default for Data {
    fn default() -> Self {
        Self(Err(BodyError::MISSING))
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<String>::deserialize(deserializer).map(|text| Self::of(text.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Data {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn base64_is_decoded_and_anything_else_is_an_error_of_its_record() {
        assert_eq!(read(r#""aGVsbG8=""#).bytes(), Ok(b"hello".as_slice()));
        assert_eq!(read(r#""""#).bytes(), Ok([].as_slice()));
        assert_eq!(read("null").bytes(), Err(BodyError::MISSING));
        let said = read(r#""%%%""#).bytes().unwrap_err().to_string();
        assert_eq!(said, "the data is not Base64");
    }
}
