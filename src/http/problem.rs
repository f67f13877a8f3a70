//! Turns what the engine says into problems, which are sent as `application/problem+json` (RFC
//! 9457). None quotes the request, the record or the store.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode, Uri};
use serde::Serialize;

use crate::engine::error::{Error, Obstacle};
use crate::protocol::key::KeyError;
use crate::protocol::record::Omission;
use crate::setup::BuildError;

#[cfg(test)]
mod tests;

/// On a response that a duplicate may not get: `unprotected` where no record protects its request,
/// `unrecorded` where its outcome could not be stored. On a 409 or 500 of this layer that no retry
/// changes: `final`.
pub(super) const STATUS: HeaderName = HeaderName::from_static("idempotency-status");

/// States in a response which protection it lacks.
pub(super) fn stated<B>(mut response: Response<B>, status: Option<&'static str>) -> Response<B> {
    if let Some(status) = status {
        let headers = response.headers_mut();
        headers.insert(STATUS, HeaderValue::from_static(status));
    }
    response
}

/// For a store that doesn't answer: long enough for a throttled table to recover, short enough for
/// a client to wait.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// Says why a request is not answered by the handler. `problems.md` is the prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    KeyMissing,
    KeyEmpty,
    KeyTooLong,
    KeyRepeated,
    KeyParameters,
    KeyMalformed,
    KeyNotQuoted,
    KeyControlCharacter,
    KeyNotAscii,
    ScopeMissing,
    BodyTooLarge,
    BodyUnreadable,
    BodyNotJson,
    CodingNotAccepted,
    Mismatch,
    InFlight { retry_after: Duration },
    Interrupted,
    Exhausted,
    LeaseLost,
    OutcomeOmitted { may_be_new: bool },
    TooLate,
    TimedOut,
    Overloaded,
    StoreUnavailable,
    Unrecorded,
    ConditionFailed,
    NotCommitted,
    OutcomeUnknown,
    Unreadable,
    Failed,
    ResponseBroken,
    Unprotected,
    Misconfigured,
}

