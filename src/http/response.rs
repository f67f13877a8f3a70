//! A handler's answer, in a form that can be stored and given again.

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{HeaderName, HeaderValue};
use http::{Extensions, HeaderMap, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::BoxError;

/// Status, headers and body, byte for byte. Trailers are not kept: Lambda has none.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// For the layers outside, when the handler ran just now; never stored.
    extensions: Extensions,
}

impl Captured {
    /// Reads the whole body.
    pub(super) async fn read<B>(response: Response<B>) -> Result<Self, BoxError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(Into::into)?.to_bytes();
        Ok(Self {
            status: parts.status,
            headers: parts.headers,
            body,
            extensions: parts.extensions,
        })
    }

    pub(super) fn whole(response: Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status,
            headers: parts.headers,
            body,
            extensions: parts.extensions,
        }
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
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

impl From<&Captured> for Stored {
    fn from(response: &Captured) -> Self {
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), Octets::from(value.as_bytes()))
        };
        Self {
            status: response.status.as_u16(),
            headers: response.headers.iter().map(header).collect(),
            body: Octets::from(response.body.as_ref()),
        }
    }
}

impl TryFrom<Stored> for Captured {
    type Error = Malformed;

    fn try_from(stored: Stored) -> Result<Self, Malformed> {
        let mut headers = HeaderMap::with_capacity(stored.headers.len());
        for (name, value) in stored.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Malformed)?;
            let value = HeaderValue::from_maybe_shared(Bytes::from(Vec::try_from(value)?));
            headers.append(name, value.map_err(|_| Malformed)?);
        }
        Ok(Self {
            status: StatusCode::from_u16(stored.status).map_err(|_| Malformed)?,
            headers,
            body: Vec::try_from(stored.body)?.into(),
            extensions: Extensions::new(),
        })
    }
}

/// Says nothing of the content: it may be anything.
#[derive(Debug, thiserror::Error)]
#[error("not an HTTP response")]
struct Malformed;

impl Serialize for Captured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Stored::from(self).serialize(serializer)
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

    async fn there_and_back(response: Response<Full<Bytes>>) -> (String, Response<Full<Bytes>>) {
        let captured = Captured::read(response).await.unwrap();
        let stored = serde_json::to_string(&captured).unwrap();
        let back: Captured = serde_json::from_str(&stored).unwrap();
        (stored, back.into_response())
    }

    #[tokio::test]
    async fn status_repeated_headers_and_text_survive() {
        let response = Response::builder()
            .status(299)
            .header("set-cookie", "a=1")
            .header("x-bytes", HeaderValue::from_bytes(b"\xff\x80").unwrap())
            .header("set-cookie", "b=2")
            .body(Full::from(r#"{"ü":1}"#))
            .unwrap();
        let (stored, back) = there_and_back(response.clone()).await;
        assert_eq!(
            stored,
            r#"{"status":299,"headers":[["set-cookie","a=1"],["set-cookie","b=2"],["x-bytes",{"base64":"/4A="}]],"body":"{\"ü\":1}"}"#
        );
        assert_eq!(back.status(), response.status());
        assert_eq!(back.headers(), response.headers());
        assert_eq!(
            back.into_body().collect().await.unwrap().to_bytes(),
            r#"{"ü":1}"#
        );
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_survive() {
        let bytes = Bytes::from_static(b"\x89PNG\x00\xff");
        let (stored, back) = there_and_back(Response::new(Full::new(bytes.clone()))).await;
        assert!(stored.contains(r#""body":{"base64":"iVBORwD/"}"#));
        assert_eq!(back.into_body().collect().await.unwrap().to_bytes(), bytes);
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
