//! Compresses outcomes over the inline limit, and binds them to their content by a hash. The
//! functions are pure.

use std::fmt;

use data_encoding::HEXLOWER;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use sha2::{Digest, Sha256};

use crate::protocol::clock::EpochSeconds;
use crate::protocol::key::RecordId;
use crate::protocol::owner::Owner;

/// The fastest level: a higher one takes five times as long or more, for a tenth less.
/// docs/internals/protocol.md has the figures.
const LEVEL: u8 = 1;

/// A compressed outcome, as its record describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackedOutcome {
    /// SHA-256 of the outcome's JSON text, in 64 lower-case hex digits.
    pub sha256: String,
    /// The number of bytes of the text.
    pub bytes: u64,
    /// The place of the compressed text.
    pub place: Place,
}

/// The place where a compressed outcome is kept: raw DEFLATE (RFC 1951) of its JSON text.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The record itself.
    Record(Vec<u8>),
    /// Its own entry in the same store, bound to this owner.
    Entry(Owner),
    /// Its own object, in a bucket, bound to this owner.
    Object(Owner),
}

/// Shows no content: it may hold anything.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(content) => write!(f, "Record({} bytes)", content.len()),
            Self::Entry(owner) => f.debug_tuple("Entry").field(owner).finish(),
            Self::Object(owner) => f.debug_tuple("Object").field(owner).finish(),
        }
    }
}

/// A compressed outcome, to be kept beside its record.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LargeOutcome {
    /// The record whose outcome it is.
    pub id: RecordId,
    /// The owner that will complete the record with it. No other attempt writes under the same
    /// name.
    pub owner: Owner,
    /// The compressed text.
    pub content: Vec<u8>,
    /// The time from which a sweep may delete it; later than the record.
    pub expiration: EpochSeconds,
}

impl fmt::Debug for LargeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LargeOutcome")
            .field("id", &self.id)
            .field("owner", &self.owner)
            .field("bytes", &self.content.len())
            .finish_non_exhaustive()
    }
}

impl PackedOutcome {
    /// Compresses a text. The first part of the result makes the outcome, once its place is known.
    pub(crate) fn pack(text: &str) -> (impl FnOnce(Place) -> Self + use<>, Vec<u8>) {
        let sha256 = digest(text.as_bytes());
        let bytes = text.len() as u64;
        let packed = move |place| Self {
            sha256,
            bytes,
            place,
        };
        (packed, compress_to_vec(text.as_bytes(), LEVEL))
    }

    /// Estimates how many bytes it takes in memory.
    pub(crate) fn size(&self) -> usize {
        let place = match &self.place {
            Place::Record(content) => content.len(),
            Place::Entry(owner) | Place::Object(owner) => owner.as_str().len(),
        };
        self.sha256.len() + place
    }

    /// Decompresses the text; `None` where the content isn't what was packed.
    #[doc(hidden)]
    pub fn unpack(&self, content: &[u8]) -> Option<String> {
        let limit = usize::try_from(self.bytes).ok()?;
        let text = decompress_to_vec_with_limit(content, limit).ok()?;
        if digest(&text) != self.sha256 {
            return None;
        }
        String::from_utf8(text).ok()
    }
}

fn digest(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(text: &str) -> (PackedOutcome, Vec<u8>) {
        let (packed, content) = PackedOutcome::pack(text);
        (packed(Place::Record(Vec::new())), content)
    }

    #[test]
    fn json_becomes_much_smaller() {
        let line =
            r#"{"order_id": "A-17", "status": "created", "amount": 1250, "currency": "EUR"}"#;
        let (packed, content) = packed(&line.repeat(1_000));
        assert_eq!(packed.bytes, 76_000);
        assert!(content.len() < 2_000, "{}", content.len());
    }

    #[test]
    fn in_memory_an_outcome_takes_its_digest_and_what_tells_its_place() {
        let size = |place| {
            PackedOutcome {
                sha256: "x".repeat(64),
                bytes: 1_000,
                place,
            }
            .size()
        };
        let owner = || Owner::from_stored("12345");
        assert_eq!(size(Place::Record(vec![0; 7])), 64 + 7);
        assert_eq!(size(Place::Entry(owner())), 64 + 5);
        assert_eq!(size(Place::Object(owner())), 64 + 5);
    }

    #[test]
    fn content_that_was_changed_cut_or_exchanged_is_not_taken() {
        let (outcome, content) = packed(&"\"receipt\"".repeat(50));
        let (_, other) = packed(&"\"another\"".repeat(50));
        let mut flipped = content.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let cut = &content[..content.len() - 1];
        let longer = packed(&"\"receipt\"".repeat(51)).1;
        for bad in [&flipped, cut, &other, &longer, &[]] {
            assert_eq!(outcome.unpack(bad), None);
        }
        assert!(outcome.unpack(&content).is_some());
    }

    #[test]
    fn debug_shows_no_content() {
        let (packed, content) = PackedOutcome::pack("\"secret\"");
        let shown = format!("{:?}", packed(Place::Record(content)));
        assert!(shown.contains("bytes)"), "{shown}");
        assert!(!shown.contains('['), "{shown}");
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in ".{0,2000}") {
            let (outcome, content) = packed(&text);
            prop_assert_eq!(outcome.unpack(&content), Some(text));
        }
    }
}
