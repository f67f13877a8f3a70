//! Tests of the module above.

use proptest::prelude::*;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use super::*;

fn parts(uri: &str) -> Parts {
    http::Request::put(uri).body(()).unwrap().into_parts().0
}

fn token(place: &Place, body: &str) -> Option<String> {
    let found = place.token(false, &parts("/"), None, None, body.as_bytes());
    found.unwrap()
}

#[test]
fn a_value_of_the_body_is_the_token() {
    let id = Place::Json(Selector::pointer("/event/id").unwrap());
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
        false,
        &parts("/"),
        None,
        None,
        b"{\"event\": {\"id\": \"\xff\"}}",
    );
    assert_eq!(bytes, Ok(None));
}

#[test]
fn a_body_without_a_key_is_told_from_one_that_is_not_json() {
    let id = Place::Json(Selector::pointer("/id").unwrap());
    for (body, expected) in [
        ("{}", Problem::KeyMissing),
        ("7", Problem::KeyMissing),
        ("", Problem::BodyNotJson),
        ("id=7", Problem::BodyNotJson),
        (r#"{"id": "#, Problem::BodyNotJson),
    ] {
        assert_eq!(id.absence(body.as_bytes()), expected, "{body}");
    }
    assert_eq!(id.absence(b"\"\xff\""), Problem::BodyNotJson);
    let closure = Place::Closure(Arc::new(|_, _| None));
    assert_eq!(closure.absence(b"id=7"), Problem::KeyMissing);
}

#[cfg(feature = "jmespath")]
#[test]
fn a_body_that_an_expression_cannot_read_is_refused() {
    let id = Place::Json(Selector::jmespath("id").unwrap());
    let found = id.token(
        false,
        &parts("/"),
        None,
        None,
        br#"{"id": 7, "a": "\ud83d"}"#,
    );
    assert_eq!(found, Err(Problem::BodyNotJson));
}

#[test]
fn a_parameter_is_taken_from_the_path_and_decoded() {
    let find = |name: &str, pattern, path| {
        Place::PathParameter(name.to_owned()).token(false, &parts(path), pattern, None, b"")
    };
    for (name, pattern, path, expected) in [
        ("id", "/orders/{id}", "/orders/17", "17"),
        ("id", "/orders/{id}", "/orders/a%20b%2F?x=1", "a b/"),
        ("id", "/orders/{id}/lines", "/shop/orders/17/lines", "17"),
        ("rest", "/files/{rest+}", "/files/a/b", "a/b"),
        ("rest", "/files/{*rest}", "/files/a", "a"),
    ] {
        let found = find(name, Some(pattern), path);
        assert_eq!(found, Ok(Some(expected.to_owned())), "{pattern}: {path}");
    }
    let order = |path| find("id", Some("/orders/{id}"), path);
    assert_eq!(order("/orders/%ff"), order("/orders/%FF"));
    assert_ne!(order("/orders/%FF"), order("/orders/%25FF"));
    let list = |values: &[&str]| Fingerprint::of(values).unwrap().as_str().to_owned();
    for name in ["shop", "id"] {
        for (pattern, path, values) in [
            ("/{shop}/{id}", "/7/1%207", ["7", "1 7"]),
            ("/{shop}/o/{*id}", "/7/o/a/b", ["7", "a/b"]),
        ] {
            let found = find(name, Some(pattern), path);
            assert_eq!(found, Ok(Some(list(&values))), "{pattern}: {path}");
        }
    }
    assert_eq!(find("id", Some("/{shop}/{lane}/{id}"), "/7//1"), Ok(None));
    for pattern in [Some("/orders/{id}"), Some("/orders/cart"), None] {
        let found = find("cart", pattern, "/orders/17");
        assert_eq!(found, Err(Problem::Misconfigured), "{pattern:?}");
    }
}

#[test]
fn each_place_has_words_for_an_operator() {
    for (place, expected) in [
        (
            Place::Header(HeaderName::from_static("x-event")),
            "the header `x-event`",
        ),
        (
            Place::Json(Selector::pointer("/a~1b/m~0n").unwrap()),
            "`/a~1b/m~0n` in the JSON body",
        ),
        #[cfg(feature = "jmespath")]
        (
            Place::Json(Selector::jmespath("[tenant, id]").unwrap()),
            "`[tenant, id]` in the JSON body",
        ),
        (
            Place::PathParameter("id".to_owned()),
            "the path parameter `id`",
        ),
        (
            Place::Closure(Arc::new(|_, _| Some("k-1".to_owned()))),
            "the content of the request",
        ),
    ] {
        assert_eq!(place.to_string(), expected);
        assert_eq!(format!("{place:?}"), expected);
    }
}

fn parse(values: &[&[u8]]) -> Result<Option<String>, Problem> {
    parse_form(values, false)
}

fn parse_form(values: &[&[u8]], strict: bool) -> Result<Option<String>, Problem> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
    }
    super::token(&headers, &IDEMPOTENCY_KEY, strict)
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

