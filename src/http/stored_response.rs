//! Converts a response to the form in which its record stores it, and back.
//!
//! [`stored_outcome`] and [`response_of`] are for an operator's tool, which completes a record by hand
//! or shows one.

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{
    CONNECTION, DATE, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use serde::{Deserialize, Serialize};

/// Holds status, headers, body and trailers, byte for byte. A list of headers, because a name may
/// repeat and the order of its values counts.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredResponse {
    status: u16,
    headers: Vec<(String, Octets)>,
    body: Octets,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    trailers: Vec<(String, Octets)>,
    /// The first client didn't accept the answer's content coding either, so the handler doesn't
    /// negotiate it, and any client gets it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) any_coding: bool,
}

/// Holds text as it is, anything else in base64.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Octets {
    Text(String),
    Binary { base64: String },
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Binary {
                base64: BASE64.encode(bytes),
            },
        }
    }
}

impl TryFrom<Octets> for Vec<u8> {
    type Error = &'static str;

    fn try_from(octets: Octets) -> Result<Self, &'static str> {
        match octets {
            Octets::Text(text) => Ok(text.into_bytes()),
            Octets::Binary { base64 } => BASE64.decode(base64.as_bytes()).map_err(|_| MALFORMED),
        }
    }
}

impl StoredResponse {
    pub(super) fn of<'a>(
        status: StatusCode,
        headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
        body: &[u8],
    ) -> Self {
        Self {
            status: status.as_u16(),
            headers: headers.map(octets).collect(),
            body: Octets::from(body),
            trailers: Vec::new(),
            any_coding: false,
        }
    }

    /// Adds the trailers.
    pub(super) fn with_trailers<'a>(
        mut self,
        trailers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    ) -> Self {
        self.trailers = trailers.map(octets).collect();
        self
    }

    /// Takes the trailers out.
    pub(super) fn take_trailers(&mut self) -> Result<HeaderMap, &'static str> {
        header_map(std::mem::take(&mut self.trailers))
    }

    pub(super) fn into_response(self) -> Result<Response<Bytes>, &'static str> {
        let mut response = Response::new(Bytes::from(Vec::try_from(self.body)?));
        *response.status_mut() = StatusCode::from_u16(self.status).map_err(|_| MALFORMED)?;
        *response.headers_mut() = header_map(self.headers)?;
        Ok(response)
    }
}

fn octets((name, value): (&HeaderName, &HeaderValue)) -> (String, Octets) {
    (name.as_str().to_owned(), Octets::from(value.as_bytes()))
}

fn header_map(stored: Vec<(String, Octets)>) -> Result<HeaderMap, &'static str> {
    let mut headers = HeaderMap::new();
    for (name, value) in stored {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| MALFORMED)?;
        let value = HeaderValue::from_maybe_shared(Bytes::from(Vec::try_from(value)?));
        // A map of headers has an end, where the other way to append panics.
        let value = value.map_err(|_| MALFORMED)?;
        let appended = headers.try_append(name, value);
        appended.map_err(|_| MALFORMED)?;
    }
    Ok(headers)
}

/// Encodes a response as the JSON text that its record stores, so that a duplicate gets it.
///
/// For a tool that completes a record in the layer's place, where the effect is known to have
/// happened and the answer was lost. All headers are stored as they are given.
///
/// ```
/// use lambda_idempotency::http::{response_of, stored_outcome};
///
/// # fn main() -> Result<(), http::Error> {
/// let response = http::Response::builder().status(201).body("{\"order\":17}")?;
/// let outcome = stored_outcome(&response);
/// let replayed = response_of(&outcome).map(|response| (response.status().as_u16(), response.into_body()));
/// assert_eq!(replayed, Some((201, "{\"order\":17}".into())));
/// # Ok(()) }
/// ```
pub fn stored_outcome<B: AsRef<[u8]>>(response: &Response<B>) -> String {
    let (status, body) = (response.status(), response.body().as_ref());
    let stored = StoredResponse::of(status, response.headers().iter(), body);
    // Text, numbers and lists always have a JSON form.
    serde_json::to_string(&stored).unwrap_or_default()
}

/// Decodes the response that a record stores; `None` where the outcome is no response.
pub fn response_of(outcome: &str) -> Option<Response<Bytes>> {
    let stored: StoredResponse = serde_json::from_str(outcome).ok()?;
    stored.into_response().ok()
}

/// Says that a stored outcome is no response, without its content, which may be anything.
const MALFORMED: &str = "the stored outcome is not an HTTP response";

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

    fn read(stored: &str) -> Result<Response<Bytes>, &'static str> {
        let stored: StoredResponse = serde_json::from_str(stored).map_err(|_| MALFORMED)?;
        stored.into_response()
    }

    fn there_and_back(response: &Response<Bytes>) -> (String, Response<Bytes>) {
        let stored = StoredResponse::of(
            response.status(),
            response.headers().iter(),
            response.body(),
        );
        let stored = serde_json::to_string(&stored).unwrap();
        let back = read(&stored).unwrap();
        (stored, back)
    }

    #[test]
    fn status_repeated_headers_and_text_survive() {
        let response = Response::builder()
            .status(299)
            .header("set-cookie", "a=1")
            .header("x-bytes", HeaderValue::from_bytes(b"\xff\x80").unwrap())
            .header("set-cookie", "b=2")
            .body(Bytes::from(r#"{"ü":1}"#))
            .unwrap();
        let (stored, back) = there_and_back(&response);
        assert_eq!(
            stored,
            r#"{"status":299,"headers":[["set-cookie","a=1"],["set-cookie","b=2"],["x-bytes",{"base64":"/4A="}]],"body":"{\"ü\":1}"}"#
        );
        assert_eq!(back.status(), response.status());
        assert_eq!(back.headers(), response.headers());
        assert_eq!(back.body(), response.body());
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        let bytes = Bytes::from_static(b"\x89PNG\x00\xff");
        let (stored, back) = there_and_back(&Response::new(bytes.clone()));
        assert!(stored.contains(r#""body":{"base64":"iVBORwD/"}"#));
        assert_eq!(*back.body(), bytes);
    }

    #[test]
    fn more_headers_than_a_map_holds_are_refused_in_words() {
        let headers = |count: usize| {
            let headers = (0..count).map(|number| format!(r#"["x-{number}",""]"#));
            let headers = headers.collect::<Vec<_>>().join(",");
            let stored = format!(r#"{{"status":200,"headers":[{headers}],"body":""}}"#);
            read(&stored).map(|response| response.headers().len())
        };
        assert_eq!(headers(1_000).unwrap(), 1_000);
        assert!(headers(40_000).is_err());
    }

    /// A process of an earlier version reads what one of a later version has stored.
    #[test]
    fn what_a_later_version_adds_does_not_matter() {
        let stored = r#"{"status":204,"headers":[],"body":"","any_coding":true,"later":[1]}"#;
        assert_eq!(read(stored).unwrap().status(), 204);
    }

    #[test]
    fn what_is_no_response_is_refused_without_quoting_it() {
        for stored in [
            r#"{"status":1,"headers":[],"body":"secret"}"#,
            r#"{"status":200,"headers":[["a b","secret"]],"body":""}"#,
            r#"{"status":200,"headers":[["a","secret\n"]],"body":""}"#,
            r#"{"status":200,"headers":[],"body":{"base64":"secret!"}}"#,
            r#"{"status":200,"headers":{},"body":""}"#,
        ] {
            let error = read(stored).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

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
