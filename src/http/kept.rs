//! Which headers of an answer are kept for a replay. Pure.

use http::HeaderMap;
use http::header::{
    CONNECTION, DATE, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

/// Not kept unless configured otherwise.
///
/// `Date` says when a message was made, and a replay is another message. `Set-Cookie` is a credential: kept, it would lie in the
/// table for as long as the record, and be handed out again when it may have been withdrawn.
pub(super) const LEFT_OUT: [HeaderName; 2] = [DATE, SET_COOKIE];

/// Speak of one connection, not of the answer (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The headers that a replay has, and those that only the first answer has.
pub(super) fn split(headers: HeaderMap, left_out: &[HeaderName]) -> (HeaderMap, HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    let stays_behind = |name: &HeaderName| {
        HOP_BY_HOP.contains(name)
            || name.as_str() == "proxy-connection"
            || named.contains(name)
            || left_out.contains(name)
    };
    let (mut kept, mut others) = (HeaderMap::new(), HeaderMap::new());
    let mut current = None;
    for (name, value) in headers {
        // A further value of the same name comes without it.
        current = name.or(current);
        if let Some(name) = &current {
            let map = if stays_behind(name) {
                &mut others
            } else {
                &mut kept
            };
            map.append(name, value);
        }
    }
    (kept, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(headers: &[(&'static str, &'static str)], left_out: &[HeaderName]) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let (kept, others) = split(map.clone(), left_out);
        assert_eq!(kept.len() + others.len(), map.len());
        kept.iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn what_speaks_of_one_connection_is_not_kept() {
        let headers = [
            ("connection", "close, X-Trace"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
            ("trailer", "checksum"),
            ("x-trace", "17"),
            ("etag", "\"1\""),
        ];
        assert_eq!(kept(&headers, &[]), ["etag=\"1\""]);
    }

    #[test]
    fn a_date_and_a_cookie_are_not_kept_unless_configured_otherwise() {
        let headers = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("vary", "accept"),
            ("vary", "origin"),
        ];
        assert_eq!(kept(&headers, &LEFT_OUT), ["vary=accept", "vary=origin"]);
        let cookies = kept(&headers, &[DATE]);
        assert_eq!(
            cookies,
            [
                "set-cookie=a=1",
                "set-cookie=b=2",
                "vary=accept",
                "vary=origin"
            ]
        );
    }
}
