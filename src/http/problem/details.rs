//! Holds the details of a problem, for closures that make their own responses.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;

/// The address of the sections of `problems.md`, each under its code.
pub(super) const TYPES: &str =
    "https://docs.rs/lambda-idempotency/latest/lambda_idempotency/http/index.html#";

const CONTENT: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Says why a request is refused: the members of the problem document, which the closure of
/// [`IdempotencyLayer::problems`](crate::http::IdempotencyLayer::problems) is given.
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let layer = IdempotencyLayer::unscoped(once).problems(|problem| {
///     // Status, `Retry-After` and `Link` as they are; a body in the house's own form.
///     let body = format!(r#"{{"error": "{}"}}"#, problem.code);
///     problem.to_response().map(|_| Bytes::from(body))
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProblemDetails {
    /// The answer's status.
    pub status: StatusCode,
    /// One of the codes on the [module page](crate::http#problems); stable.
    pub code: &'static str,
    /// The problem in a few words; the same for each problem of this code.
    pub title: &'static str,
    /// The remedy on the client's side.
    pub detail: Cow<'static, str>,
    /// The address of a page that explains it: the API's own documentation where that was set.
    pub type_uri: String,
    /// When the same request with the same key may be answered; `None` where it never will.
    pub retry_after: Option<Duration>,
    /// The API's own documentation, where it was set.
    pub documentation: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
}

impl ProblemDetails {
    /// Makes a problem whose section on this crate's page has the name `code`: for tests of a
    /// closure.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            code,
            title,
            detail: detail.into(),
            type_uri: format!("{TYPES}{code}"),
            retry_after: None,
            documentation: None,
        }
    }

    /// Makes the response, `application/problem+json` (RFC 9457), with `Retry-After` and `Link`
    /// where they belong.
    pub fn to_response(&self) -> Response<Bytes> {
        let document = Document {
            r#type: &self.type_uri,
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
        };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, CONTENT);
        if let Some(pause) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds(pause));
        }
        let link =
            |url| HeaderValue::try_from(format!(r#"<{url}>; rel="describedby"; type="text/html""#));
        if let Some(Ok(link)) = self.documentation.as_ref().map(link) {
            headers.insert(LINK, link);
        }
        response
    }
}

/// Writes whole seconds (RFC 9110, 10.2.3), rounded up so that no client comes too early, and at
/// least one.
pub(super) fn seconds(pause: Duration) -> HeaderValue {
    let partial = u64::from(pause.subsec_nanos() > 0);
    HeaderValue::from(pause.as_secs().saturating_add(partial).max(1))
}
