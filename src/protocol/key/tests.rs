//! The parts that make two keys one, and the texts that can be no key.

use std::collections::HashSet;

use super::*;

fn resolve(key: &Key) -> Result<RecordId, KeyError> {
    key.resolve(&Namespace::new("shop").unwrap(), DEFAULT_MAX_TOKEN_CHARS)
}

#[test]
fn the_id_starts_with_namespace_and_operation() {
    let id = resolve(&Key::new("charge", "t-1")).unwrap();
    assert!(id.as_str().starts_with("shop#charge#"));
    assert!(id.as_str().ends_with(id.hash()));
}

#[test]
fn an_operation_without_a_name_is_refused() {
    for key in [Key::new("", "t-1"), Key::raw("", "id-1")] {
        assert_eq!(resolve(&key), Err(KeyError::EmptyOperation));
    }
}

#[test]
fn a_key_tells_its_operation() {
    assert_eq!(Key::new("charge", "t-1").operation(), "charge");
}

#[test]
fn every_part_of_the_identity_changes_the_id() {
    let base = resolve(&Key::new("charge", "t")).unwrap();
    let other_namespace = Key::new("charge", "t")
        .resolve(&Namespace::new("other").unwrap(), 255)
        .unwrap();
    for other in [
        resolve(&Key::new("refund", "t")).unwrap(),
        resolve(&Key::new("charge", "u")).unwrap(),
        resolve(&Key::new("charge", "t").scope("a")).unwrap(),
        other_namespace,
    ] {
        assert_ne!(base, other);
    }
}

#[test]
fn no_delimiter_reaches_another_tenants_record() {
    let mine = resolve(&Key::new("charge", "b#c").scope("a")).unwrap();
    let theirs = resolve(&Key::new("charge", "c").scope("a#b")).unwrap();
    assert_ne!(mine, theirs);
}

#[test]
fn a_scope_that_names_nobody_is_refused() {
    for scope in [
        "",
        " ",
        "\t\u{3000}\u{0}",
        "\u{200b}",
        "\u{202e}\u{2069}\u{3164}\u{fe0f}\u{e0041}\u{2800}",
    ] {
        let key = Key::new("charge", "t").scope(scope);
        assert_eq!(resolve(&key), Err(KeyError::BlankScope), "{scope:?}");
    }
}

#[test]
fn bad_tokens_are_refused_in_words() {
    let long = "x".repeat(256);
    for (token, expected) in [
        ("", KeyError::EmptyToken),
        (
            long.as_str(),
            KeyError::TokenTooLong {
                chars: 256,
                max: 255,
            },
        ),
        ("a\nb", KeyError::ControlCharacter),
        ("a\u{7f}", KeyError::ControlCharacter),
        ("a\u{85}", KeyError::ControlCharacter),
    ] {
        assert_eq!(resolve(&Key::new("charge", token)), Err(expected));
    }
}

#[test]
fn an_id_is_one_line() {
    for text in ["a\0b", "a\nb", "a\tb", "a\u{1b}b", "a\u{7f}", "a\u{85}"] {
        let refused = resolve(&Key::raw("charge", text));
        assert_eq!(refused, Err(KeyError::ControlCharacter), "{text:?}");
        for key in [Key::raw(text, "t"), Key::new(text, "t")] {
            let refused = resolve(&key);
            assert_eq!(
                refused,
                Err(KeyError::OperationControlCharacter),
                "{text:?}"
            );
        }
    }
}

#[test]
fn a_token_is_counted_in_characters_not_bytes() {
    assert!(resolve(&Key::new("charge", "ü".repeat(255))).is_ok());
}

#[test]
fn a_namespace_with_a_delimiter_is_refused() {
    for name in ["", "a#b", "a\tb", &"x".repeat(256)] {
        assert!(Namespace::new(name).is_err(), "{name:?}");
    }
}

#[test]
fn the_longest_id_fits_a_sort_key() {
    let namespace = Namespace::new("n".repeat(255)).unwrap();
    let id = Key::new("ö".repeat(5_000), "t")
        .resolve(&namespace, 255)
        .unwrap();
    assert!(id.as_str().len() <= 1_024);
}

