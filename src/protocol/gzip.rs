//! Unpacks gzip data ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952)) of one member, and data of
//! the coding `deflate`. Pure.

use std::io::Read;

use flate2::bufread::GzDecoder;
#[cfg(feature = "http")]
use flate2::bufread::{DeflateDecoder, ZlibDecoder};

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
    let decoder = GzDecoder::new(data);
    if decoder.header().is_none() {
        return Err(GzipError::NotGzip);
    }
    inflate(decoder, GzDecoder::into_inner, limit)
}

/// Unpacks what the content coding `deflate` names (RFC 9110, 8.4.1.2): the zlib format, or the bare
/// stream that some clients send.
#[cfg(feature = "http")]
pub(crate) fn unpack_deflate(data: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    match inflate(ZlibDecoder::new(data), ZlibDecoder::into_inner, limit) {
        Err(GzipError::Damaged) => {
            inflate(DeflateDecoder::new(data), DeflateDecoder::into_inner, limit)
        }
        zlib => zlib,
    }
}

/// Inflates data that ends where its stream does: what follows would be content to some readers, and
/// nothing to others.
fn inflate<'a, D: Read>(
    mut decoder: D,
    rest: fn(D) -> &'a [u8],
    limit: usize,
) -> Result<Vec<u8>, GzipError> {
    let mut content = Vec::new();
    let mut limited = decoder.by_ref().take((limit as u64).saturating_add(1));
    let read = limited.read_to_end(&mut content);
    if content.len() > limit {
        return Err(GzipError::TooLarge(limit));
    }
    let is_whole = read.is_ok() && rest(decoder).is_empty();
    is_whole.then_some(content).ok_or(GzipError::Damaged)
}

/// Packs a content, with these flags and optional fields.
#[cfg(test)]
pub(crate) fn packed(flags: u8, fields: &[u8], content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = flate2::bufread::GzEncoder::new(content, flate2::Compression::default());
    encoder.read_to_end(&mut packed).unwrap();
    packed[3] = flags;
    packed.splice(10..10, fields.iter().copied());
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

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
            (0b1_1100, b"\0\0name\0comment\0"),
        ] {
            assert_eq!(
                unpack(&packed(flags, fields, b"hello"), LIMIT),
                Ok(b"hello".to_vec())
            );
        }
    }

    #[test]
    fn a_headers_checksum_is_compared() {
        let mut crc = flate2::Crc::new();
        crc.update(&packed(1 << 1, b"", b"")[..10]);
        let [low, high, ..] = crc.sum().to_le_bytes();
        let unpacked = |checksum: &[u8]| unpack(&packed(1 << 1, checksum, b"hello"), LIMIT);
        assert_eq!(unpacked(&[low, high]), Ok(b"hello".to_vec()));
        assert_eq!(unpacked(&[low, !high]), Err(GzipError::NotGzip));
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
        // Nor is a small limit passed as the memory grows.
        for length in 2..64 {
            let zeros = packed(0, b"", &vec![0; length]);
            let too_large = Err(GzipError::TooLarge(length - 1));
            assert_eq!(unpack(&zeros, length - 1), too_large);
        }
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
