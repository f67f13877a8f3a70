//! Unpacks gzip data ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952)) of one member. Pure.

use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};

/// The largest content that is unpacked. An asynchronous invocation carries 1 MB at most, which
/// hostile data could unpack to 1 GB: more than the function's memory. Logs shrink to a tenth or a
/// twentieth, so that a real batch has room.
const MAX_UNPACKED: usize = 32 << 20;

/// Says why data can't be unpacked, without any of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GzipError {
    #[error("the data is not gzip")]
    NotGzip,
    #[error("the gzip data is cut off or damaged")]
    Damaged,
    #[error("the gzip data unpacks to more than 32 MiB")]
    TooLarge,
}

/// Unpacks one member. Its length and its checksum are compared.
pub(crate) fn unpack(data: &[u8]) -> Result<Vec<u8>, GzipError> {
    let deflated = after_header(data).ok_or(GzipError::NotGzip)?;
    let (deflated, trailer) = deflated.split_last_chunk::<8>().ok_or(GzipError::Damaged)?;
    let content =
        decompress_to_vec_with_limit(deflated, MAX_UNPACKED).map_err(|error| {
            match error.status {
                TINFLStatus::HasMoreOutput => GzipError::TooLarge,
                _ => GzipError::Damaged,
            }
        })?;
    let length = u32::try_from(content.len()).map_err(|_| GzipError::TooLarge)?;
    let expected = [crc32(&content).to_le_bytes(), length.to_le_bytes()].concat();
    (expected == trailer)
        .then_some(content)
        .ok_or(GzipError::Damaged)
}

/// Gives what follows the header and its optional fields.
fn after_header(data: &[u8]) -> Option<&[u8]> {
    let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, rest @ ..] = data else {
        return None;
    };
    let has = |bit: u8| flags & (1 << bit) != 0;
    let mut rest = rest;
    if has(2) {
        let (length, extra) = rest.split_first_chunk::<2>()?;
        rest = extra.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for text in [3, 4] {
        if has(text) {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = rest.get(end + 1..)?;
        }
    }
    if has(1) {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

/// Computes the checksum bit by bit: without a table, and fast enough for a batch of logs.
fn crc32(content: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut crc = u32::MAX;
    for byte in content {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Packs a content, with these flags and optional fields.
#[cfg(test)]
pub(crate) fn packed(flags: u8, fields: &[u8], content: &[u8]) -> Vec<u8> {
    let header = [0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3];
    let length = u32::try_from(content.len()).unwrap();
    [
        &header,
        fields,
        &miniz_oxide::deflate::compress_to_vec(content, 6),
        &crc32(content).to_le_bytes(),
        &length.to_le_bytes(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn content_is_unpacked_whatever_the_header_has() {
        // As `printf hello | gzip -n` writes it.
        let written = data_encoding::BASE64.decode(b"H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA==");
        assert_eq!(unpack(&written.unwrap()), Ok(b"hello".to_vec()));
        for (flags, fields) in [
            (0, b"".as_slice()),
            (1 << 2, b"\x03\0abc"),
            (1 << 3, b"name\0"),
            (1 << 4, b"\0"),
            (1 << 1, b"\x01\x02"),
            (0b1_1110, b"\0\0name\0comment\0\x01\x02"),
        ] {
            assert_eq!(
                unpack(&packed(flags, fields, b"hello")),
                Ok(b"hello".to_vec())
            );
        }
    }

    #[test]
    fn what_is_not_whole_is_an_error() {
        let whole = packed(0, b"", b"hello, hello, hello");
        for length in 0..whole.len() {
            assert!(unpack(&whole[..length]).is_err(), "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            // Time and system are no part of the content.
            let is_free = (4..10).contains(&place) || place == 3;
            assert!(is_free || unpack(&damaged).is_err(), "{place}");
        }
        assert_eq!(unpack(b"{}"), Err(GzipError::NotGzip));
        assert_eq!(
            unpack(&packed(1 << 3, b"", b"\x01")[..12]),
            Err(GzipError::NotGzip)
        );
    }

    #[test]
    fn what_would_fill_the_memory_is_an_error() {
        let bomb = packed(0, b"", &vec![0; MAX_UNPACKED + 1]);
        assert!(bomb.len() < 64 << 10);
        assert_eq!(unpack(&bomb), Err(GzipError::TooLarge));
    }
}