#[test]
fn two_operations_that_begin_alike_are_two_records() {
    let shared = "o".repeat(MAX_OPERATION_BYTES_IN_ID);
    let of = |end: &str| resolve(&Key::new(format!("{shared}{end}"), "t")).unwrap();
    let readable = |id: &RecordId| id.as_str().rsplit_once('#').unwrap().0.to_owned();
    let (whole, longer, other) = (of(""), of("1"), of("2"));
    assert_eq!(readable(&whole), format!("shop#{shared}"));
    assert_eq!(readable(&longer), readable(&other), "cut at the same place");
    assert_eq!(readable(&whole), readable(&other), "cut at the same place");
    assert_ne!(longer.hash(), other.hash());
    assert_ne!(whole.hash(), other.hash());
}

#[test]
fn a_raw_id_is_kept_and_bounded() {
    assert_eq!(
        resolve(&Key::raw("op", "theirs#1")).unwrap().as_str(),
        "theirs#1"
    );
    let longest = resolve(&Key::raw("op", "x".repeat(2_048))).unwrap();
    assert_eq!(longest.as_str().len(), 2_048);
    assert_eq!(
        resolve(&Key::raw("op", "x".repeat(2_049))),
        Err(KeyError::IdTooLong {
            bytes: 2_049,
            max: 2_048
        })
    );
    assert_eq!(resolve(&Key::raw("op", "")), Err(KeyError::EmptyToken));
    assert_eq!(
        resolve(&Key::raw("op", "theirs#1").scope("tenant")),
        Err(KeyError::RawIdWithScope)
    );
}

#[test]
fn an_id_that_a_store_has_is_the_one_that_the_engine_made() {
    let namespace = Namespace::new("shop").unwrap();
    let observed = namespace.observed().unwrap();
    for key in [
        Key::new("charge", "t-1"),
        Key::new("a#b", "t-1").scope("tenant"),
        Key::new("ö".repeat(200), "t-1"),
        Key::raw("charge", "order-17"),
        Key::raw("charge", "eu#refund#17"),
    ] {
        for namespace in [&namespace, &observed] {
            let id = key.resolve(namespace, 255).unwrap();
            let is_observed = RecordId::observed_in(id.as_str()) == Some("shop");
            assert_eq!(is_observed, namespace.is_observed(), "{}", id.as_str());
            assert_eq!(RecordId::stored(id.as_str()), Ok(id));
        }
    }
    let id = resolve(&Key::new("a#b", "t-1")).unwrap();
    let parts = ("shop", "a#b", id.hash());
    assert_eq!(RecordId::parts_of(id.as_str()), Some(parts));
    assert_eq!(RecordId::parts_of("eu#refund#17"), None);
    assert_eq!(RecordId::stored(""), Err(KeyError::EmptyToken));
    let (bytes, max) = (2_049, 2_048);
    let long = RecordId::stored("x".repeat(bytes));
    assert_eq!(long, Err(KeyError::IdTooLong { bytes, max }));
}

#[test]
fn golden_vectors_hold_across_versions() {
    let id = resolve(&Key::new("charge", "order-1").scope("tenant")).unwrap();
    assert_eq!(
        id.as_str(),
        "shop#charge#889c5ac2fa62ac7f90708cacbecb4d64f6e36da3fe6da2ff6269730c967b8726"
    );
    assert_eq!(
        id.derive_key_in(0, "stripe"),
        "94abd1c26f378c5d549f1d039aa965cf95d8a87e77ad14a9ac1db943f887674b"
    );
    assert_eq!(
        id.derive_uuid_in(0, "stripe"),
        "94abd1c2-6f37-8c5d-949f-1d039aa965cf"
    );
    let id = resolve(&Key::raw("charge", "theirs")).unwrap();
    assert_eq!(
        id.derive_key_in(0, ""),
        "341bc6822650a6e3e73a01730a1397d95eb9d05719fd578e5a6b94a87a97c449"
    );
    assert_eq!(
        id.derive_uuid_in(0, "ä"),
        "ad279ff8-41e0-869b-8c05-4477d2774d09"
    );
}

