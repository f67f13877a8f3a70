//! What a refusal says, for closures that write their own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;

const CONTENT: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Why a request is refused: what the problem document says, given to the closure of
/// [`IdempotencyLayer::problems`](super::IdempotencyLayer::problems).
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let layer = IdempotencyLayer::new(once).problems(|problem| {
///     // Status, `Retry-After` and `Link` as they are; a body in the house's own form.
///     let body = format!(r#"{{"error": "{}"}}"#, problem.code);
///     problem.to_response().map(|_| Bytes::from(body))
/// });
/// # Ok::<(), lambda_idempotency::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProblemDetails {
    /// The answer's status.
    pub status: StatusCode,
    /// One of the codes on the [module page](super#problems); stable.
    pub code: &'static str,
    /// What is wrong, in a few words; the same for each problem of this code.
    pub title: &'static str,
    /// What the client can do.
    pub detail: &'static str,
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
    /// As `application/problem+json` (RFC 9457), with `Retry-After` and `Link` where they belong.
    pub fn to_response(&self) -> Response<Bytes> {
        let document = Document {
            r#type: &self.type_uri,
            title: self.title,
            status: self.status.as_u16(),
            detail: self.detail,
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

/// Whole seconds (RFC 9110, 10.2.3), rounded up so that nobody comes too early, and at least one.
pub(super) fn seconds(pause: Duration) -> HeaderValue {
    let partial = u64::from(pause.subsec_nanos() > 0);
    HeaderValue::from(pause.as_secs().saturating_add(partial).max(1))
}
