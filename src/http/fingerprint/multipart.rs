//! Takes the fingerprint of a form part by part (RFC 7578, in the syntax of RFC 2046, 5.1.1), so
//! that the boundary, which a client makes anew for each request, doesn't count. Pure.

use crate::protocol::fingerprint::Fingerprint;

/// A form with more parts is hashed as bytes: a hash for each of them would cost more than the
/// request.
const MOST_PARTS: usize = 1_000;

/// The longest boundary (RFC 2046, 5.1.1).
const MOST_CHARACTERS: usize = 70;

/// Takes the fingerprint of a form; `None` where the content type names no form with a boundary, or
/// where two readers could read the body in two ways. Its bytes are hashed then.
pub(super) fn fingerprint(content_type: &str, body: &[u8]) -> Option<Fingerprint> {
    let delimiter = format!("--{}", boundary(content_type)?);
    let parts = parts(body, delimiter.as_bytes())?;
    let parts: Vec<_> = parts.into_iter().map(Fingerprint::bytes).collect();
    Some(Fingerprint::combine(&parts))
}

/// Reads the boundary of a content type. A parameter that is repeated, or has an escape, names none.
fn boundary(content_type: &str) -> Option<&str> {
    let (essence, mut rest) = content_type.split_once(';')?;
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut boundary = None;
    while !rest.trim().is_empty() {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(';').unwrap_or(after.len())),
        };
        let is_boundary = name.trim().eq_ignore_ascii_case("boundary");
        if value.contains('\\') || is_boundary && boundary.replace(value.trim_end()).is_some() {
            return None;
        }
        let after = after.trim_start();
        rest = match after.strip_prefix(';') {
            Some(next) => next,
            None if after.is_empty() => after,
            None => return None,
        };
    }
    boundary.filter(|boundary| {
        let is_usable = |c: char| c.is_ascii_alphanumeric() || "'()+_,-./:=? ".contains(c);
        (1..=MOST_CHARACTERS).contains(&boundary.len()) && boundary.chars().all(is_usable)
    })
}

/// Splits a body at each place where the delimiter is, header fields and content of each part
/// together. A place that is no delimiter line makes the body ambiguous, and so does any text before
/// the first line or after the last.
fn parts<'a>(body: &'a [u8], delimiter: &[u8]) -> Option<Vec<&'a [u8]>> {
    let mut parts = Vec::new();
    let mut rest = body.strip_prefix(delimiter)?;
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            let end = without_padding(end);
            return (end.is_empty() || end == b"\r\n").then_some(parts);
        }
        let part = without_padding(rest).strip_prefix(b"\r\n")?;
        let length = part
            .windows(delimiter.len())
            .position(|at| at == delimiter)?;
        let (part, after) = part.split_at_checked(length)?;
        if parts.len() == MOST_PARTS {
            return None;
        }
        parts.push(part.strip_suffix(b"\r\n")?);
        rest = after.strip_prefix(delimiter)?;
    }
}

/// Skips the white space that a transport may add to a delimiter line.
fn without_padding(line: &[u8]) -> &[u8] {
    let is_padding = |byte: &u8| matches!(byte, b' ' | b'\t');
    let length = line.iter().take_while(|byte| is_padding(byte)).count();
    line.get(length..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
