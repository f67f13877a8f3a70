//! Tests of the module above.

use super::*;

fn route(text: &str) -> Route {
    text.parse().unwrap()
}

fn matches(text: &str, method: &str, uri: &str) -> bool {
    let uri: http::Uri = uri.parse().unwrap();
    route(text).matches(&method.parse().unwrap(), None, uri.path())
}

#[test]
fn a_route_matches_its_method_and_each_path_of_its_template() {
    for (pattern, method, uri, expected) in [
        ("POST /orders", "POST", "/orders", true),
        ("POST /orders", "POST", "/orders?dry=1", true),
        ("POST /orders", "PATCH", "/orders", false),
        ("POST /orders", "POST", "/orders/", false),
        ("POST /orders", "POST", "/ordersx", false),
        ("POST /orders/{id}", "POST", "/orders/17", true),
        ("POST /orders/{id}", "POST", "/orders/", false),
        ("POST /orders/{id}", "POST", "/orders/17/lines", false),
        ("POST /orders/{id}/lines", "POST", "/orders/17/lines", true),
        ("ANY /orders", "PUT", "/orders", true),
        ("/orders", "DELETE", "/orders", true),
        ("POST /{proxy+}", "POST", "/a/b", true),
        ("POST /{*rest}", "POST", "/a", true),
        ("POST /{*rest}", "POST", "/a/b", true),
        ("POST /{*rest}", "POST", "/", false),
        ("POST /{*rest}", "POST", "//a", true),
        ("POST /files/{*rest}", "POST", "/files//a", true),
        ("POST /", "POST", "/", true),
        (" post \t/orders ", "POST", "/orders", true),
        ("any /orders", "DELETE", "/orders", true),
        ("POST /orders/{order-id}", "POST", "/orders/17", true),
        (
            "DELETE /orders/$default",
            "DELETE",
            "/orders/$default",
            true,
        ),
    ] {
        assert_eq!(
            matches(pattern, method, uri),
            expected,
            "{pattern}: {method} {uri}"
        );
    }
}

#[test]
fn a_route_that_cannot_be_meant_is_refused_when_it_is_declared() {
    for (text, word) in [
        ("", "slash"),
        ("orders", "slash"),
        ("POST orders", "slash"),
        ("POST /orders?x=1", "slash"),
        ("P@ST /orders", "the method is POST"),
        ("PSOT /orders", "the method is POST"),
        ("CONNECT /orders", "the method is POST"),
        ("* /orders", "or ANY"),
        ("GET /orders", "safe"),
        ("POST /orders/:id", "braces"),
        ("POST /orders/<id>", "braces"),
        ("POST /orders/{id", "a pair of braces"),
        ("POST /orders/id}", "a pair of braces"),
        ("POST /orders/{id}.json", "a whole segment"),
        ("POST /orders/{a}-{b}", "a whole segment"),
        ("POST /{rest+", "a pair of braces"),
        ("POST /*rest}", "a pair of braces"),
        ("POST /orders/{}", "has a name"),
        ("POST /orders/{+}", "has a name"),
        ("POST /orders/*", "all that follows"),
        ("POST /*/lines", "all that follows"),
        ("OPTIONS /orders", "safe"),
        ("POST /{rest+}/lines", "last segment"),
    ] {
        let error = text.parse::<Route>().unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn a_route_matches_the_template_that_the_gateway_has_matched() {
    let orders = route("POST /orders/{id}");
    let matches = |template| orders.matches(&Method::POST, template, "/shop/orders/17");
    assert!(matches(Some("/orders/{id}")), "behind a base path");
    assert!(!matches(Some("/orders")) && !matches(None));
    assert!(!orders.matches(&Method::PUT, Some("/orders/{id}"), "/orders/17"));
}

#[test]
fn a_slash_at_the_end_that_the_gateway_ignores_moves_no_parameter() {
    for template in ["/orders/{id}", "/orders/{id}/"] {
        let found = positions(template, "id").unwrap();
        for path in ["/orders/17", "/shop/orders/17/"] {
            let values: Vec<_> = found.iter().map(|id| id.of(path)).collect();
            assert_eq!(values, [Some("17")], "{path} by {template}");
        }
    }
}

#[test]
fn a_path_is_the_template_of_one_operation_unless_a_parameter_of_it_is_greedy() {
    for (path, expected) in [
        ("/orders/{id}", true),
        ("/orders/", true),
        ("/", true),
        ("/{proxy+}", false),
        ("/orders/{*rest}", false),
        ("$default", false),
        ("orders/", false),
    ] {
        assert_eq!(is_template(path), expected, "{path}");
    }
}

#[test]
fn a_template_that_stands_for_many_operations_names_none() {
    let template = |text| route(text).template().map(str::to_owned);
    assert_eq!(
        template("POST /orders/{id}").as_deref(),
        Some("/orders/{id}")
    );
    assert_eq!(template("POST /{proxy+}"), None);
}
