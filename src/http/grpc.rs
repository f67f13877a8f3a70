//! Tells whether a gRPC call failed, which an HTTP status of 200 hides. Pure.

use data_encoding::BASE64;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The first byte of the part of a gRPC-Web body that has the trailers.
const TRAILERS: u8 = 0x80;

/// Tells whether an answer says that its call failed: by `grpc-status`, in its trailers, in its
/// headers (an answer without a body) or in the end of a gRPC-Web body. A gRPC answer that was read to
/// its end and has no status has failed, too: its server broke off.
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
        return body.map_or(true, |body| web_status(&body) != Some(b"0"));
    }
    if content_type.starts_with(b"application/grpc-web") {
        return web_status(body).is_none_or(|status| status != b"0");
    }
    content_type.starts_with(b"application/grpc")
}

/// Reads the status in the last part of a gRPC-Web body.
fn web_status(mut body: &[u8]) -> Option<&[u8]> {
    loop {
        let (&kind, rest) = body.split_first()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        if kind & TRAILERS == 0 {
            body = rest;
            continue;
        }
        return part.split(|byte| *byte == b'\n').find_map(|line| {
            let (name, value) = line.split_at_checked(STATUS.as_str().len())?;
            let value = value.trim_ascii().strip_prefix(b":")?;
            name.eq_ignore_ascii_case(STATUS.as_str().as_bytes())
                .then(|| value.trim_ascii())
        });
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
}
