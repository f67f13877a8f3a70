//! Takes the fingerprint of a request: method, concrete path, query, body, and the headers that
//! were chosen. Pure.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
};
use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::http::operation::{query, whole_path};
use crate::http::settings::Settings;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::gzip;

#[cfg(test)]
mod tests;

impl Settings {
    /// Takes the fingerprint of a request as it was received, but for the coding of its body.
    pub(super) fn fingerprint(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        let text = |text: &str| Fingerprint::bytes(text.as_bytes());
        let mut all = vec![
            text(parts.method.as_str()),
            text(whole_path(parts)),
            text(&canonical_query(query(parts).as_deref())),
            self.of_body(parts, body),
        ];
        let headers = self.fingerprint_headers.iter();
        all.extend(headers.map(|name| header(parts, name)));
        Fingerprint::combine(&all)
    }

    /// Takes the fingerprint of a body: of JSON by its value, of a form by its parts or fields, of
    /// anything else by its bytes.
    fn of_body(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        let content_type = parts.headers.get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        match content_type {
            Some(content_type) if is_json(content_type) => {
                Fingerprint::json_without(body, &self.fingerprint_without)
            }
            Some(content_type) => of_multipart(content_type, body)
                .or_else(|| of_form(content_type, body))
                .unwrap_or_else(|| self.of_other(body)),
            None => self.of_other(body),
        }
    }

    /// Takes the fingerprint of a body that isn't said to be JSON: fields are left out of it all the
    /// same, where it is, since some senders name another content type or none.
    fn of_other(&self, body: &[u8]) -> Fingerprint {
        if self.fingerprint_without.is_empty() {
            Fingerprint::bytes(body)
        } else {
            Fingerprint::json_without(body, &self.fingerprint_without)
        }
    }
}

/// Hashes each value of a header for itself: two headers are not one with a comma. HTTP/2 has the
/// host in the address.
fn header(parts: &Parts, name: &HeaderName) -> Fingerprint {
    let values = parts.headers.get_all(name).iter();
    let is_in_address = *name == HOST && !parts.headers.contains_key(HOST);
    let authority = parts.uri.authority().filter(|_| is_in_address);
    let authority = authority.map(|authority| authority.as_str().as_bytes());
    let values = values.map(HeaderValue::as_bytes).chain(authority);
    let values = values.map(|value| Fingerprint::bytes(value.trim_ascii()));
    let name = Fingerprint::bytes(name.as_str().as_bytes());
    let all: Vec<_> = std::iter::once(name).chain(values).collect();
    Fingerprint::combine(&all)
}

/// Sorts the query by name; values of one name keep their order. `lambda_http` rebuilds the query
/// of REST API and ALB events from a hash map, so that the same request arrives in another order
/// each time.
fn canonical_query(query: Option<&str>) -> String {
    let mut pairs: Vec<&str> = query.unwrap_or_default().split('&').collect();
    pairs.sort_by_key(|pair| pair.split_once('=').map_or(*pair, |(name, _)| name));
    pairs.join("&")
}

/// Returns whether the content type says `application/json`, or something in JSON's syntax (RFC 6839, 3.1).
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// The characters that browsers escape in a form.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'*')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');

/// Takes the fingerprint of a form; `None` where the content type names none in UTF-8, or where two
/// readers could read the body in two ways. Its bytes are hashed then.
///
/// The order of the fields counts, as their handlers see it.
fn of_form(content_type: &str, body: &[u8]) -> Option<Fingerprint> {
    let parameters = parameters(content_type, "application/x-www-form-urlencoded")?;
    let says_utf_8 = |(name, value): &(&str, &str)| {
        name.eq_ignore_ascii_case("charset") && value.eq_ignore_ascii_case("utf-8")
    };
    if !parameters.iter().all(says_utf_8) {
        return None;
    }
    let fields = body.split(|byte| *byte == b'&');
    if fields.clone().nth(MOST_PARTS).is_some() {
        return None;
    }
    let fields: Vec<_> = fields.map(field).collect::<Option<_>>()?;
    Some(Fingerprint::bytes(fields.join("&").as_bytes()))
}

