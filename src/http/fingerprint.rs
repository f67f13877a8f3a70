//! The fingerprint of a request: method, concrete path, query and body. Pure.

use http::header::CONTENT_TYPE;
use http::request::Parts;

use crate::fingerprint::Fingerprint;

/// Of the request as it was received.
pub(super) fn of(parts: &Parts, body: &[u8]) -> Fingerprint {
    let method = Fingerprint::bytes(parts.method.as_str().as_bytes());
    let path = Fingerprint::bytes(parts.uri.path().as_bytes());
    let query = Fingerprint::bytes(canonical_query(parts.uri.query()).as_bytes());
    let body = if is_json(parts) {
        Fingerprint::json(body)
    } else {
        Fingerprint::bytes(body)
    };
    Fingerprint::combine([&method, &path, &query, &body])
}

/// Sorted by name; values of one name keep their order. `lambda_http` rebuilds the query of REST API and ALB events from a
/// hash map, so that the same request arrives in another order each time.
fn canonical_query(query: Option<&str>) -> String {
    let mut pairs: Vec<&str> = query.unwrap_or_default().split('&').collect();
    pairs.sort_by_key(|pair| pair.split_once('=').map_or(*pair, |(name, _)| name));
    pairs.join("&")
}

/// Whether the content type says `application/json`, or something in JSON's syntax (RFC 6839, 3.1).
fn is_json(parts: &Parts) -> bool {
    let content_type = parts.headers.get(CONTENT_TYPE);
    let essence = content_type
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(|essence| essence.trim().to_ascii_lowercase());
    essence.is_some_and(|essence| essence == "application/json" || essence.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(uri: &str, content_type: &str, body: &str) -> Fingerprint {
        let request = http::Request::post(uri).header(CONTENT_TYPE, content_type);
        of(&request.body(()).unwrap().into_parts().0, body.as_bytes())
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
        assert_ne!(base, of(&patch.into_parts().0, b"x"));
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
}
