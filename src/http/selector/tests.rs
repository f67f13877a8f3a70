use super::*;

fn parts(uri: &str) -> Parts {
    http::Request::put(uri).body(()).unwrap().into_parts().0
}

fn token(selector: &Selector, body: &str) -> Option<String> {
    let found = selector.token(Form::Any, &parts("/"), None, body.as_bytes());
    found.unwrap()
}

#[test]
fn a_value_of_the_body_is_the_token() {
    let id = Selector::pointer("/event/id").unwrap();
    for (body, expected) in [
        (r#"{"event": {"id": "e-1"}}"#, Some("e-1")),
        (r#"{"event": {"id": 7.0}}"#, Some("7")),
        (r#"{"event": {"id": ""}}"#, None),
        (r#"{"event": {"id": null}}"#, None),
        (r#"{"event": {}}"#, None),
        ("garbled", None),
    ] {
        assert_eq!(token(&id, body).as_deref(), expected, "{body}");
    }
    let bytes = id.token(
        Form::Any,
        &parts("/"),
        None,
        b"{\"event\": {\"id\": \"\xff\"}}",
    );
    assert_eq!(bytes, Ok(None));
}

#[test]
fn a_body_without_a_key_is_told_from_one_that_is_not_json() {
    let id = Selector::pointer("/id").unwrap();
    for (body, expected) in [
        ("{}", Problem::KeyMissing),
        ("7", Problem::KeyMissing),
        ("", Problem::BodyNotJson),
        ("id=7", Problem::BodyNotJson),
        (r#"{"id": "#, Problem::BodyNotJson),
    ] {
        assert_eq!(id.absence(body.as_bytes()), expected, "{body}");
    }
    let closure = Selector::closure(|_, _| None::<String>);
    assert_eq!(closure.absence(b"id=7"), Problem::KeyMissing);
}

#[test]
fn a_parameter_is_taken_from_the_path_and_decoded() {
    let find = |name: &str, pattern, path| {
        Selector::path_parameter(name).token(Form::Any, &parts(path), pattern, b"")
    };
    for (name, pattern, path, expected) in [
        ("id", "/orders/{id}", "/orders/17", "17"),
        ("id", "/orders/{id}", "/orders/a%20b%2F?x=1", "a b/"),
        ("id", "/orders/{id}", "/orders/%ff", "%ff"),
        ("id", "/orders/{id}/lines", "/shop/orders/17/lines", "17"),
        ("shop", "/{shop}/{id}", "/7/17", "7"),
        ("rest", "/files/{rest+}", "/files/a/b", "a/b"),
        ("rest", "/files/{*rest}", "/files/a", "a"),
        ("shop", "/{shop}/{*rest}", "/7/a/b", "7"),
    ] {
        let found = find(name, Some(pattern), path);
        assert_eq!(found, Ok(Some(expected.to_owned())), "{pattern}: {path}");
    }
    for pattern in [Some("/orders/{id}"), Some("/orders/cart"), None] {
        let found = find("cart", pattern, "/orders/17");
        assert_eq!(found, Err(Problem::Misconfigured), "{pattern:?}");
    }
}

#[test]
fn each_place_has_words_for_a_person() {
    for (selector, expected) in [
        (
            Selector::header(HeaderName::from_static("x-event")),
            "the header `x-event`",
        ),
        (
            Selector::pointer("/a~1b/m~0n").unwrap(),
            "`/a~1b/m~0n` in the JSON body",
        ),
        #[cfg(feature = "jmespath")]
        (
            Selector::jmespath("[tenant, id]").unwrap(),
            "`[tenant, id]` in the JSON body",
        ),
        (Selector::path_parameter("id"), "the path parameter `id`"),
        (
            Selector::closure(|_, _| "k-1"),
            "the content of the request",
        ),
    ] {
        assert_eq!(selector.to_string(), expected);
        assert_eq!(format!("{selector:?}"), format!("Selector({expected})"));
    }
}
