//! The key as a client sends it. Pure.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::problem::Problem;

/// The header that carries the key, unless configured otherwise.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The token in the header; `None` where there is no such header.
///
/// Clients send it bare, or as the string that the IETF draft asks for (RFC 8941, 3.3.3): both name the same key. Length and
/// emptiness are the engine's to judge. A bare comma is how some gateways join a repeated header, and a bare semicolon
/// how parameters begin, so either has to be quoted.
pub(super) fn token(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
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

/// What stands between the quotes; `rest` begins after the first.
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
mod tests {
    use super::*;

    fn parse(values: &[&[u8]]) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        }
        token(&headers, &IDEMPOTENCY_KEY)
    }

    #[test]
    fn a_missing_header_is_no_token() {
        assert_eq!(parse(&[]), Ok(None));
    }

    #[test]
    fn bare_and_quoted_name_the_same_key() {
        for (value, token) in [
            (
                r"8e03978e-40d5-43dd-bc93-6894a57f9324",
                "8e03978e-40d5-43dd-bc93-6894a57f9324",
            ),
            (
                r#""8e03978e-40d5-43dd-bc93-6894a57f9324""#,
                "8e03978e-40d5-43dd-bc93-6894a57f9324",
            ),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r#"a"b\c"#, r#"a"b\c"#),
            ("  order 17\t", "order 17"),
            (r#" "order 17" "#, "order 17"),
            (r#"" order 17""#, " order 17"),
            (r#""a,b;c""#, "a,b;c"),
            ("", ""),
            (r#""""#, ""),
        ] {
            assert_eq!(
                parse(&[value.as_bytes()]),
                Ok(Some(token.to_owned())),
                "{value}"
            );
        }
    }

    #[test]
    fn each_bad_header_is_refused_for_its_own_reason() {
        for (value, problem) in [
            (&b"a,b"[..], Problem::KeyRepeated),
            (br#""a","b""#, Problem::KeyRepeated),
            (br#""a" , "b""#, Problem::KeyRepeated),
            (b"a;v=1", Problem::KeyParameters),
            (br#""a";v=1"#, Problem::KeyParameters),
            (br#""a"#, Problem::KeyMalformed),
            (br#"""#, Problem::KeyMalformed),
            (br#""a\"#, Problem::KeyMalformed),
            (br#""a\n""#, Problem::KeyMalformed),
            (br#""a"b"#, Problem::KeyMalformed),
            (b"a\tb", Problem::KeyControlCharacter),
            (b"\"a\tb\"", Problem::KeyControlCharacter),
            ("schlüssel".as_bytes(), Problem::KeyNotAscii),
            (b"\xff\xfe", Problem::KeyNotAscii),
        ] {
            assert_eq!(parse(&[value]), Err(problem), "{value:?}");
        }
    }

    #[test]
    fn two_headers_are_refused_even_when_they_agree() {
        assert_eq!(parse(&[b"a", b"a"]), Err(Problem::KeyRepeated));
    }
}
