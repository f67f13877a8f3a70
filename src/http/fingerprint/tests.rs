//! Tests of the module above.

use std::collections::HashMap;

use super::*;

fn print(uri: &str, content_type: &str, body: &str) -> Fingerprint {
    let request = http::Request::post(uri).header(CONTENT_TYPE, content_type);
    let request = request.body(()).unwrap();
    Settings::default().fingerprint(&request.into_parts().0, body.as_bytes())
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
    let patch = Settings::default().fingerprint(&patch.into_parts().0, b"x");
    assert_ne!(base, patch);
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
fn fields_are_left_out_of_json_whatever_the_content_type_says() {
    let settings = Settings {
        fingerprint_without: vec!["/delivery".parse().unwrap()],
        ..Settings::default()
    };
    let of = |content_type: &str, body: &str| {
        let request = http::Request::post("/").header(CONTENT_TYPE, content_type);
        let parts = request.body(()).unwrap().into_parts().0;
        settings.fingerprint(&parts, body.as_bytes())
    };
    for content_type in ["application/json", "text/plain", ""] {
        let first = of(content_type, r#"{"id":1,"delivery":1}"#);
        assert_eq!(first, of(content_type, r#"{"id":1,"delivery":2}"#));
        assert_ne!(first, of(content_type, r#"{"id":2,"delivery":1}"#));
    }
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
    let print = |values: &[&str], settings: &Settings| {
        let mut request = http::Request::post("/").body(()).unwrap();
        for value in values {
            let value = value.parse().unwrap();
            request.headers_mut().append("x-currency", value);
        }
        settings.fingerprint(&request.into_parts().0, b"")
    };
    let settings = Settings {
        fingerprint_headers: vec![HeaderName::from_static("x-currency")],
        ..Settings::default()
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
                print(one, &Settings::default()),
                print(other, &Settings::default())
            );
        }
    }
}

#[test]
fn a_host_in_the_address_counts_as_the_header() {
    let settings = Settings {
        fingerprint_headers: vec![HOST],
        ..Settings::default()
    };
    let print = |request: http::request::Builder| {
        settings.fingerprint(&request.body(()).unwrap().into_parts().0, b"")
    };
    let first = print(http::Request::post("https://a.example/"));
    assert_ne!(first, print(http::Request::post("https://b.example/")));
    let header = http::Request::post("/").header(HOST, "a.example");
    assert_eq!(first, print(header));
}

const FORM: &str = "application/x-www-form-urlencoded";

fn form_print(body: &str) -> Option<Fingerprint> {
    of_form(FORM, body.as_bytes())
}

#[test]
fn one_form_in_any_escapes_is_one_request() {
    let written = "name=T%C3%A9a+%26+%7Emilk&sku=a-1*";
    assert_eq!(
        form_print(written),
        Some(Fingerprint::bytes(written.as_bytes())),
        "as a browser writes it"
    );
    for same in [
        "name=T%c3%a9a%20%26%20~milk&sku=a-1*",
        "name=Téa+%26+~milk&sku=a-1*",
        "n%61me=T%C3%A9a+%26+%7emilk&%73ku=a%2D1%2A",
    ] {
        assert_eq!(form_print(same), form_print(written), "{same}");
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
        assert!(form_print(one).is_some(), "{one}");
        for other in all.iter().skip(i + 1) {
            assert_ne!(form_print(one), form_print(other), "{one} {other}");
        }
    }
    assert_eq!(form_print("a=1=2"), form_print("a=1%3D2"));
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
        let met = said
            .entry(form_print(&body))
            .or_insert_with(|| parsed.clone());
        assert_eq!(*met, parsed, "{body}");
    }
}

#[test]
fn a_body_that_may_be_read_in_two_ways_is_no_form() {
    for body in ["a=%", "a=%4", "a=%zz", "%%41=1", "a=1&b=100%"] {
        assert_eq!(form_print(body), None, "{body}");
    }
    let of = |content_type| of_form(content_type, b"a=1").is_some();
    for form in [
        "Application/X-WWW-Form-Urlencoded",
        "application/x-www-form-urlencoded ; charset=UTF-8",
        "application/x-www-form-urlencoded; charset=\"UTF-8\";",
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

const MULTIPART: &str = "multipart/form-data; boundary=";

fn form(boundary: &str, parts: &[&str]) -> String {
    let part = |part: &&str| format!("--{boundary}\r\n{part}\r\n");
    let parts: String = parts.iter().map(part).collect();
    format!("{parts}--{boundary}--\r\n")
}

fn multipart_print(boundary: &str, body: &str) -> Option<Fingerprint> {
    of_multipart(&format!("{MULTIPART}{boundary}"), body.as_bytes())
}

const NAME: &str = "Content-Disposition: form-data; name=\"sku\"\r\n\r\ntea";
const FILE: &str = "Content-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n\r\n-\r\n--";

#[test]
fn the_boundary_does_not_count_and_everything_else_does() {
    let one = multipart_print("----One7", &form("----One7", &[NAME, FILE]));
    assert!(one.is_some());
    assert_eq!(multipart_print("two", &form("two", &[NAME, FILE])), one);
    for others in [
        &[NAME][..],
        &[FILE, NAME],
        &[NAME, FILE, ""],
        &[NAME, "\r\n"],
        &[],
    ] {
        let other = multipart_print("two", &form("two", others));
        assert!(other.is_some(), "{others:?}");
        assert_ne!(other, one, "{others:?}");
    }
}

#[test]
fn padding_and_a_missing_line_end_do_not_count() {
    let plain = multipart_print("b", &form("b", &[NAME]));
    for same in [
        format!("--b \t\r\n{NAME}\r\n--b--"),
        format!("--b\r\n{NAME}\r\n--b--  \r\n"),
    ] {
        assert_eq!(multipart_print("b", &same), plain, "{same}");
    }
}

#[test]
fn a_body_that_may_be_read_in_two_ways_has_no_parts() {
    for body in [
        String::new(),
        "--b".to_owned(),
        "--b\r\n".to_owned(),
        format!("--b\r\n{NAME}"),
        format!("--b\r\n{NAME}\r\n--b"),
        format!("--b\r\n{NAME}\r\n--b\r\n"),
        format!("--b\r\n{NAME}--b--\r\n"),
        format!("--b\n{NAME}\n--b--\n"),
        format!("preamble\r\n--b\r\n{NAME}\r\n--b--\r\n"),
        format!("--b\r\n{NAME}\r\n--b--\r\nepilogue"),
        format!("--b\r\n{NAME}\r\n--bc\r\n--b--\r\n"),
        format!("--b\r\n{NAME}\n--b\n\r\n--b--\r\n"),
        format!("--b\r\n{NAME}\r\n--b--b--\r\n"),
        "--b\r\n--b--\r\n".to_owned(),
    ] {
        assert_eq!(multipart_print("b", &body), None, "{body}");
    }
}

#[test]
fn the_boundary_is_read_as_content_types_write_it() {
    let named = |parameters: &str| {
        let content_type = format!("Multipart/Form-Data{parameters}");
        of_multipart(&content_type, b"--a b\r\n\r\n\r\n--a b--").is_some()
    };
    for parameters in [
        "; boundary=\"a b\"",
        " ;charset=utf-8; Boundary=\"a b\";",
        "; x=\"a;b=c\"; boundary=\"a b\" ; y=1",
        ";boundary=a b",
    ] {
        assert!(named(parameters), "{parameters}");
    }
    for parameters in [
        "",
        ";",
        "; boundary",
        "; boundary=",
        "; boundary=\"a b",
        "; boundary=\"a b\"; boundary=\"a b\"",
        "; boundary=\"a b\"x",
        "; boundary=\"a\\ b\"",
        "; x=\"\\\"; boundary=\"a b\"",
        "; boundary=\"ä\"",
    ] {
        assert!(!named(parameters), "{parameters}");
    }
    assert_eq!(multipart_print("", &form("", &[NAME])), None);
    for unusable in ["a*b", "äb"] {
        let body = form(unusable, &[NAME]);
        assert_eq!(multipart_print(unusable, &body), None, "{unusable}");
    }
    let long = "x".repeat(71);
    assert_eq!(multipart_print(&long, &form(&long, &[NAME])), None);
    assert!(multipart_print(&long[1..], &form(&long[1..], &[NAME])).is_some());
    let mixed = "multipart/mixed; boundary=b";
    assert_eq!(of_multipart(mixed, form("b", &[NAME]).as_bytes()), None);
}

#[test]
fn a_form_of_very_many_parts_has_no_parts() {
    let most = vec!["x"; MOST_PARTS];
    assert!(multipart_print("b", &form("b", &most)).is_some());
    let more = vec!["x"; MOST_PARTS + 1];
    assert_eq!(multipart_print("b", &form("b", &more)), None);
}

#[test]
fn a_form_of_very_many_fields_has_no_fields() {
    let fields = |count: usize| vec!["x"; count].join("&");
    assert!(of_form(FORM, fields(MOST_PARTS).as_bytes()).is_some());
    assert_eq!(of_form(FORM, fields(MOST_PARTS + 1).as_bytes()), None);
}

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