/// Writes a field as browsers do; `None` where an escape has no two digits.
fn field(field: &[u8]) -> Option<String> {
    let parts = field.splitn(2, |byte| *byte == b'=').map(|part| {
        let is_escape = |rest: &[u8]| {
            let digits = rest.first_chunk::<2>();
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let mut escapes = part.split(|byte| *byte == b'%').skip(1);
        if !escapes.all(is_escape) {
            return None;
        }
        let spaced = part
            .iter()
            .map(|byte| if *byte == b'+' { b' ' } else { *byte });
        let spaced: Vec<u8> = spaced.collect();
        let text: Vec<u8> = percent_decode(&spaced).collect();
        Some(percent_encode(&text, ESCAPED).to_string())
    });
    let parts: Vec<_> = parts.collect::<Option<_>>()?;
    Some(parts.join("=").replace("%20", "+"))
}

/// A form with more parts or fields is hashed as bytes: each of them would cost more than the
/// request.
const MOST_PARTS: usize = 1_000;

/// The longest boundary (RFC 2046, 5.1.1).
const MOST_CHARACTERS: usize = 70;

/// Takes the fingerprint of a form; `None` where the content type names no form with a boundary, or
/// where two readers could read the body in two ways. Its bytes are hashed then.
fn of_multipart(content_type: &str, body: &[u8]) -> Option<Fingerprint> {
    let delimiter = format!("--{}", boundary(content_type)?);
    let parts = parts(body, delimiter.as_bytes())?;
    let parts: Vec<_> = parts.into_iter().map(Fingerprint::bytes).collect();
    Some(Fingerprint::combine(&parts))
}

/// Reads the boundary of a content type that names exactly one.
fn boundary(content_type: &str) -> Option<&str> {
    let mut parameters = parameters(content_type, "multipart/form-data")?;
    parameters.retain(|(name, _)| name.eq_ignore_ascii_case("boundary"));
    let [(_, boundary)] = parameters.as_slice() else {
        return None;
    };
    let is_usable = |c: char| c.is_ascii_alphanumeric() || "'()+_,-./:=? ".contains(c);
    let has_length = (1..=MOST_CHARACTERS).contains(&boundary.len());
    (has_length && boundary.chars().all(is_usable)).then_some(*boundary)
}

/// Reads the parameters of a content type, each its name and its value; `None` where it names another
/// type, where one has an escape, or where they can't be read.
fn parameters<'a>(content_type: &'a str, expected: &str) -> Option<Vec<(&'a str, &'a str)>> {
    let (essence, mut rest) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !essence.trim().eq_ignore_ascii_case(expected) {
        return None;
    }
    let mut parameters = Vec::new();
    while !rest.trim().is_empty() {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(';').unwrap_or(after.len())),
        };
        if value.contains('\\') {
            return None;
        }
        parameters.push((name.trim(), value.trim_end()));
        let after = after.trim_start();
        rest = match after.strip_prefix(';') {
            Some(next) => next,
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(parameters)
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

/// Opens the body of a request that is gzip or deflate: the same content is packed in other bytes each
/// time, with the time of packing in them. A body in another coding, or in several, one that is
/// damaged, and one that opens to more than `limit` bytes stays as it is.
pub(super) fn opened(request: &HeaderMap, body: Bytes, limit: usize) -> Bytes {
    let coding = joined(request, &CONTENT_ENCODING).unwrap_or_default();
    let content = match coding.trim() {
        coding if is_same(coding, "gzip") => gzip::unpack(&body, limit),
        coding if is_same(coding, "deflate") => gzip::unpack_deflate(&body, limit),
        _ => return body,
    };
    content.map_or(body, Bytes::from)
}

/// Holds the codings that a request accepts: its `Accept-Encoding`. `None` where it doesn't say,
/// which means any.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceptedCodings(Option<String>);

impl AcceptedCodings {
    /// Reads the codings that a request accepts.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(joined(headers, &ACCEPT_ENCODING))
    }

    /// Returns whether the client accepts each coding of an answer with these headers.
    pub(super) fn accept(&self, answer: &HeaderMap) -> bool {
        let Some(accepted) = &self.0 else {
            return true;
        };
        let codings = joined(answer, &CONTENT_ENCODING).unwrap_or_default();
        let codings = codings.split(',').map(str::trim);
        let mut codings = codings.filter(|coding| !coding.is_empty());
        codings.all(|coding| is_accepted(accepted, coding))
    }
}

/// Joins the values of a header; `None` where there is none, or none that is text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Returns whether a list accepts a coding: by its name, else by `*`. One that it doesn't name isn't
/// accepted, unless it is no coding at all.
fn is_accepted(accepted: &str, coding: &str) -> bool {
    let said_of = |name: &str| {
        let mut said = accepted.split(',').filter_map(|item| {
            let (item, weight) = item.split_once(';').unwrap_or((item, ""));
            is_same(item.trim(), name).then(|| !is_zero(weight))
        });
        said.next()
    };
    let any = || said_of("*");
    let said = said_of(coding).or_else(any);
    said.unwrap_or_else(|| coding.eq_ignore_ascii_case("identity"))
}

/// Compares two codings; `x-gzip` and `x-compress` are other names (RFC 9110, 8.4.1).
fn is_same(one: &str, other: &str) -> bool {
    let name = |coding: &str| {
        let coding = coding.to_ascii_lowercase();
        coding
            .strip_prefix("x-")
            .map(str::to_owned)
            .unwrap_or(coding)
    };
    name(one) == name(other)
}

/// Returns whether a weight says "not acceptable" (RFC 9110, 12.4.2): `q=0`, `q=0.000`.
fn is_zero(weight: &str) -> bool {
    let Some((name, value)) = weight.split_once('=') else {
        return false;
    };
    let value: Result<f32, _> = value.trim().parse();
    name.trim().eq_ignore_ascii_case("q") && value.is_ok_and(|value| value <= 0.0)
}