#[test]
fn strict_mode_refuses_the_bare_form_and_nothing_else() {
    let strict = |value: &str| parse_form(&[value.as_bytes()], true);
    for bare in [
        "a",
        "8e03978e-40d5-43dd-bc93-6894a57f9324",
        "a,b",
        "a;v=1",
        "?1",
        ":YQ==:",
    ] {
        assert_eq!(strict(bare), Err(Problem::KeyNotQuoted), "{bare}");
    }
    assert_eq!(strict(r#""a""#), Ok(Some("a".to_owned())));
    assert_eq!(strict(r#""a"#), Err(Problem::KeyMalformed));
    // Empty is the engine's to refuse, in words of its own.
    assert_eq!(strict(""), Ok(Some(String::new())));
}

/// Reads the same value with another parser of RFC 9651: a string without parameters.
fn oracle(value: &str) -> Option<String> {
    match Parser::new(value).parse::<Item>().ok()? {
        Item {
            bare_item: BareItem::String(text),
            params,
        } if params.is_empty() => Some(text.into()),
        _ => None,
    }
}

fn oracle_sees_a_list(value: &str) -> bool {
    Parser::new(value).parse::<List>().is_ok_and(|list| {
        list.len() > 1 && matches!(list.first(), Some(ListEntry::Item(item)) if matches!(item.bare_item, BareItem::String(_)))
    })
}

/// Values that are almost right, more often than any text would be.
fn values() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("\"".to_owned()),
        2 => Just("\\".to_owned()),
        1 => prop_oneof![Just(","), Just(";"), Just("; v=1"), Just(" "), Just("=")].prop_map(str::to_owned),
        3 => "[ -~]{0,4}",
        1 => any::<char>().prop_filter("a header can hold it", |c| !c.is_control()).prop_map(|c| c.to_string()),
    ];
    let loose = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
    let quoted = "[ -~]{0,12}".prop_map(|text| format!("\"{text}\""));
    prop_oneof![loose, quoted]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn strict_mode_takes_exactly_what_another_parser_of_the_rfc_takes(value in values()) {
        // HTTP takes the white space around a value away before a structured field is parsed (RFC
        // 9110, 5.5).
        let value = value.trim_matches([' ', '\t']);
        let ours = parse_form(&[value.as_bytes()], true);
        match oracle(value) {
            Some(token) => prop_assert_eq!(ours, Ok(Some(token))),
            None if value.is_empty() => prop_assert_eq!(ours, Ok(Some(String::new()))),
            None => prop_assert!(ours.is_err(), "{:?}", ours),
        }
    }

    #[test]
    fn what_the_rfc_reads_as_a_list_or_as_parameters_is_named_so(value in values()) {
        let value = value.trim_matches([' ', '\t']);
        let ours = parse_form(&[value.as_bytes()], true);
        if let Ok(Item { bare_item: BareItem::String(_), params }) = Parser::new(value).parse::<Item>()
            && !params.is_empty()
        {
            prop_assert_eq!(&ours, &Err(Problem::KeyParameters));
        } else if oracle_sees_a_list(value) {
            prop_assert!(matches!(ours, Err(Problem::KeyRepeated | Problem::KeyParameters)), "{:?}", ours);
        }
    }

    #[test]
    fn a_string_in_quotes_means_the_same_in_both_modes(text in "[ -~]{0,40}") {
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        for strict in [false, true] {
            prop_assert_eq!(parse_form(&[quoted.as_bytes()], strict), Ok(Some(text.clone())));
        }
    }
}
