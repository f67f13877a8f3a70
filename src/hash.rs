//! SHA-256 over length-prefixed parts: no choice of delimiters inside one part can imitate another split.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Hashes `parts` under `domain`, each preceded by its length as 8 big-endian bytes; 64 lower-case hex digits.
///
/// The domain keeps digests that serve different purposes apart, even over equal parts.
pub(crate) fn digest<'a>(domain: &'a str, parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in std::iter::once(domain.as_bytes()).chain(parts) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    HEXLOWER.encode(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn a_delimiter_cannot_move_a_boundary() {
        let one: [&[u8]; 2] = [b"a#b", b"c"];
        let other: [&[u8]; 2] = [b"a", b"b#c"];
        assert_ne!(digest("d", one), digest("d", other));
    }

    #[test]
    fn the_domain_separates_equal_parts() {
        let parts: [&[u8]; 1] = [b"a"];
        assert_ne!(digest("key", parts), digest("fingerprint", parts));
    }
}
