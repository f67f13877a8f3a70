//! Values with one form, texts with none, and the agreement of another implementation.

use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> Option<String> {
    canonicalize(text.as_bytes(), &[]).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn equal_values_have_one_form() {
    for text in ["1", "1.0", "10e-1", "0.1e1", "1E0", "1e+0"] {
        assert_eq!(canonical(text).as_deref(), Some("1"), "{text}");
    }
    for text in ["0", "-0", "0.0", "0e5", "-0.00e-7"] {
        assert_eq!(canonical(text).as_deref(), Some("0"), "{text}");
    }
}

#[test]
fn numbers_that_a_double_cannot_hold_stay_apart() {
    let numbers = [
        "9007199254740992",
        "9007199254740993",
        "9007199254740994",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551617",
        "1e400",
        "1e401",
        "-1e400",
        "1e-400",
        "0",
        "0.1",
        "0.10000000000000000001",
        "1.0000000000000000001",
        "1",
    ];
    for (i, one) in numbers.iter().enumerate() {
        for other in numbers.iter().skip(i + 1) {
            assert_ne!(canonical(one), canonical(other), "{one} {other}");
        }
    }
}

#[test]
fn exact_digits_have_one_form_too() {
    assert_eq!(canonical("1e400"), canonical("10e399"));
    assert_eq!(
        canonical("9007199254740993"),
        canonical("9007199254740993.0")
    );
}

#[test]
fn an_exact_number_does_not_meet_a_string_of_its_digits() {
    assert_ne!(
        canonical("9007199254740993"),
        canonical("\"9007199254740993\"")
    );
    assert_ne!(
        canonical("9007199254740993"),
        canonical("\"9007199254740993e0\"")
    );
}

#[test]
fn an_exponent_beyond_reason_is_not_canonical() {
    assert_eq!(canonical("1e99999999999999999999"), None);
    assert_eq!(
        canonical("[1e9223372036854775807, 10e9223372036854775807]"),
        None
    );
}

#[test]
fn a_number_may_have_any_number_of_digits() {
    let long = |last: char| format!("{}{last}", "1234567890".repeat(1_000));
    let one = canonical(&long('1')).unwrap();
    assert_eq!(one, format!("{}e0", long('1')));
    assert_ne!(canonical(&long('2')).unwrap(), one);
}

#[test]
fn names_that_begin_alike_are_told_apart_by_the_rest() {
    let text = r#"{"customer_name":1,"customer":2,"customer_id":3,"customer\u0000":4,"customeré":5,"a\u0000":6,"a":7}"#;
    let form = r#"{"a":7,"a\u0000":6,"customer":2,"customer\u0000":4,"customer_id":3,"customer_name":1,"customeré":5}"#;
    assert_eq!(canonical(text).unwrap(), form);
}

#[test]
fn a_short_name_stands_behind_a_long_one_that_is_less() {
    assert_eq!(
        canonical(r#"{"b":1,"abcdefgh":2}"#).unwrap(),
        r#"{"abcdefgh":2,"b":1}"#
    );
}

#[test]
fn members_are_ordered_by_utf16() {
    // U+1F600 is D83D DE00 in UTF-16: before U+FB33, though its UTF-8 comes after.
    assert_eq!(
        canonical("{\"\u{fb33}\":1,\"\u{1f600}\":2}").unwrap(),
        "{\"\u{1f600}\":2,\"\u{fb33}\":1}"
    );
}

#[test]
fn nesting_is_bounded_where_serde_json_bounds_it() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(canonical(&nested(129)).is_some());
    assert!(canonical(&nested(130)).is_none());
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    assert!(canonical(&objects(128)).is_some());
    assert!(canonical(&objects(129)).is_none());
}

#[test]
fn arrays_nest_as_deep_as_objects_and_side_by_side_they_nest_no_deeper() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(
        canonical(&nested(MAX_DEPTH + 1)),
        Some(nested(MAX_DEPTH + 1))
    );
    assert_eq!(canonical(&nested(MAX_DEPTH + 2)), None);
    let members = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    assert_eq!(canonical(&members(MAX_DEPTH)), Some(members(MAX_DEPTH)));
    assert_eq!(canonical(&members(MAX_DEPTH + 1)), None);
    let many = format!("[{}1]", "[[1]],".repeat(2 * MAX_DEPTH));
    assert_eq!(canonical(&many), Some(many));
}

