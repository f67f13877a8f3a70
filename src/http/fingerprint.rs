//! Takes the fingerprint of a request: method, concrete path, query, body, and the headers that
//! were chosen. Pure.

mod form;
mod multipart;

use http::header::{CONTENT_TYPE, HeaderName};
use http::request::Parts;

use super::operation::uri;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

/// Selects the headers that count, and the fields of a JSON body that don't.
#[derive(Clone, Debug, Default)]
pub(super) struct FingerprintSettings {
    pub(super) headers: Vec<HeaderName>,
    pub(super) without: Vec<Pointer>,
}

impl FingerprintSettings {
    /// Takes the fingerprint of a request as it was received, but for the coding of its body.
    pub(super) fn of(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        let text = |text: &str| Fingerprint::bytes(text.as_bytes());
        let uri = uri(parts);
        let mut all = vec![
            text(parts.method.as_str()),
            text(uri.path()),
            text(&canonical_query(uri.query())),
            self.of_body(parts, body),
        ];
        all.extend(self.headers.iter().map(|name| header(parts, name)));
        Fingerprint::combine(&all)
    }

    /// Takes the fingerprint of a body: of JSON by its value, of a form by its parts or fields, of
    /// anything else by its bytes.
    fn of_body(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        let content_type = parts.headers.get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        match content_type {
            Some(content_type) if is_json(content_type) => {
                Fingerprint::json_without(body, &self.without)
            }
            Some(content_type) => multipart::fingerprint(content_type, body)
                .or_else(|| form::fingerprint(content_type, body))
                .unwrap_or_else(|| Fingerprint::bytes(body)),
            None => Fingerprint::bytes(body),
        }
    }
}

/// Hashes each value of a header for itself: two headers are not one with a comma.
fn header(parts: &Parts, name: &HeaderName) -> Fingerprint {
    let values = parts.headers.get_all(name).iter();
    let values = values.map(|value| Fingerprint::bytes(value.as_bytes().trim_ascii()));
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

/// Tells whether the content type says `application/json`, or something in JSON's syntax (RFC 6839, 3.1).
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(uri: &str, content_type: &str, body: &str) -> Fingerprint {
        let request = http::Request::post(uri).header(CONTENT_TYPE, content_type);
        let request = request.body(()).unwrap();
        FingerprintSettings::default().of(&request.into_parts().0, body.as_bytes())
    }

    #[test]
    fn method_path_query_and_body_all_count() {
        let base = print("/orders/1?a=1", "text/plain", "x");
        for other in [
            print("/orders/2?a=1", "text/plain", "x"),
            print("/orders/1?a=2", "text/plain", "x"),
            print("/orders/1", "text/plain", "x"),
            print("/orders/1?a=1", "text/plain", "y"),
        ] {
            assert_ne!(base, other);
        }
        let patch = http::Request::patch("/orders/1?a=1").body(()).unwrap();
        assert_ne!(
            base,
            FingerprintSettings::default().of(&patch.into_parts().0, b"x")
        );
    }

    #[test]
    fn the_order_of_parameters_does_not_matter_but_that_of_repeated_ones_does() {
        assert_eq!(
            print("/?a=1&b=2&a=3", "", ""),
            print("/?b=2&a=1&a=3", "", "")
        );
        assert_ne!(print("/?a=1&a=3", "", ""), print("/?a=3&a=1", "", ""));
    }

    #[test]
    fn json_is_compared_by_value_where_the_content_type_says_so() {
        let (one, other) = (r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#);
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/vnd.shop.order+json",
        ] {
            assert_eq!(print("/", json, one), print("/", json, other), "{json}");
        }
        for opaque in ["", "text/plain", "application/jsonp", "multipart/form-data"] {
            assert_ne!(
                print("/", opaque, one),
                print("/", opaque, other),
                "{opaque}"
            );
        }
    }

    #[test]
    fn a_chosen_header_counts_with_each_of_its_values() {
        let print = |values: &[&str], settings: &FingerprintSettings| {
            let mut request = http::Request::post("/").body(()).unwrap();
            for value in values {
                let value = value.parse().unwrap();
                request.headers_mut().append("x-currency", value);
            }
            settings.of(&request.into_parts().0, b"")
        };
        let settings = FingerprintSettings {
            headers: vec![HeaderName::from_static("x-currency")],
            ..FingerprintSettings::default()
        };
        let all = [
            &[][..],
            &[""],
            &["EUR"],
            &["USD"],
            &["EUR", "USD"],
            &["EUR, USD"],
        ];
        for (i, one) in all.iter().enumerate() {
            for other in all.iter().skip(i + 1) {
                assert_ne!(print(one, &settings), print(other, &settings));
                assert_eq!(
                    print(one, &FingerprintSettings::default()),
                    print(other, &FingerprintSettings::default())
                );
            }
        }
    }
}
