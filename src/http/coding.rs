//! Opens the content coding of a request, and compares that of an answer with the codings that a
//! client accepts (RFC 9110, 8.4 and 12.5.3). Pure.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderName};

use crate::protocol::gzip;

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

    /// Tells whether the client accepts each coding of an answer with these headers.
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

/// Finds what a list says of a coding: by its name, else by `*`. What it doesn't name isn't
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

/// Tells whether a weight says "not acceptable" (RFC 9110, 12.4.2): `q=0`, `q=0.000`.
fn is_zero(weight: &str) -> bool {
    let Some((name, value)) = weight.split_once('=') else {
        return false;
    };
    let value: Result<f32, _> = value.trim().parse();
    name.trim().eq_ignore_ascii_case("q") && value.is_ok_and(|value| value <= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(accepted: Option<&'static str>, coding: &'static str) -> bool {
        let mut request = HeaderMap::new();
        if let Some(accepted) = accepted {
            request.insert(ACCEPT_ENCODING, accepted.parse().unwrap());
        }
        let mut answer = HeaderMap::new();
        answer.insert(CONTENT_ENCODING, coding.parse().unwrap());
        AcceptedCodings::of(&request).accept(&answer)
    }

    #[test]
    fn a_coding_is_accepted_where_it_is_named_with_a_weight_or_by_a_star() {
        for accepted in [
            "gzip",
            "GZIP",
            "x-gzip",
            "br, gzip",
            "gzip;q=0.001",
            "identity; q=0, gzip ; q=1",
            "*",
            "br;q=0, *;q=0.5",
            "gzip;level=0",
        ] {
            assert!(accepts(Some(accepted), "gzip"), "{accepted}");
        }
        for accepted in [
            "",
            "identity",
            "br",
            "gzip;q=0",
            "gzip; Q=0.000",
            "*;q=0",
            "gzip;q=0, *",
            "notgzip",
        ] {
            assert!(!accepts(Some(accepted), "gzip"), "{accepted}");
        }
    }

    #[test]
    fn a_client_that_does_not_say_accepts_any() {
        assert!(accepts(None, "gzip"));
        assert!(accepts(Some("identity"), "identity"));
    }

    #[test]
    fn each_of_several_codings_must_be_accepted() {
        assert!(accepts(Some("gzip, br"), "br, gzip"));
        assert!(!accepts(Some("gzip"), "br, gzip"));
        let request = HeaderMap::from_iter([(ACCEPT_ENCODING, "br".parse().unwrap())]);
        let plain = HeaderMap::new();
        assert!(AcceptedCodings::of(&request).accept(&plain), "no coding");
    }
}
