//! Chooses the headers of a response that are stored for a replay. Pure.

use http::HeaderMap;
use http::header::{
    CONNECTION, DATE, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Not stored unless configured otherwise.
///
/// `Date` says when a message was made, and a replay is another message. `Set-Cookie` is a
/// credential: it would lie in the table for as long as the record, and be sent again when it may
/// have been withdrawn.
pub(super) const NOT_STORED: [HeaderName; 2] = [DATE, SET_COOKIE];

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

/// Selects the headers that a replay has.
pub(super) fn stored<'a>(
    headers: &'a HeaderMap,
    unstored: &'a [HeaderName],
) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    headers.iter().filter(move |(name, _)| {
        !(HOP_BY_HOP.contains(name)
            || name.as_str() == "proxy-connection"
            || named.contains(name)
            || unstored.contains(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(headers: &[(&'static str, &'static str)], unstored: &[HeaderName]) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        stored(&map, unstored)
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
        assert_eq!(names(&headers, &[]), ["etag=\"1\""]);
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
        assert_eq!(names(&headers, &NOT_STORED), ["vary=accept", "vary=origin"]);
        let cookies = names(&headers, &[DATE]);
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
