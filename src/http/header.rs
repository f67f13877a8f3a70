//! Parses the key as a client sends it. Pure.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::problem::Problem;

/// The header that carries the key, unless configured otherwise.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Selects the forms of a key that are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Bare too: what clients really send.
    #[default]
    Any,
    /// Only the structured-field string that the draft asks for.
    Quoted,
}

/// Takes the token from the header; `None` where there is no such header.
///
/// Clients send it bare, or as the string that the IETF draft asks for (RFC 9651, 3.3.3): both name
/// the same key. Length and emptiness are the engine's to judge. A bare comma is how some gateways
/// join a repeated header, and a bare semicolon how parameters begin, so either has to be quoted.
pub(super) fn token(
    headers: &HeaderMap,
    name: &HeaderName,
    form: Form,
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
        None if form == Form::Quoted && !text.is_empty() => Err(Problem::KeyNotQuoted),
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

#[cfg(test)]
mod tests;
