//! Finds the key of a request: in a header, in the body, in the path, or by a closure.

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
use crate::protocol::selector::Selector;

#[cfg(test)]
mod tests;

/// Finds the key in a request and its body.
type Closure = dyn Fn(&Parts, &[u8]) -> Option<String> + Send + Sync;

/// The place of a request's key.
#[derive(Clone)]
pub(super) enum Place {
    Header(HeaderName),
    Json(Selector),
    PathParameter(String),
    Closure(Arc<Closure>),
}

impl Place {
    /// Returns whether the requests of a route with this path can have the key.
    pub(super) fn fits(&self, path: &str) -> bool {
        let Self::PathParameter(name) = self else {
            return true;
        };
        route::positions(path, name).is_some()
    }

    /// Returns whether the key may be in the body.
    pub(super) fn reads_body(&self) -> bool {
        matches!(self, Self::Json(_) | Self::Closure(_))
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
        let token = match self {
            Self::Header(name) => return token(&parts.headers, name, strict),
            Self::Json(json) => {
                let text = std::str::from_utf8(body).unwrap_or_default();
                json.token(text).map_err(|_| Problem::BodyNotJson)?
            }
            Self::PathParameter(name) => {
                let found = pattern.and_then(|path| route::positions(path, name));
                let found = found.ok_or(Problem::Misconfigured)?;
                let values = found.iter().map(|at| value(*at, parts, nested));
                let values: Option<Vec<_>> = values.collect();
                values.and_then(|values| match <[_; 1]>::try_from(values) {
                    Ok([only]) => Some(only),
                    Err(several) => Some(Fingerprint::of(&several).ok()?.as_str().to_owned()),
                })
            }
            Self::Closure(closure) => closure(parts, body),
        };
        Ok(token.filter(|token| !token.is_empty()))
    }

    /// Says why a body has no key.
    pub(super) fn absence(&self, body: &[u8]) -> Problem {
        match self {
            Self::Json(_) if serde_json::from_slice::<&RawValue>(body).is_err() => {
                Problem::BodyNotJson
            }
            _ => Problem::KeyMissing,
        }
    }
}

/// Returns what a request's path has in a position, decoded; `None` where that is nothing.
fn value(at: route::Position, parts: &Parts, nested: Option<&str>) -> Option<String> {
    // Counted from the end, it is the same in the whole path, which a gateway may have decoded.
    let nested = nested.filter(|_| !matches!(at, route::Position::FromEnd(_)));
    let text = at.of(nested.unwrap_or_else(|| path(parts)));
    let text = text.filter(|text| !text.is_empty())?;
    Some(if nested.is_none() && is_decoded(parts) {
        text.to_owned()
    } else {
        decoded(text)
    })
}

/// Decodes a segment of a path; one that isn't UTF-8 is hashed: another segment may decode to its text.
fn decoded(segment: &str) -> String {
    let hash = |bytes: &[u8]| Fingerprint::bytes(bytes).as_str().to_owned();
    String::from_utf8(percent_decode_str(segment).collect())
        .unwrap_or_else(|error| hash(error.as_bytes()))
}

/// Names the place for an operator: the end of the sentence "This API takes it from …".
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "the header `{name}`"),
            Self::Json(json) => write!(f, "`{json}` in the JSON body"),
            Self::PathParameter(name) => write!(f, "the path parameter `{name}`"),
            Self::Closure(_) => f.write_str("the content of the request"),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