#[test]
fn an_element_that_is_left_out_is_named_by_its_index() {
    let without = |text: &str, pointers: &[&str]| {
        let pointers: Vec<Pointer> = pointers.iter().map(|one| one.parse().unwrap()).collect();
        let text = canonicalize(text.as_bytes(), &pointers).unwrap();
        String::from_utf8(text).unwrap()
    };
    let text = r#"{"lines":[{"id":1,"at":2},{"id":3,"at":4},5]}"#;
    for (pointers, expected) in [
        (&["/lines/0"][..], r#"{"lines":[{"at":4,"id":3},5]}"#),
        (
            &["/lines/2"],
            r#"{"lines":[{"at":2,"id":1},{"at":4,"id":3}]}"#,
        ),
        (
            &["/lines/1/at"],
            r#"{"lines":[{"at":2,"id":1},{"id":3},5]}"#,
        ),
        (&["/lines/0", "/lines/1", "/lines/2"], r#"{"lines":[]}"#),
        (&["/lines/0/at", "/lines"], "{}"),
        (
            &["/lines/3", "/lines/at", "/2"],
            r#"{"lines":[{"at":2,"id":1},{"at":4,"id":3},5]}"#,
        ),
    ] {
        assert_eq!(without(text, pointers), expected, "{pointers:?}");
    }
}

#[test]
fn what_is_not_ijson_has_no_form() {
    for text in [
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\":1,\"a\":1}",
        "\"\\ud800\"",
        "nul",
        "01",
        "1 2",
        "{\"a\":1}}",
    ] {
        assert_eq!(canonical(text), None, "{text}");
    }
    assert_eq!(canonicalize(b"\"\xff\"", &[]), None);
}

#[test]
fn members_that_come_in_order_and_those_that_do_not_end_alike() {
    let ordered = r#"{"a":{"x":1,"y":[]},"b":"\\\"","c":{}}"#;
    assert_eq!(canonical(ordered).as_deref(), Some(ordered));
    let shuffled = r#"{"c":{},"b":"\\\"","a":{"y":[],"x":1}}"#;
    assert_eq!(canonical(shuffled).as_deref(), Some(ordered));
}

#[test]
fn a_repeated_member_has_no_form_wherever_it_stands() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"b":1,"a":2,"b":3}"#,
        r#"{"a":1,"\u0061":2}"#,
    ] {
        assert_eq!(canonical(text), None, "{text}");
    }
}

#[test]
fn whole_numbers_around_the_fast_path_are_their_own_form() {
    for digits in [
        "0",
        "7",
        "999999999999999",
        "1000000000000000",
        "9007199254740992",
    ] {
        assert_eq!(canonical(digits).as_deref(), Some(digits));
    }
    assert_eq!(
        canonical("-999999999999999").as_deref(),
        Some("-999999999999999")
    );
    assert_eq!(canonical("-0").as_deref(), Some("0"));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns the number of members that its objects have.
fn members(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(elements) => elements.iter().map(members).sum(),
        serde_json::Value::Object(fields) => {
            fields.len() + fields.values().map(members).sum::<usize>()
        }
        _ => 0,
    }
}

/// As many as the members of a document whose strings hold none; then no name was repeated.
fn colons(text: &[u8]) -> usize {
    text.split(|&byte| byte == b':').count() - 1
}

proptest! {
    #[test]
    fn agrees_with_another_implementation_of_the_rfc(value in json()) {
        let text = serde_json::to_string(&value).unwrap();
        let theirs = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(canonical(&text), Some(theirs));
    }

    #[test]
    fn pretty_printing_changes_nothing(value in json()) {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(canonical(&pretty), canonical(&value.to_string()));
    }

    #[test]
    fn different_integers_never_meet(a in any::<u64>(), b in any::<u64>()) {
        prop_assert_eq!(a == b, canonical(&a.to_string()) == canonical(&b.to_string()));
    }

    #[test]
    fn takes_and_refuses_what_serde_json_does(
        value in json(),
        at in any::<prop::sample::Index>(),
        byte in prop::sample::select(&b"{}[],:\"\\ 019-+.eEtfnu\xc3\x80"[..]),
    ) {
        let mut text = serde_json::to_vec(&value).unwrap();
        let at = at.index(text.len());
        text[at] = byte;
        // A raw value's numbers know no range, and its strings may hold half a surrogate pair; a
        // value's members may repeat.
        let well_formed = serde_json::from_slice::<&serde_json::value::RawValue>(&text).is_ok();
        let value = serde_json::from_slice::<serde_json::Value>(&text);
        let canonical = canonicalize(&text, &[]);
        prop_assert!(well_formed || canonical.is_none(), "{:?}", String::from_utf8_lossy(&text));
        if value.is_ok_and(|value| members(&value) == colons(&text)) {
            prop_assert!(canonical.is_some(), "{:?}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn arbitrary_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = canonicalize(&bytes, &[]);
    }
}
