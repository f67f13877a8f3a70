//! Selects the key of a request: in a header, in the body, in the path, or by a closure.

use std::fmt;
use std::sync::Arc;

use http::header::HeaderValue;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use serde_json::value::RawValue;

use crate::http::operation::{is_decoded, path};
use crate::http::problem::Problem;
use crate::http::route;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::IntoToken;
use crate::protocol::selector::JsonSelector;
use crate::setup::BuildError;

#[cfg(test)]
mod tests;

/// Finds the key in a request and its body.
type Closure = dyn Fn(&Parts, &[u8]) -> Option<String> + Send + Sync;

/// Selects the key of a request, for [`RoutePolicy::key_from`](super::RoutePolicy::key_from).
///
/// ```
/// use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy, Selector};
/// use lambda_idempotency::{Idempotency, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let webhook = RoutePolicy::required().key_from(Selector::pointer("/event/id")?);
/// let order = RoutePolicy::required().key_from(Selector::path_parameter("id"));
/// let layer = IdempotencyLayer::unscoped(once)
///     .route("POST /webhooks/payments", webhook)?
///     .route("PUT /orders/{id}", order)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A body is read up to [`body_limit`](super::Settings::body_limit), whatever its content type,
/// and out of its [coding](super#the-same-request). The value that a selector finds makes the key:
///
/// | what is found | the key |
/// |---|---|
/// | a string | the string |
/// | a number, `true`, `false` | its canonical JSON text ([RFC 8785](https://www.rfc-editor.org/rfc/rfc8785)): `7`, `7.0` and `"7"` are one key |
/// | a list, an object | the [fingerprint](crate::Fingerprint) of its canonical JSON |
/// | nothing, `null`, `""`, `[]`, `{}` | none: the route's policy for a missing key |
/// | a list or an object that holds `null` or `""`, at any depth | none: a part of the identity is missing |
///
/// A request without a required key gets [`key-missing`](super#key-missing), whose detail names the
/// place, and one whose body is not JSON gets [`body-not-json`](super#body-not-json). The
/// [fingerprint](super#the-same-request) covers the whole body, whichever part of it is the key.
#[derive(Clone)]
pub struct Selector(Place);

#[derive(Clone)]
enum Place {
    Header(HeaderName),
    Json(JsonSelector),
    PathParameter(Arc<str>),
    Closure(Arc<Closure>),
}

impl Selector {
    /// Selects the value of a header. It is read as the layer's own
    /// [header](super::IdempotencyLayer::header) is: bare, or in double quotes.
    pub fn header(name: HeaderName) -> Self {
        Self(Place::Header(name))
    }

    /// Selects the value that a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901))
    /// finds in the body, such as `/event/id`. Numbers keep all their digits.
    ///
    /// # Errors
    ///
    /// The text is no JSON pointer.
    pub fn pointer(pointer: &str) -> Result<Self, BuildError> {
        Ok(Self(Place::Json(JsonSelector::pointer(pointer)?)))
    }

    /// Selects the value that a [JMESPath](https://jmespath.org) expression finds in the body, such
    /// as `[account, event.id]`.
    ///
    /// The expression is compiled once, here. One that fails on a body, because a function was
    /// given the wrong type, finds nothing in it. Numbers beyond 64 bits lose digits, and `7` and
    /// `7.0` are not equal; a pointer keeps all digits. JSON with half of a surrogate pair, with a
    /// number beyond a double's range or of more than 127 levels can't be read: such a request gets
    /// [`body-not-json`](super#body-not-json), even where the key is optional.
    ///
    /// # Errors
    ///
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    pub fn jmespath(expression: &str) -> Result<Self, BuildError> {
        Ok(Self(Place::Json(JsonSelector::jmespath(expression)?)))
    }

    /// Selects a parameter of the route's template: `id` of `PUT /orders/{id}`, percent-decoded.
    ///
    /// The parameter is one of the declared route's; with
    /// [`other_routes`](super::IdempotencyLayer::other_routes), one of the template that API
    /// Gateway or axum matched. A request whose template doesn't have it gets
    /// [`misconfigured`](super#misconfigured).
    pub fn path_parameter(name: impl Into<String>) -> Self {
        Self(Place::PathParameter(name.into().into()))
    }

    /// Selects what a closure makes of the request and its body: any [text](IntoToken), or an
    /// `Option` of it. An empty text counts as none.
    ///
    /// The key must be the same on each retry, and another for another request.
    ///
    /// ```
    /// use lambda_idempotency::http::{RoutePolicy, Selector};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Webhook {
    ///     account: String,
    ///     id: u64,
    /// }
    ///
    /// let delivery = Selector::closure(|_, body| {
    ///     let webhook: Webhook = serde_json::from_slice(body).ok()?;
    ///     Some(format!("{}/{}", webhook.account, webhook.id))
    /// });
    /// let policy = RoutePolicy::required().key_from(delivery);
    /// ```
    pub fn closure<V: IntoToken>(key: impl Fn(&Parts, &[u8]) -> V + Send + Sync + 'static) -> Self {
        let key = move |parts: &Parts, body: &[u8]| key(parts, body).into_token();
        Self(Place::Closure(Arc::new(key)))
    }

