//! Tests of the module above.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

#[test]
fn a_result_of_the_largest_size_is_kept_and_one_more_byte_is_too_many() {
    // A text has two quotes around it in JSON.
    let text = |bytes: usize| "x".repeat(bytes - 2);
    assert!(keep(&text(MAX_STEP_RESULT_BYTES)).is_ok());
    assert_eq!(
        keep(&text(MAX_STEP_RESULT_BYTES + 1)),
        Err(Omission::TooLarge)
    );
}

#[derive(Debug, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Serialize, Deserialize)]
enum Tagged {
    Rate(f64),
    Maybe { note: Option<Value> },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Short { id: u8 },
    Long { id: u8, name: String },
    Id(String),
    Name(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Flattened {
    #[serde(flatten)]
    by_number: BTreeMap<u32, u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Wide {
    id: u8,
    #[serde(flatten)]
    rest: Inner,
}

#[derive(Debug, Serialize, Deserialize)]
struct Inner {
    total: u128,
}

#[derive(Debug, Serialize, Deserialize)]
struct OneWay {
    #[serde(rename(serialize = "amount"), default)]
    cents: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[expect(dead_code, reason = "the serialiser skips it")]
struct Unread {
    #[serde(skip_serializing)]
    cents: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Swapped {
    #[serde(rename(serialize = "last", deserialize = "first"))]
    first: u8,
    #[serde(rename(serialize = "first", deserialize = "last"))]
    last: u8,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Side {
    #[serde(rename(serialize = "right", deserialize = "left"))]
    Left,
    #[serde(rename(serialize = "left", deserialize = "right"))]
    Right,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Empty {
    Maybe(Option<u8>),
    Unit,
}

#[derive(Debug, Serialize, Deserialize)]
struct LeftOut {
    #[serde(skip_serializing_if = "is_zero", default = "one")]
    count: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn one() -> u32 {
    1
}

#[derive(Debug, Serialize)]
struct Panics;

impl<'de> Deserialize<'de> for Panics {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("boom")
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Nested(Option<Box<Nested>>);

#[expect(clippy::needless_pass_by_value, reason = "shorter calls")]
fn is_refused<T: Serialize + DeserializeOwned>(value: T) -> bool {
    to_faithful_json(&value) == Err(Omission::NotSerializable)
}

#[test]
fn a_value_whose_json_form_reads_back_as_another_one_has_no_form() {
    assert!(is_refused(f64::NAN));
    assert!(is_refused(f32::INFINITY));
    assert!(is_refused(vec![1.0, f64::NEG_INFINITY]));
    assert!(is_refused(Some(f64::NAN)));
    assert!(is_refused(
        HashMap::from([("rate", f64::NAN)])
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v))
            .collect::<HashMap<_, _>>()
    ));
    assert!(is_refused(Tagged::Rate(f64::NAN)));
    assert!(is_refused(Some(())));
    assert!(is_refused(Some(None::<u8>)));
    assert!(is_refused(Some(Value::Null)));
    assert!(is_refused(Some(Unit)));
    assert!(is_refused(vec![Some(Some(1)), Some(None)]));
    assert!(is_refused(Tagged::Maybe {
        note: Some(Value::Null)
    }));
    assert!(is_refused(Untagged::Long {
        id: 1,
        name: "a".into()
    }));
    assert!(is_refused(Untagged::Name("a".into())));
    assert!(is_refused(Flattened {
        by_number: [(1, 2)].into()
    }));
    assert!(is_refused(Wide {
        id: 1,
        rest: Inner { total: u128::MAX }
    }));
    assert!(is_refused(OneWay { cents: 5 }));
    assert!(is_refused(Unread { cents: 5 }));
    assert!(is_refused(Swapped { first: 1, last: 2 }));
    assert!(is_refused(BTreeMap::from([
        (Side::Left, 1),
        (Side::Right, 2)
    ])));
    assert!(is_refused(vec![Empty::Unit]));
    assert!(is_refused(LeftOut { count: 0 }));
    assert!(is_refused(HashMap::from([(Some(1), 2), (None, 3)])));
    assert!(is_refused(Panics));
    let deep = (0..200).fold(Nested(None), |deep, _| Nested(Some(Box::new(deep))));
    assert!(is_refused(vec![deep]), "the parser stops at 128");
}

#[expect(clippy::needless_pass_by_value, reason = "shorter calls")]
fn is_kept<T: Serialize + DeserializeOwned>(value: T) -> bool {
    to_faithful_json(&value) == Ok(serde_json::to_string(&value).unwrap())
}

#[test]
fn a_value_that_json_gives_back_is_kept() {
    assert!(is_kept(()));
    assert!(is_kept(Unit));
    assert!(is_kept(None::<u8>));
    assert!(is_kept(Some(Some(1))));
    assert!(is_kept(Value::Null));
    assert!(is_kept(json!({ "a": [null, -0.0, 1e300, u64::MAX, "ü"] })));
    assert!(is_kept((
        i128::MIN,
        u128::MAX,
        -0.0_f64,
        f32::MIN_POSITIVE,
        'x'
    )));
    assert!(is_kept((0..1_000).collect::<HashSet<u32>>()));
    assert!(is_kept(
        (0..1_000).map(|n| (n, n)).collect::<HashMap<u32, u32>>()
    ));
    assert!(is_kept(HashMap::from([(true, 1), (false, 2)])));
    assert!(is_kept(vec![Ok::<u8, String>(1), Err("no".to_owned())]));
    assert!(is_kept(Tagged::Maybe { note: None }));
    assert!(is_kept(Untagged::Short { id: 1 }));
    assert!(is_kept(bytes::Bytes::from_static(b"\x00\xff").to_vec()));
    let raw = serde_json::value::RawValue::from_string(r#"{ "a" : 1.00 }"#.to_owned());
    assert!(is_kept(raw.unwrap()));
}

#[test]
fn the_reason_says_what_is_lost_and_quotes_nothing() {
    assert_eq!(
        faithful(&f64::NAN).unwrap_err(),
        "its JSON form does not decode: Data error at line 1, column 4"
    );
    assert_eq!(faithful(&Some(())).unwrap_err(), LOSSY);
    let secret = Untagged::Name("hunter2".into());
    assert_eq!(
        faithful(&secret).unwrap_err(),
        "its JSON form reads back as another value"
    );
    assert_eq!(faithful(&Panics).unwrap_err(), "its own code panicked");
}

proptest! {
    #[test]
    fn whatever_is_kept_decodes_as_the_same_value(value: (Option<Option<u8>>, Vec<f64>, BTreeMap<i16, Option<()>>)) {
        match to_faithful_json(&value) {
            Ok(text) => prop_assert_eq!(serde_json::from_str::<(Option<Option<u8>>, Vec<f64>, BTreeMap<i16, Option<()>>)>(&text).unwrap(), value),
            Err(_) => prop_assert!(
                value.0 == Some(None) || value.1.iter().any(|number| !number.is_finite()) || value.2.values().any(Option::is_some)
            ),
        }
    }
}