/// Status, code, title, detail.
type Words = (u16, &'static str, &'static str, &'static str);

impl Problem {
    /// Makes the problem of an obstacle.
    pub(super) fn of(obstacle: &Obstacle) -> Self {
        match obstacle {
            Error::Handler(never) => match *never {},
            Error::Key(KeyError::Missing | KeyError::MissingAt { .. }) => Self::KeyMissing,
            Error::Key(KeyError::EmptyToken) => Self::KeyEmpty,
            Error::Key(KeyError::TokenTooLong { .. }) => Self::KeyTooLong,
            Error::Key(KeyError::ControlCharacter) => Self::KeyControlCharacter,
            Error::Key(KeyError::BlankScope) => Self::ScopeMissing,
            Error::Mismatch => Self::Mismatch,
            Error::InFlight { retry_after, .. } => Self::InFlight {
                retry_after: *retry_after,
            },
            Error::Compensating => Self::InFlight {
                retry_after: Duration::ZERO,
            },
            Error::Interrupted { .. } => Self::Interrupted,
            Error::Exhausted { .. } => Self::Exhausted,
            Error::LeaseLost => Self::LeaseLost,
            Error::OutcomeOmitted { reason, .. } => Self::OutcomeOmitted {
                may_be_new: *reason == Omission::Forgotten,
            },
            Error::TooLate => Self::TooLate,
            Error::TimedOut => Self::TimedOut,
            Error::Overloaded => Self::Overloaded,
            Error::Store(_) | Error::Entropy(_) => Self::StoreUnavailable,
            Error::Unrecorded(_) => Self::Unrecorded,
            Error::Refused(_) => Self::ConditionFailed,
            Error::NotCommitted(_) => Self::NotCommitted,
            Error::OutcomeUnknown(_) => Self::OutcomeUnknown,
            Error::Unreadable(_) => Self::Unreadable,
            Error::Failed(_) => Self::Failed,
            Error::Key(_) | Error::Write(_) => Self::Misconfigured,
        }
    }

    /// Makes the problem of an obstacle to a run that has begun. Where nothing protected it, and it may
    /// have had its effect, a retry may repeat that.
    pub(super) fn of_run(obstacle: &Obstacle, is_protected: bool) -> Self {
        match obstacle {
            Error::OutcomeUnknown(_) | Error::TimedOut if !is_protected => Self::Unprotected,
            obstacle => Self::of(obstacle),
        }
    }

    /// Returns the `Idempotency-Status` of its answer, where a client must not send the request again by
    /// itself.
    pub(super) fn status(self) -> Option<&'static str> {
        match self {
            Self::Unprotected => Some("unprotected"),
            Self::Interrupted
            | Self::Exhausted
            | Self::OutcomeOmitted { .. }
            | Self::ConditionFailed
            | Self::Unreadable
            | Self::Failed
            | Self::Misconfigured => Some("final"),
            _ => None,
        }
    }

    pub(super) fn code(self) -> &'static str {
        self.words().1
    }

    /// Returns whether the engine can't use the key, which it logs with the operation.
    pub(super) fn is_unusable_key(self) -> bool {
        matches!(
            self,
            Self::KeyMissing
                | Self::KeyEmpty
                | Self::KeyTooLong
                | Self::KeyControlCharacter
                | Self::ScopeMissing
        )
    }

    /// Logs that a request is refused for this reason.
    pub(super) fn log(self) {
        let (event, code) = ("refused", self.code());
        match self {
            Self::Misconfigured => tracing::error!(event, code, "idempotency"),
            // The authorizer is missing, or not the one that the scope reads.
            Self::ScopeMissing => tracing::warn!(event, code, "idempotency"),
            _ => tracing::info!(event, code, "idempotency"),
        }
    }

    /// Makes the details that the client gets. `documentation` is the API's own; else the sections
    /// of this crate's page explain.
    pub(super) fn details(self, documentation: Option<&str>) -> ProblemDetails {
        let (status, code, title, detail) = self.words();
        ProblemDetails {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            title,
            detail: detail.into(),
            type_uri: match documentation {
                Some(url) => format!("{url}#{code}"),
                None => format!("{TYPES}{code}"),
            },
            retry_after: self.retry_after(),
            documentation: documentation.map(str::to_owned),
        }
    }

    /// Present exactly where the same request with the same key, as it is, may be answered later.
    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::InFlight { retry_after } => Some(retry_after),
            Self::BodyUnreadable
            | Self::LeaseLost
            | Self::TooLate
            | Self::TimedOut
            | Self::Overloaded
            | Self::ResponseBroken => Some(Duration::ZERO),
            Self::StoreUnavailable
            | Self::Unrecorded
            | Self::NotCommitted
            | Self::OutcomeUnknown => Some(STORE_PAUSE),
            _ => None,
        }
    }

    #[rustfmt::skip]
    fn words(self) -> Words {
        match self {
            Self::KeyMissing => (400, "key-missing", "The idempotency key is missing",
                "Send the request with an idempotency key that is its own, a UUID for example, and the same key on each retry."),
            Self::KeyEmpty => (400, "key-empty", "The idempotency key is empty",
                "Send a value that names this one request, a UUID for example."),
            Self::KeyTooLong => (400, "key-too-long", "The idempotency key is too long",
                "Send a shorter one: a UUID, or a hash."),
            Self::KeyRepeated => (400, "key-repeated", "There is more than one idempotency key",
                "Send the header once, with one value. A key that holds a comma must stand in double quotes."),
            Self::KeyParameters => (400, "key-parameters", "The idempotency key has parameters",
                "Send the key alone. A key that holds a semicolon must stand in double quotes."),
            Self::KeyMalformed => (400, "key-malformed", "The idempotency key is malformed",
                "A quoted key ends with a double quote and nothing after it; inside, a backslash stands only before a double quote or a backslash."),
            Self::KeyNotQuoted => (400, "key-not-quoted", "The idempotency key is not in double quotes",
                "This API takes the key as a structured-field string only: send it in double quotes."),
            Self::KeyControlCharacter => (400, "key-control-character", "The idempotency key holds a control character",
                "Send printable ASCII characters only."),
            Self::KeyNotAscii => (400, "key-not-ascii", "The idempotency key is not ASCII",
                "Send printable ASCII characters only."),
            Self::ScopeMissing => (403, "scope-missing", "It can't be told whose request this is",
                "Nothing was done. Authenticate, then send the request again."),
            Self::BodyTooLarge => (413, "body-too-large", "The request body is too large",
                "Nothing was done. Send a smaller body."),
            Self::BodyUnreadable => (400, "body-unreadable", "The request body broke off",
                "Nothing was done now. Send the request again, with the same key."),
            Self::BodyNotJson => (400, "body-not-json", "The request body is not JSON",
                "Nothing was done. This API takes the idempotency key from the body: send it as JSON."),
            Self::CodingNotAccepted => (406, "coding-not-accepted", "The answer is in a coding that this request does not accept",
                "The request was processed. Retry with the same key, and with the Accept-Encoding of the first request or none."),
            Self::Mismatch => (422, "mismatch", "The idempotency key belongs to another request",
                "This key was first used with another method, path, query or body. For other work, send a new key. The same work under a new key would be done twice: correct what differs."),
            Self::InFlight { .. } => (409, "in-flight", "The request is being processed",
                "An earlier request with this key has not finished. Retry with the same key after the time in Retry-After."),
            Self::Interrupted => (409, "interrupted", "An earlier attempt was interrupted",
                "It may have taken effect, so it is not repeated until an operator has looked. Ask the operator of this API."),
            Self::Exhausted => (409, "exhausted", "Too many attempts were interrupted",
                "The request is not tried again until an operator has looked. Ask the operator of this API."),
            Self::LeaseLost => (409, "lease-lost", "Another attempt took over",
                "The request took too long, and a retry is processing it. Retry with the same key to get its answer."),
            Self::OutcomeOmitted { may_be_new } => (409, "outcome-omitted", "No answer is kept for this key",
                if may_be_new {
                    "The request may have been processed before, and is not repeated. Read the resource; where nothing was done, send a new key."
                } else {
                    "The request was answered, and is not repeated. Read the resource to see the result."
                }),
            Self::TooLate => (503, "too-late", "There was no time left",
                "Nothing was done now. An earlier attempt may have taken effect: retry with the same key."),
            Self::TimedOut => (503, "timed-out", "The request took too long",
                "It was ended before it was done, and may have taken effect. Retry with the same key."),
            Self::Overloaded => (503, "overloaded", "The server is busy",
                "Nothing was done now. An earlier attempt may have taken effect: retry with the same key."),
            Self::StoreUnavailable => (503, "store-unavailable", "The records of earlier attempts can't be used now",
                "An earlier attempt may have taken effect. Retry with the same key."),
            Self::Unrecorded => (503, "unrecorded", "The result could not be recorded",
                "The request may have taken effect. Retry with the same key."),
            Self::ConditionFailed => (409, "condition-failed", "The request can't be carried out now",
                "What it depends on has changed. None of its writes was made."),
            Self::NotCommitted => (503, "not-committed", "The request could not be carried out",
                "None of its writes was made. Retry it as it is."),
            Self::OutcomeUnknown => (503, "outcome-unknown", "It is not known whether the request was carried out",
                "Retry with the same key: it is carried out once, and its answer comes then."),
            Self::Unreadable => (500, "unreadable", "The record of an earlier attempt can't be read",
                "It was left alone. The request may have taken effect. Ask the operator of this API."),
            Self::Failed => (500, "failed", "An earlier attempt failed permanently",
                "A retry with this key is answered in the same way. Send a new request with a new key."),
            Self::ResponseBroken => (500, "response-broken", "The answer broke off",
                "The request may have taken effect. Retry with the same key."),
            Self::Unprotected => (500, "unprotected", "It is not known whether the request was carried out",
                "No record protects it, so a retry may carry it out a second time. Look before you send it again."),
            Self::Misconfigured => (500, "misconfigured", "The idempotency layer is misconfigured",
                "Nothing was done now. Ask the operator of this API."),
        }
    }
}

/// The address of the sections of `problems.md`, each under its code.
const TYPES: &str = "https://docs.rs/lambda-idempotency/latest/lambda_idempotency/http/index.html#";

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
    /// The time until the same request with this key, as it is, may be answered; `None` where it never will.
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
fn seconds(pause: Duration) -> HeaderValue {
    let partial = u64::from(pause.subsec_nanos() > 0);
    HeaderValue::from(pause.as_secs().saturating_add(partial).max(1))
}

/// Checks the page where an API documents its idempotency keys: an absolute address without a
/// fragment.
pub(super) fn documentation(url: &str) -> Result<String, BuildError> {
    let is_absolute = |uri: &Uri| uri.scheme().is_some() && uri.authority().is_some();
    // `Uri` takes nothing else that could end the angle brackets of a `Link` header.
    match url.parse::<Uri>() {
        Ok(uri) if is_absolute(&uri) && !url.contains(['#', '<', '>', '"']) => Ok(url.to_owned()),
        _ => Err(BuildError::Documentation(url.to_owned())),
    }
}
