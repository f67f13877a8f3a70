use super::*;

const TYPE: &str = "multipart/form-data; boundary=";

fn form(boundary: &str, parts: &[&str]) -> String {
    let part = |part: &&str| format!("--{boundary}\r\n{part}\r\n");
    let parts: String = parts.iter().map(part).collect();
    format!("{parts}--{boundary}--\r\n")
}

fn print(boundary: &str, body: &str) -> Option<Fingerprint> {
    fingerprint(&format!("{TYPE}{boundary}"), body.as_bytes())
}

const NAME: &str = "Content-Disposition: form-data; name=\"sku\"\r\n\r\ntea";
const FILE: &str = "Content-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n\r\n-\r\n--";

#[test]
fn the_boundary_does_not_count_and_everything_else_does() {
    let one = print("----One7", &form("----One7", &[NAME, FILE]));
    assert!(one.is_some());
    assert_eq!(print("two", &form("two", &[NAME, FILE])), one);
    for others in [
        &[NAME][..],
        &[FILE, NAME],
        &[NAME, FILE, ""],
        &[NAME, "\r\n"],
        &[],
    ] {
        let other = print("two", &form("two", others));
        assert!(other.is_some(), "{others:?}");
        assert_ne!(other, one, "{others:?}");
    }
}

#[test]
fn padding_and_a_missing_line_end_do_not_count() {
    let plain = print("b", &form("b", &[NAME]));
    for same in [
        format!("--b \t\r\n{NAME}\r\n--b--"),
        format!("--b\r\n{NAME}\r\n--b--  \r\n"),
    ] {
        assert_eq!(print("b", &same), plain, "{same}");
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
        assert_eq!(print("b", &body), None, "{body}");
    }
}

#[test]
fn the_boundary_is_read_as_content_types_write_it() {
    let named = |parameters: &str| {
        let content_type = format!("Multipart/Form-Data{parameters}");
        fingerprint(&content_type, b"--a b\r\n\r\n\r\n--a b--").is_some()
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
    assert_eq!(print("", &form("", &[NAME])), None);
    let long = "x".repeat(71);
    assert_eq!(print(&long, &form(&long, &[NAME])), None);
    assert!(print(&long[1..], &form(&long[1..], &[NAME])).is_some());
    let mixed = "multipart/mixed; boundary=b";
    assert_eq!(fingerprint(mixed, form("b", &[NAME]).as_bytes()), None);
}

#[test]
fn a_form_of_very_many_parts_has_no_parts() {
    let most = vec!["x"; MOST_PARTS];
    assert!(print("b", &form("b", &most)).is_some());
    let more = vec!["x"; MOST_PARTS + 1];
    assert_eq!(print("b", &form("b", &more)), None);
}