#[test]
fn two_events_of_one_key_have_two_ids_whatever_characters_their_parts_hold() {
    let id = resolve(&Key::new("charge", "order-1").scope("tenant")).unwrap();
    let events = [
        ("a", "b\u{1f}c", ""),
        ("a\u{1f}b", "c", ""),
        ("a", "b", "c\u{1f}"),
        ("a", "b", "c"),
        ("a", "b\u{1f}c\u{1f}", ""),
        ("", "a\u{1f}b", "c"),
    ];
    let ids: HashSet<_> = events
        .iter()
        .map(|(kind, aggregate, name)| id.derive_event(0, kind, aggregate, name))
        .collect();
    assert_eq!(ids.len(), events.len());
}

#[test]
fn another_generation_derives_other_keys_that_hold_across_versions() {
    let id = resolve(&Key::new("charge", "order-1").scope("tenant")).unwrap();
    assert_eq!(
        id.derive_key_in(1, "stripe"),
        "aad76265979fa85d458d79025a8c636f4b2cf4b73b61a0a5992280d6b27074e6"
    );
    let of = |generation| {
        [
            id.derive_key_in(generation, "stripe"),
            id.derive_uuid_in(generation, "stripe"),
            id.derive_event(generation, "order.created", "order-1", ""),
            id.derive_event(generation, "a\u{1f}b", "c", ""),
        ]
    };
    let all: HashSet<_> = (0..4).flat_map(of).collect();
    assert_eq!(all.len(), 16);
}

#[test]
fn an_event_without_separators_keeps_the_id_that_it_always_had() {
    let id = resolve(&Key::new("charge", "order-1").scope("tenant")).unwrap();
    assert_eq!(
        id.derive_event(0, "order.created", "order-1", "x"),
        id.derive_uuid_in(0, "event\u{1f}order.created\u{1f}order-1\u{1f}x")
    );
}

#[test]
fn a_derived_uuid_has_the_version_and_the_variant_of_its_kind() {
    for effect in 0..200 {
        let id = resolve(&Key::new("charge", "1")).unwrap();
        let uuid = id.derive_uuid_in(0, &effect.to_string());
        let digits: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(digits, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'8', "{uuid}");
        assert_matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b', "{uuid}");
    }
}

#[test]
fn debug_and_display_hide_the_token() {
    let id = resolve(&Key::raw("op", "secret-token")).unwrap();
    assert!(!format!("{id:?} {id}").contains("secret"));
}

#[test]
fn each_digit_of_a_digest_gives_a_uuid_of_the_right_variant() {
    for (digits, variant) in [("048c", '8'), ("159d", '9'), ("26ae", 'a'), ("37bf", 'b')] {
        for digit in digits.chars() {
            let uuid = uuid(&digit.to_string().repeat(64));
            let part = |count: usize| digit.to_string().repeat(count);
            let (rest, end) = (part(3), part(12));
            let expected = format!("{}-{}-8{rest}-{variant}{rest}-{end}", part(8), part(4));
            assert_eq!(uuid, expected);
        }
    }
}

#[test]
fn every_text_is_a_token_and_an_absent_one_is_none() {
    let shared: Arc<str> = "t".into();
    let tokens = [
        "t".into_token(),
        (&String::from("t")).into_token(),
        Some("t").into_token(),
        Some(Cow::from("t")).into_token(),
        Arc::clone(&shared).into_token(),
        Some(shared).into_token(),
    ];
    assert!(tokens.iter().all(|token| token.as_deref() == Some("t")));
    assert_eq!((-17_i64).into_token().as_deref(), Some("-17"));
    assert_eq!(Some(u128::MAX).into_token(), Some(u128::MAX.to_string()));
    assert_eq!(None::<u32>.into_token(), None);
    #[cfg(feature = "uuid")]
    {
        let text = "a1b2c3d4-0000-4000-8000-00000000000f";
        let uuid: uuid::Uuid = text.to_uppercase().parse().unwrap();
        assert_eq!(uuid.into_token().as_deref(), Some(text));
        assert_eq!(Some(uuid).into_token().as_deref(), Some(text));
    }
    assert_eq!(None::<String>.into_token(), None);
    assert_eq!(None::<Arc<str>>.into_token(), None);
}
