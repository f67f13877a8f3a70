//! Decides which status, of HTTP or gRPC, is an outcome and which is passing. Pure.

use data_encoding::BASE64;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, StatusCode};

use crate::idempotency::Verdict;
use crate::protocol::gzip::{self, GzipError};

/// Decides: successes, redirects and refusals that a retry would meet again are final. Refusals
/// that depend on the moment or on something besides the request (400 among them: a corrected body
/// may use the key again), and server errors, are not.
pub(super) fn verdict(status: StatusCode, stores_server_errors: bool) -> Verdict {
    match status {
        _ if status.is_server_error() && stores_server_errors => Verdict::Complete,
        StatusCode::BAD_REQUEST
        | StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::CONFLICT
        | StatusCode::MISDIRECTED_REQUEST
        | StatusCode::LOCKED
        | StatusCode::FAILED_DEPENDENCY
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => Verdict::Release,
        _ if status.is_success() || status.is_redirection() || status.is_client_error() => {
            Verdict::Complete
        }
        _ => Verdict::Release,
    }
}

const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The bit in the first byte of the part of a gRPC-Web body that has the trailers.
const WEB_TRAILERS: u8 = 0x80;

/// The bit in the first byte of the last part of a Connect stream, which has the error in JSON.
const CONNECT_END: u8 = 0x02;

/// The bit in the first byte of a part that is compressed.
const COMPRESSED: u8 = 0x01;

/// The most bytes that a compressed last part is opened to.
const MOST_TRAILERS: usize = 1024 * 1024;

/// Returns whether an answer says that its call failed: by `grpc-status`, in its trailers, in its
/// headers (an answer without a body), in the end of a gRPC-Web body, or by an `error` in the end of a
/// Connect stream. An answer that was read to its end and has none of these has failed, too: its
/// server broke off. One whose end can't be read, in another coding than gzip, is no failure: its
/// effect may have happened.
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
    let is_web = content_type.starts_with(b"application/grpc-web");
    if !is_web && !content_type.starts_with(b"application/connect+") {
        return content_type.starts_with(b"application/grpc");
    }
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return false;
    }
    let succeeded = if content_type.starts_with(b"application/grpc-web-text") {
        // Whole, or in pieces that are padded each for itself.
        let body = BASE64.decode(body.trim_ascii()).ok();
        body.and_then(|body| end_says(&body, WEB_TRAILERS, web_succeeded))
    } else if is_web {
        end_says(body, WEB_TRAILERS, web_succeeded)
    } else {
        end_says(body, CONNECT_END, connect_succeeded)
    };
    succeeded != Some(true)
}

fn web_succeeded(trailers: &[u8]) -> bool {
    let status = trailers.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(STATUS.as_str().len())?;
        let value = value.trim_ascii().strip_prefix(b":")?;
        name.eq_ignore_ascii_case(STATUS.as_str().as_bytes())
            .then(|| value.trim_ascii())
    });
    status == Some(b"0")
}

fn connect_succeeded(end: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct End {
        error: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<End>(end).is_ok_and(|end| end.error.is_none())
}

/// Returns whether the part of a body whose first byte has `bit` says success, or can't be read. `None`
/// where the body ends before.
fn end_says(mut body: &[u8], bit: u8, succeeded: fn(&[u8]) -> bool) -> Option<bool> {
    loop {
        let (&kind, rest) = body.split_first()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        if kind & bit == 0 {
            body = rest;
        } else if kind & COMPRESSED == 0 {
            return Some(succeeded(part));
        } else {
            return Some(match gzip::unpack(part, MOST_TRAILERS) {
                Ok(part) => succeeded(&part),
                Err(error) => matches!(error, GzipError::NotGzip),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_answers_are_stored_and_passing_ones_released() {
        for status in [
            200, 201, 202, 204, 206, 301, 303, 304, 307, 402, 404, 405, 406, 410, 413, 415, 422,
            451,
        ] {
            assert_eq!(
                verdict(StatusCode::from_u16(status).unwrap(), false),
                Verdict::Complete,
                "{status}"
            );
        }
        for status in [
            100, 101, 400, 401, 403, 408, 409, 421, 423, 424, 425, 429, 500, 501, 502, 503, 504,
            599, 999,
        ] {
            assert_eq!(
                verdict(StatusCode::from_u16(status).unwrap(), false),
                Verdict::Release,
                "{status}"
            );
        }
    }

    #[test]
    fn server_errors_and_only_they_are_stored_too_where_the_setting_says_so() {
        for (status, expected) in [
            (500, Verdict::Complete),
            (503, Verdict::Complete),
            (201, Verdict::Complete),
            (400, Verdict::Release),
            (429, Verdict::Release),
            (999, Verdict::Release),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(verdict(status, true), expected, "{status}");
        }
    }

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
        assert!(!failed(b"\x81\x00\x00\x00\x02zs"), "in another coding");
        let mut coded = body("grpc-status: 13\r\n");
        coded[0] = 1;
        assert!(failed(&coded), "behind a compressed message");
        let mut longest = b"grpc-status: 0\r\nx:".to_vec();
        longest.resize(MOST_TRAILERS, b' ');
        assert!(!failed(&compressed(0x81, &longest)));
        longest.push(b' ');
        assert!(failed(&compressed(0x81, &longest)), "it is too long");

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
        assert!(failed(&coded), "behind a compressed message");
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
        let error = plain(r#"{"error":{}}"#);
        let coded = [b"\x01\x00\x00\x00\x02{}", &error[..]].concat();
        assert!(has_failed(&connect, Some(&coded), Some(&headers(&[]))));
        // Zstandard, and the head of one that broke off.
        let zstd = b"\x03\x00\x00\x00\x04\x28\xb5\x2f\xfd";
        assert!(!failed(zstd), "it may have succeeded");
        assert!(failed(&zstd[..8]), "it broke off");
    }

    #[test]
    fn an_answer_that_a_layer_inside_has_compressed_is_no_failure() {
        let trailers = headers(&[]);
        for content_type in [
            "application/connect+proto",
            "application/grpc-web",
            "application/grpc-web-text",
        ] {
            for (coding, failed) in [("br", false), ("Identity", true)] {
                let headers =
                    headers(&[("content-type", content_type), ("content-encoding", coding)]);
                let has_failed = has_failed(&headers, Some(b"\x1b\x01"), Some(&trailers));
                assert_eq!(has_failed, failed, "{content_type} {coding}");
            }
        }
        // Its status is in its trailers, outside of the coding.
        let grpc = headers(&[
            ("content-type", "application/grpc"),
            ("content-encoding", "br"),
        ]);
        assert!(has_failed(&grpc, Some(b"\x1b\x01"), Some(&trailers)));
    }
}