    /// Tells whether the key may be in the body.
    pub(super) fn reads_body(&self) -> bool {
        matches!(self.0, Place::Json(_) | Place::Closure(_))
    }

    /// Takes the token from a request. `pattern` is the route's path as it was declared or matched,
    /// `nested` what a nested router has left of the request's, where that is what it matches.
    pub(super) fn token(
        &self,
        strict: bool,
        parts: &Parts,
        pattern: Option<&str>,
        nested: Option<&str>,
        body: &[u8],
    ) -> Result<Option<String>, Problem> {
        let token = match &self.0 {
            Place::Header(name) => return token(&parts.headers, name, strict),
            Place::Json(json) => {
                let text = std::str::from_utf8(body).unwrap_or_default();
                json.token(text).map_err(|_| Problem::BodyNotJson)?
            }
            Place::PathParameter(name) => {
                let segment = pattern.and_then(|path| route::position(path, name));
                let segment = segment.ok_or(Problem::Misconfigured)?;
                // Counted from the end, it is the same in the whole path, which a gateway may have decoded.
                let nested = nested.filter(|_| !matches!(segment, route::Position::FromEnd(_)));
                let segment = segment.of(nested.unwrap_or_else(|| path(parts)));
                segment.map(|segment| {
                    if nested.is_none() && is_decoded(parts) {
                        segment.to_owned()
                    } else {
                        decoded(segment)
                    }
                })
            }
            Place::Closure(closure) => closure(parts, body),
        };
        Ok(token.filter(|token| !token.is_empty()))
    }

    /// Says why a body has no key.
    pub(super) fn absence(&self, body: &[u8]) -> Problem {
        match &self.0 {
            Place::Json(_) if serde_json::from_slice::<&RawValue>(body).is_err() => {
                Problem::BodyNotJson
            }
            _ => Problem::KeyMissing,
        }
    }
}

/// Decodes a segment of a path; one that isn't UTF-8 is hashed: another segment may decode to its text.
fn decoded(segment: &str) -> String {
    let hash = |bytes: &[u8]| Fingerprint::bytes(bytes).as_str().to_owned();
    String::from_utf8(percent_decode_str(segment).collect())
        .unwrap_or_else(|error| hash(error.as_bytes()))
}

/// Names the place for an operator: the end of the sentence "This API takes it from …".
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Header(name) => write!(f, "the header `{name}`"),
            Place::Json(json) => write!(f, "`{json}` in the JSON body"),
            Place::PathParameter(name) => write!(f, "the path parameter `{name}`"),
            Place::Closure(_) => f.write_str("the content of the request"),
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector({self})")
    }
}

/// The header that carries the key, unless configured otherwise.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Takes the token from the header; `None` where there is no such header.
///
/// Clients send it bare, or as the string that the IETF draft asks for (RFC 9651, 3.3.3): both name
/// the same key. Length and emptiness are the engine's to judge. A bare comma is how some gateways
/// join a repeated header, and a bare semicolon how parameters begin, so either has to be quoted.
pub(super) fn token(
    headers: &HeaderMap,
    name: &HeaderName,
    strict: bool,
) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::KeyRepeated);
    }
    let text = printable(value)?;
    match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted).map(Some),
        None if strict && !text.is_empty() => Err(Problem::KeyNotQuoted),
        None => bare(text).map(Some),
    }
}

fn printable(value: &HeaderValue) -> Result<&str, Problem> {
    // White space around a value belongs to the message, not to the value (RFC 9110, 5.5).
    let bytes = value.as_bytes().trim_ascii();
    if bytes.iter().any(u8::is_ascii_control) {
        return Err(Problem::KeyControlCharacter);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Ok(text),
        _ => Err(Problem::KeyNotAscii),
    }
}

fn bare(text: &str) -> Result<String, Problem> {
    match text.find([',', ';']) {
        None => Ok(text.to_owned()),
        Some(at) if text.get(at..).is_some_and(|rest| rest.starts_with(',')) => {
            Err(Problem::KeyRepeated)
        }
        Some(_) => Err(Problem::KeyParameters),
    }
}

/// Takes the text between the quotes; `rest` begins after the first.
fn unquote(rest: &str) -> Result<String, Problem> {
    let mut token = String::with_capacity(rest.len());
    let mut chars = rest.chars();
    loop {
        match chars.next() {
            Some('"') => break,
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => token.push(escaped),
                _ => return Err(Problem::KeyMalformed),
            },
            Some(other) => token.push(other),
            None => return Err(Problem::KeyMalformed),
        }
    }
    match chars.as_str().trim_start().chars().next() {
        None => Ok(token),
        Some(',') => Err(Problem::KeyRepeated),
        Some(';') => Err(Problem::KeyParameters),
        Some(_) => Err(Problem::KeyMalformed),
    }
}
