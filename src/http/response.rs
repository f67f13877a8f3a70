//! A handler's answer, in a form that can be stored and given again.

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{HeaderName, HeaderValue};
use http::{Extensions, HeaderMap, Response, StatusCode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kept::split;
use crate::outcome::Verdict;

/// Status, headers and body, byte for byte. Trailers are not kept: Lambda has none.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) status: StatusCode,
    /// What the handler itself says about storing this answer.
    pub(super) wish: Option<Verdict>,
    headers: HeaderMap,
    /// For the first answer alone; never stored.
    passing: HeaderMap,
    /// For the layers outside, when the handler ran just now; never stored.
    extensions: Extensions,
    body: Option<Bytes>,
}

impl Captured {
    /// `None` for a body that goes past: it can't be stored.
    pub(super) fn new(response: Response<Option<Bytes>>, left_out: &[HeaderName]) -> Self {
        let (parts, body) = response.into_parts();
        let (headers, passing) = split(parts.headers, left_out);
        Self {
            status: parts.status,
            wish: parts.extensions.get::<Verdict>().copied(),
            headers,
            passing,
            extensions: parts.extensions,
            body,
        }
    }

    pub(super) fn into_response(self) -> Response<Option<Bytes>> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response.headers_mut().extend(self.passing);
        *response.extensions_mut() = self.extensions;
        response
    }
}

/// What is written into the record. A list of headers, because a name may repeat and the order of its values counts.
#[derive(Serialize, Deserialize)]
struct Stored {
    status: u16,
    headers: Vec<(String, Octets)>,
    body: Octets,
}

/// Text as it is, anything else in base64.
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
    type Error = Malformed;

    fn try_from(octets: Octets) -> Result<Self, Malformed> {
        match octets {
            Octets::Text(text) => Ok(text.into_bytes()),
            Octets::Binary { base64 } => BASE64.decode(base64.as_bytes()).map_err(|_| Malformed),
        }
    }
}

impl Stored {
    fn of(response: &Captured, body: &[u8]) -> Self {
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), Octets::from(value.as_bytes()))
        };
        Self {
            status: response.status.as_u16(),
            headers: response.headers.iter().map(header).collect(),
            body: Octets::from(body),
        }
    }
}

impl TryFrom<Stored> for Captured {
    type Error = Malformed;

    fn try_from(stored: Stored) -> Result<Self, Malformed> {
        let mut headers = HeaderMap::new();
        for (name, value) in stored.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Malformed)?;
            let value = HeaderValue::from_maybe_shared(Bytes::from(Vec::try_from(value)?));
            // A map of headers has an end, where the other way to append panics.
            let appended = headers.try_append(name, value.map_err(|_| Malformed)?);
            appended.map_err(|_| Malformed)?;
        }
        Ok(Self {
            status: StatusCode::from_u16(stored.status).map_err(|_| Malformed)?,
            wish: None,
            headers,
            passing: HeaderMap::new(),
            extensions: Extensions::new(),
            body: Some(Vec::try_from(stored.body)?.into()),
        })
    }
}

/// Says nothing of the content: it may be anything.
#[derive(Debug, thiserror::Error)]
#[error("not an HTTP response")]
struct Malformed;

impl Serialize for Captured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.body {
            Some(body) => Stored::of(self, body).serialize(serializer),
            // The engine marks the record: done, and not kept.
            None => Err(serde::ser::Error::custom("a body that goes past")),
        }
    }
}

impl<'de> Deserialize<'de> for Captured {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        Self::try_from(stored).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(response: Response<Option<Bytes>>) -> (String, Response<Option<Bytes>>) {
        let captured = Captured::new(response, &[]);
        let stored = serde_json::to_string(&captured).unwrap();
        let back: Captured = serde_json::from_str(&stored).unwrap();
        (stored, back.into_response())
    }

    #[test]
    fn status_repeated_headers_and_text_survive() {
        let response = Response::builder()
            .status(299)
            .header("set-cookie", "a=1")
            .header("x-bytes", HeaderValue::from_bytes(b"\xff\x80").unwrap())
            .header("set-cookie", "b=2")
            .body(Some(Bytes::from(r#"{"ü":1}"#)))
            .unwrap();
        let (stored, back) = there_and_back(response.clone());
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
        let bytes = Some(Bytes::from_static(b"\x89PNG\x00\xff"));
        let (stored, back) = there_and_back(Response::new(bytes.clone()));
        assert!(stored.contains(r#""body":{"base64":"iVBORwD/"}"#));
        assert_eq!(*back.body(), bytes);
    }

    #[test]
    fn a_header_that_is_left_out_is_in_the_first_answer_and_not_in_the_record() {
        let response = Response::builder()
            .header("set-cookie", "session=secret")
            .header("connection", "close")
            .header("etag", "17")
            .body(Some(Bytes::new()))
            .unwrap();
        let captured = Captured::new(response.clone(), &super::super::kept::LEFT_OUT);
        let stored = serde_json::to_string(&captured).unwrap();
        assert_eq!(
            stored,
            r#"{"status":200,"headers":[["etag","17"]],"body":""}"#
        );
        assert_eq!(captured.into_response().headers(), response.headers());
    }

    #[test]
    fn a_body_that_goes_past_is_not_stored_as_if_it_were_empty() {
        let captured = Captured::new(Response::new(None), &[]);
        assert!(serde_json::to_string(&captured).is_err());
    }

    #[test]
    fn more_headers_than_a_map_holds_are_refused_in_words() {
        let headers = |count: usize| {
            let headers = (0..count).map(|number| format!(r#"["x-{number}",""]"#));
            let headers = headers.collect::<Vec<_>>().join(",");
            let stored = format!(r#"{{"status":200,"headers":[{headers}],"body":""}}"#);
            serde_json::from_str::<Captured>(&stored).map(|captured| captured.headers.len())
        };
        assert_eq!(headers(1_000).unwrap(), 1_000);
        assert!(headers(40_000).is_err());
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
            let error = serde_json::from_str::<Captured>(stored).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
