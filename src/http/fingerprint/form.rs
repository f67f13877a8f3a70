//! Takes the fingerprint of a form by what it says (<https://url.spec.whatwg.org/#urlencoded-parsing>),
//! so that the choice of what is escaped, and how, doesn't count. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::protocol::fingerprint::Fingerprint;

/// What browsers escape in a form.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'*')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');

/// Takes the fingerprint of a form; `None` where the content type names none in UTF-8, or where two
/// readers could read the body in two ways. Its bytes are hashed then.
///
/// The order of the fields counts, as their handlers see it.
pub(super) fn fingerprint(content_type: &str, body: &[u8]) -> Option<Fingerprint> {
    let (essence, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let is_form = essence
        .trim()
        .eq_ignore_ascii_case("application/x-www-form-urlencoded");
    let parameters = parameters.trim();
    if !is_form || !(parameters.is_empty() || parameters.eq_ignore_ascii_case("charset=utf-8")) {
        return None;
    }
    let fields = body.split(|byte| *byte == b'&').map(field);
    let fields: Vec<_> = fields.collect::<Option<_>>()?;
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const TYPE: &str = "application/x-www-form-urlencoded";

    fn print(body: &str) -> Option<Fingerprint> {
        fingerprint(TYPE, body.as_bytes())
    }

    #[test]
    fn one_form_in_any_escapes_is_one_request() {
        let written = "name=T%C3%A9a+%26+%7Emilk&sku=a-1*";
        assert_eq!(
            print(written),
            Some(Fingerprint::bytes(written.as_bytes())),
            "as a browser writes it"
        );
        for same in [
            "name=T%c3%a9a%20%26%20~milk&sku=a-1*",
            "name=Téa+%26+~milk&sku=a-1*",
            "n%61me=T%C3%A9a+%26+%7emilk&%73ku=a%2D1%2A",
        ] {
            assert_eq!(print(same), print(written), "{same}");
        }
    }

    #[test]
    fn another_form_is_another_request() {
        let all = [
            "a=1&b=2",
            "b=2&a=1",
            "a=1",
            "a=1&b=2&",
            "a=1%26b=2",
            "a=1&b",
            "a=1&b=",
            "a%3D1&b=2",
            "a=1+2",
            "a=1%2B2",
            "a=1=2",
            "",
            "&",
            "A=1",
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(print(one).is_some(), "{one}");
            for other in all.iter().skip(i + 1) {
                assert_ne!(print(one), print(other), "{one} {other}");
            }
        }
        assert_eq!(print("a=1=2"), print("a=1%3D2"));
    }

    #[test]
    fn no_two_forms_that_say_something_else_have_one_fingerprint() {
        const PIECES: [&str; 8] = ["a", "=", "&", "+", "%20", "%3d", "%26", "%2B"];
        let mut said = HashMap::new();
        for number in 0..PIECES.len().pow(4) {
            let digit = |place| number / PIECES.len().pow(place) % PIECES.len();
            let body = (0..4).map(|place| PIECES[digit(place)]).collect::<String>();
            let parsed: Vec<_> = form_urlencoded::parse(body.as_bytes())
                .into_owned()
                .collect();
            let met = said.entry(print(&body)).or_insert_with(|| parsed.clone());
            assert_eq!(*met, parsed, "{body}");
        }
    }

    #[test]
    fn a_body_that_may_be_read_in_two_ways_is_no_form() {
        for body in ["a=%", "a=%4", "a=%zz", "%%41=1", "a=1&b=100%"] {
            assert_eq!(print(body), None, "{body}");
        }
        let of = |content_type| fingerprint(content_type, b"a=1").is_some();
        for form in [
            "Application/X-WWW-Form-Urlencoded",
            "application/x-www-form-urlencoded ; charset=UTF-8",
            "application/x-www-form-urlencoded;",
        ] {
            assert!(of(form), "{form}");
        }
        for other in [
            "",
            "text/plain",
            "application/x-www-form-urlencoded; charset=utf-16",
            "application/x-www-form-urlencodedx",
        ] {
            assert!(!of(other), "{other}");
        }
    }
}
