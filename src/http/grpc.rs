//! Tells whether a call of gRPC or Connect failed, which an HTTP status of 200 hides. Pure.

use std::borrow::Cow;

use data_encoding::BASE64;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName};

use crate::protocol::gzip;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The bit in the first byte of the part of a gRPC-Web body that has the trailers.
const WEB_TRAILERS: u8 = 0x80;

/// The bit in the first byte of the last part of a Connect stream, which has the error in JSON.
const CONNECT_END: u8 = 0x02;

/// The bit in the first byte of a part that is compressed.
const COMPRESSED: u8 = 0x01;

/// The most bytes that a compressed last part is opened to.
const MOST_TRAILERS: usize = 64 * 1024;

/// Tells whether an answer says that its call failed: by `grpc-status`, in its trailers, in its
/// headers (an answer without a body), in the end of a gRPC-Web body, or by an `error` in the end of a
/// Connect stream. An answer that was read to its end and has none of these has failed, too: its
/// server broke off.
pub(super) fn has_failed(
    headers: &HeaderMap,
    body: Option<&[u8]>,
    trailers: Option<&HeaderMap>,
) -> bool {
    let named = |headers: &HeaderMap| headers.get(STATUS).map(|status| status.as_bytes() == b"0");
    if let Some(succeeded) = trailers.and_then(named).or_else(|| named(headers)) {
        return !succeeded;
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |value| value.as_bytes());
    let content_type = content_type.to_ascii_lowercase();
    let Some(body) = body else {
        return false;
    };
    if content_type.starts_with(b"application/grpc-web-text") {
        // Whole, or in pieces that are padded each for itself.
        let body = BASE64.decode(body.trim_ascii());
        return !body.is_ok_and(|body| web_succeeded(&body));
    }
    if content_type.starts_with(b"application/grpc-web") {
        return !web_succeeded(body);
    }
    if content_type.starts_with(b"application/connect+") {
        return !connect_succeeded(body);
    }
    content_type.starts_with(b"application/grpc")
}

fn web_succeeded(body: &[u8]) -> bool {
    let Some(trailers) = last_part(body, WEB_TRAILERS) else {
        return false;
    };
    let status = trailers.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(STATUS.as_str().len())?;
        let value = value.trim_ascii().strip_prefix(b":")?;
        name.eq_ignore_ascii_case(STATUS.as_str().as_bytes())
            .then(|| value.trim_ascii())
    });
    status == Some(b"0")
}

fn connect_succeeded(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct End {
        error: Option<serde::de::IgnoredAny>,
    }
    let end = last_part(body, CONNECT_END);
    let end = end.and_then(|end| serde_json::from_slice::<End>(&end).ok());
    end.is_some_and(|end| end.error.is_none())
}

/// Reads the part of a body whose first byte has `bit`. `None` where the body ends before, and where
/// the part is in another coding than gzip.
fn last_part(mut body: &[u8], bit: u8) -> Option<Cow<'_, [u8]>> {
    loop {
        let (&kind, rest) = body.split_first()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        if kind & bit == 0 {
            body = rest;
        } else if kind & COMPRESSED == 0 {
            return Some(Cow::Borrowed(part));
        } else {
            return gzip::unpack(part, MOST_TRAILERS).ok().map(Cow::Owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn a_call_has_failed_where_its_status_is_another_than_0() {
        let grpc = ("content-type", "application/grpc+proto");
        for (status, failed) in [("0", false), ("5", true), ("", true), ("00", true)] {
            let status = headers(&[("grpc-status", status)]);
            assert_eq!(
                has_failed(&headers(&[grpc]), Some(b""), Some(&status)),
                failed
            );
            assert_eq!(has_failed(&status, Some(b""), Some(&headers(&[]))), failed);
        }
        assert!(has_failed(
            &headers(&[grpc]),
            Some(b""),
            Some(&headers(&[]))
        ));
        assert!(
            !has_failed(&headers(&[grpc]), None, None),
            "not read to its end"
        );
        let json = headers(&[("content-type", "application/json")]);
        assert!(!has_failed(
            &json,
            Some(b"{}"),
            Some(&headers(&[("checksum", "5")]))
        ));
    }

    #[test]
    fn the_status_of_a_web_call_stands_in_its_body() {
        let web = headers(&[("content-type", "application/grpc-web+proto")]);
        let body = |end: &str| {
            let mut body = b"\x00\x00\x00\x00\x02ab\x80\x00\x00\x00".to_vec();
            body.push(u8::try_from(end.len()).unwrap());
            body.extend_from_slice(end.as_bytes());
            body
        };
        let failed = |body: &[u8]| has_failed(&web, Some(body), Some(&headers(&[])));
        assert!(!failed(&body("grpc-status: 0\r\ngrpc-message: \r\n")));
        assert!(!failed(&body("x: 1\r\nGrpc-Status:0\r\n")));
        assert!(failed(&body("grpc-status: 13\r\n")));
        assert!(failed(b"\x00\x00\x00\x00\x02ab"), "it broke off");
        assert!(!failed(&compressed(0x81, b"grpc-status: 0\r\n")));
        assert!(failed(&compressed(0x81, b"grpc-status: 13\r\n")));

        // In base64, whole or in pieces.
        let text = headers(&[("content-type", "application/grpc-web-text+proto")]);
        let failed = |body: &[u8]| {
            let (message, end) = body.split_at(7);
            let pieces = BASE64.encode(message) + &BASE64.encode(end);
            let bodies = [BASE64.encode(body), pieces];
            let failed =
                bodies.map(|body| has_failed(&text, Some(body.as_bytes()), Some(&headers(&[]))));
            assert_eq!(failed[0], failed[1]);
            failed[0]
        };
        assert!(!failed(&body("grpc-status: 0\r\n")));
        assert!(failed(&body("grpc-status: 14\r\n")));
        assert!(failed(b"\x00\x00\x00\x00\x02ab"), "it broke off");
    }

    /// Makes a last part in gzip.
    fn compressed(kind: u8, content: &[u8]) -> Vec<u8> {
        let part = gzip::packed(0, &[], content);
        let length = u32::try_from(part.len()).unwrap().to_be_bytes();
        [&[kind][..], &length, &part].concat()
    }

    #[test]
    fn the_error_of_a_connect_stream_stands_in_its_last_part() {
        let connect = headers(&[("content-type", "application/connect+json")]);
        let failed = |end: &[u8]| {
            let body = [b"\x00\x00\x00\x00\x02{}", end].concat();
            has_failed(&connect, Some(&body), Some(&headers(&[])))
        };
        let plain = |content: &str| {
            let length = u8::try_from(content.len()).unwrap();
            [&[2, 0, 0, 0, length], content.as_bytes()].concat()
        };
        assert!(!failed(&plain("{}")));
        assert!(!failed(&plain(r#"{"metadata":{"a":["b"]}}"#)));
        assert!(failed(&plain(r#"{"error":{"code":"unavailable"}}"#)));
        assert!(!failed(&compressed(3, b"{}")));
        assert!(failed(&compressed(3, br#"{"error":{"code":"internal"}}"#)));
        assert!(failed(b""), "it broke off");
    }
}
