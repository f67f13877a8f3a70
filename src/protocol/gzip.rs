//! Unpacks gzip data ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952)) of one member, and data of
//! the coding `deflate`. Pure.

use std::sync::LazyLock;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

/// Says why data can't be unpacked, without any of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GzipError {
    #[error("the data is not gzip")]
    NotGzip,
    #[error("the gzip data is cut off or damaged")]
    Damaged,
    #[error("the gzip data unpacks to more than {} MiB", .0 >> 20)]
    TooLarge(usize),
}

/// Unpacks one member of at most `limit` bytes. Its length and its checksum are compared.
pub(crate) fn unpack(data: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    let deflated = after_header(data).ok_or(GzipError::NotGzip)?;
    let (deflated, trailer) = deflated.split_last_chunk::<8>().ok_or(GzipError::Damaged)?;
    let content = inflate(deflated, limit, 0)?;
    let length = u32::try_from(content.len()).map_err(|_| GzipError::TooLarge(limit))?;
    let expected = [crc32(&content).to_le_bytes(), length.to_le_bytes()].concat();
    (expected == trailer)
        .then_some(content)
        .ok_or(GzipError::Damaged)
}

/// Unpacks what the content coding `deflate` names (RFC 9110, 8.4.1.2): the zlib format, or the bare
/// stream that some clients send.
#[cfg(feature = "http")]
pub(crate) fn unpack_deflate(data: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    match inflate(data, limit, inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER) {
        Err(GzipError::Damaged) => inflate(data, limit, 0),
        zlib => zlib,
    }
}

/// Inflates data that ends where its stream does: what follows would be content to some readers, and
/// nothing to others.
fn inflate(data: &[u8], limit: usize, flags: u32) -> Result<Vec<u8>, GzipError> {
    let flags = flags | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut decompressor = Box::<DecompressorOxide>::default();
    let mut content = vec![0; data.len().saturating_mul(2).min(limit)];
    let (mut read, mut written) = (0, 0);
    loop {
        let rest = data.get(read..).unwrap_or_default();
        let progress = decompress(&mut decompressor, rest, &mut content, written, flags);
        let (status, more_read, more_written) = progress;
        read += more_read;
        written += more_written;
        match status {
            TINFLStatus::Done if read == data.len() => {
                content.truncate(written);
                return Ok(content);
            }
            TINFLStatus::HasMoreOutput if content.len() < limit => {
                let larger = content.len().saturating_mul(2).min(limit);
                content.resize(larger, 0);
            }
            TINFLStatus::HasMoreOutput => return Err(GzipError::TooLarge(limit)),
            _ => return Err(GzipError::Damaged),
        }
    }
}

/// Returns what follows the header and its optional fields.
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

/// Computes the checksum, a byte at a time. The decompressor computes that of zlib alone.
fn crc32(content: &[u8]) -> u32 {
    static TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| {
        let mut byte = 0..;
        std::array::from_fn(|_| (0..8).fold(byte.next().unwrap_or(0), |crc, _| next_bit(crc)))
    });
    let table = &*TABLE;
    let crc = content.iter().fold(u32::MAX, |crc, byte| {
        let [lowest, ..] = crc.to_le_bytes();
        let of_byte = table.get(usize::from(lowest ^ byte));
        crc >> 8 ^ of_byte.copied().unwrap_or_default()
    });
    !crc
}

fn next_bit(crc: u32) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg())
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

    const LIMIT: usize = 1 << 20;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn content_is_unpacked_whatever_the_header_has() {
        // As `printf hello | gzip -n` writes it.
        let written = data_encoding::BASE64.decode(b"H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA==");
        assert_eq!(unpack(&written.unwrap(), LIMIT), Ok(b"hello".to_vec()));
        for (flags, fields) in [
            (0, b"".as_slice()),
            (1 << 2, b"\x03\0abc"),
            (1 << 3, b"name\0"),
            (1 << 4, b"\0"),
            (1 << 1, b"\x01\x02"),
            (0b1_1110, b"\0\0name\0comment\0\x01\x02"),
        ] {
            assert_eq!(
                unpack(&packed(flags, fields, b"hello"), LIMIT),
                Ok(b"hello".to_vec())
            );
        }
    }

    #[test]
    fn what_is_not_whole_is_an_error() {
        let whole = packed(0, b"", b"hello, hello, hello");
        for length in 0..whole.len() {
            assert!(unpack(&whole[..length], LIMIT).is_err(), "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            // Time and system are no part of the content.
            let is_free = (4..10).contains(&place) || place == 3;
            assert!(is_free || unpack(&damaged, LIMIT).is_err(), "{place}");
        }
        assert_eq!(unpack(b"{}", LIMIT), Err(GzipError::NotGzip));
        assert_eq!(
            unpack(&packed(1 << 3, b"", b"\x01")[..12], LIMIT),
            Err(GzipError::NotGzip)
        );
    }

    #[test]
    fn what_would_fill_the_memory_is_an_error() {
        let bomb = packed(0, b"", &vec![0; LIMIT + 1]);
        assert!(bomb.len() < 64 << 10);
        assert_eq!(unpack(&bomb, LIMIT), Err(GzipError::TooLarge(LIMIT)));
        assert!(unpack(&bomb, 2 * LIMIT).is_ok());
    }

    #[test]
    fn a_second_member_or_anything_behind_the_stream_is_no_content() {
        let once = packed(0, b"", b"hello");
        let twice = [once.clone(), once].concat();
        assert_eq!(unpack(&twice, LIMIT), Err(GzipError::Damaged));
    }

    #[test]
    #[cfg(feature = "http")]
    fn deflate_is_zlib_or_a_bare_stream() {
        let content = b"hello, hello, hello";
        for data in [
            miniz_oxide::deflate::compress_to_vec_zlib(content, 6),
            miniz_oxide::deflate::compress_to_vec(content, 6),
        ] {
            assert_eq!(unpack_deflate(&data, LIMIT), Ok(content.to_vec()));
            assert!(unpack_deflate(&[&data[..], b"x"].concat(), LIMIT).is_err());
            assert!(unpack_deflate(&data[..data.len() - 1], LIMIT).is_err());
            assert!(unpack_deflate(&data, content.len() - 1).is_err());
        }
    }
}
