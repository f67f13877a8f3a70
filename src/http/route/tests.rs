use super::*;

fn request(method: &str, uri: &str) -> Parts {
    let request = http::Request::builder().method(method).uri(uri);
    request.body(()).unwrap().into_parts().0
}

fn matches(pattern: &str, method: &str, uri: &str) -> bool {
    Pattern::parse(pattern)
        .unwrap()
        .matches(&request(method, uri))
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
        ("POST /", "POST", "/", true),
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
        ("P@ST /orders", "no method"),
        ("GET /orders", "safe"),
        ("OPTIONS /orders", "safe"),
        ("POST /{rest+}/lines", "last segment"),
    ] {
        let error = Pattern::parse(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn the_first_of_two_that_match_counts() {
    let mut routes = Routes::default();
    routes.declare("POST /orders/new", Route::off()).unwrap();
    routes
        .declare("POST /orders/{id}", Route::required())
        .unwrap();
    let found = |uri| routes.find(&request("POST", uri)).map(|(_, route)| route);
    assert_eq!(found("/orders/new"), Some(Route::off()));
    assert_eq!(found("/orders/17"), Some(Route::required()));
    assert_eq!(found("/carts"), None);
}

#[test]
fn a_template_that_stands_for_many_operations_names_none() {
    let template = |text| Pattern::parse(text).unwrap().template().map(str::to_owned);
    assert_eq!(
        template("POST /orders/{id}").as_deref(),
        Some("/orders/{id}")
    );
    assert_eq!(template("POST /{proxy+}"), None);
}
