//! Hashes length-prefixed parts with SHA-256: no delimiter inside one part can imitate another
//! split.

use std::fmt;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// The 64 lower-case hex digits of a SHA-256.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hex([u8; 64]);

impl Hex {
    pub(crate) fn as_str(&self) -> &str {
        // Hex digits are always text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the digits of a digest; `None` of any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits: [u8; 64] = text.as_bytes().try_into().ok()?;
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        text.bytes().all(is_digit).then_some(Self(digits))
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Hashes `parts` under `domain`, each preceded by its length as 8 big-endian bytes.
///
/// The domain keeps digests that serve different purposes apart, even over equal parts.
pub(crate) fn digest<'a>(domain: &'a str, parts: impl IntoIterator<Item = &'a [u8]>) -> Hex {
    let mut hasher = Sha256::new();
    for part in std::iter::once(domain.as_bytes()).chain(parts) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let mut digits = [0; 64];
    HEXLOWER.encode_mut(&hasher.finalize(), &mut digits);
    Hex(digits)
}

#[cfg(test)]
mod tests {
    use super::{Hex, digest};

    #[test]
    fn a_delimiter_cannot_move_a_boundary() {
        let one: [&[u8]; 2] = [b"a#b", b"c"];
        let other: [&[u8]; 2] = [b"a", b"b#c"];
        assert!(digest("d", one) != digest("d", other));
    }

    #[test]
    fn the_digits_of_a_digest_are_read_and_no_other_text() {
        let own = digest("d", []);
        assert!(Hex::parse(own.as_str()) == Some(own));
        for other in ["0f", &"0".repeat(63), &"0F".repeat(32), &"g".repeat(64)] {
            assert!(Hex::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_domain_separates_equal_parts() {
        let parts: [&[u8]; 1] = [b"a"];
        assert!(digest("key", parts) != digest("fingerprint", parts));
    }
}
