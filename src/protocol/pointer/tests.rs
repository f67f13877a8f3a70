//! Tests of the module above.

use super::*;

#[test]
fn a_pointer_is_taken_apart_as_the_rfc_says() {
    let names = |text: &str| text.parse::<Pointer>().map(|pointer| pointer.0);
    assert_eq!(names("/a/b").unwrap(), ["a", "b"]);
    assert_eq!(names("/a~1b/m~0n/~01").unwrap(), ["a/b", "m~n", "~1"]);
    assert_eq!(names("/").unwrap(), [""]);
    assert_eq!(names("").unwrap(), [""; 0]);
}

#[test]
fn a_pointer_is_written_as_it_was_read() {
    for text in ["", "/", "/a/b", "/a~1b/m~0n/~01"] {
        assert_eq!(text.parse::<Pointer>().unwrap().to_string(), text);
    }
}

#[test]
fn what_is_no_pointer_is_refused() {
    for text in ["a", "a/b", "#/a", "$.a", "/a~", "/a~2", "/~"] {
        let error = text.parse::<Pointer>().unwrap_err().to_string();
        assert!(
            error.contains(&format!("`{text}` is no JSON pointer: it starts with `/`")),
            "{error}"
        );
    }
}

#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
fn find<'a>(pointer: &str, text: &'a str) -> Option<&'a str> {
    pointer.parse::<Pointer>().unwrap().find(text)
}

#[test]
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
fn the_examples_of_the_rfc_hold() {
    let text = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8}"#;
    for (pointer, found) in [
        ("", text),
        ("/foo", r#"["bar", "baz"]"#),
        ("/foo/0", r#""bar""#),
        ("/foo/1", r#""baz""#),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
    ] {
        assert_eq!(find(pointer, text), Some(found), "{pointer}");
    }
}

#[test]
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
fn what_is_not_there_is_not_found() {
    let text = r#"{"a": [1], "b": "text", "c": null}"#;
    for pointer in [
        "/x", "/a/1", "/a/-", "/a/00", "/a/+0", "/a/x", "/b/0", "/c/d", "/A",
    ] {
        assert_eq!(find(pointer, text), None, "{pointer}");
    }
}

#[test]
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
fn of_a_name_that_is_there_twice_the_last_counts_and_what_is_no_json_has_no_parts() {
    assert_eq!(find("/a", r#"{"a": 1, "b": 2, "a": 3}"#), Some("3"));
    assert_eq!(find("/a", r#"{"a": 1} 2"#), None);
    assert_eq!(find("/a", r#"{"a": 1"#), None);
}

#[test]
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
fn what_cannot_be_decoded_hides_nothing() {
    let text = r#"{"\ud83d": "\ud83d", "a": 1e400, "\u0062": 2}"#;
    assert_eq!(find("/a", text), Some("1e400"));
    assert_eq!(find("/b", text), Some("2"));
}
