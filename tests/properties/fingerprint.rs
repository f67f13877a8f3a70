//! Equal JSON has one fingerprint, different JSON has two, and what isn't JSON is told apart by its bytes.

use arbitrary::{Arbitrary, Unstructured};
use lambda_idempotency::Fingerprint;
use serde_json::Value;
use serde_json::value::RawValue;

use super::document::{Dice, Document};

/// Deeper documents are hashed as bytes, so that their texts count.
const MOST_LEVELS: usize = 100;

/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    of_bytes(data);
    let mut data = Unstructured::new(data);
    let (Ok(seed), Ok(one)) = (u64::arbitrary(&mut data), Document::arbitrary(&mut data)) else {
        return;
    };
    let other = Document::arbitrary_take_rest(data).unwrap_or(Document::Null);
    of_documents(&one, &other, &mut Dice::new(seed));
}

fn of_documents(one: &Document, other: &Document, dice: &mut Dice) {
    if one.depth().max(other.depth()) > MOST_LEVELS {
        return;
    }
    let mut print = |document: &Document| {
        let text = document.text(dice);
        (Fingerprint::json(text.as_bytes()), text)
    };
    let ((first, text), (second, again)) = (print(one), print(one));
    assert_eq!(first, second, "one document in two texts:\n{text}\n{again}");
    let (third, different) = print(other);
    let are_equal = one.normal() == other.normal();
    assert_eq!(
        are_equal,
        first == third,
        "two documents:\n{text}\n{different}"
    );
    let nudged = one.nudged(dice);
    if nudged.normal() != one.normal() {
        let nudged = nudged.text(dice);
        assert_ne!(
            first,
            Fingerprint::json(nudged.as_bytes()),
            "differ in one place:\n{text}\n{nudged}"
        );
    }
}

/// Compares the fingerprint of a text with what other implementations tell of the text.
fn of_bytes(text: &[u8]) {
    let print = Fingerprint::json(text);
    if serde_json::from_slice::<&RawValue>(text).is_err() {
        assert_eq!(print, Fingerprint::bytes(text), "it is no JSON");
        return;
    }
    let Ok(value) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    if has_only_plain_numbers(text) && names(&value) == colons(text) {
        let canonical = serde_json_canonicalizer::to_vec(&value).expect("it is a value");
        assert_eq!(
            print,
            Fingerprint::json(&canonical),
            "its canonical form is the same document"
        );
        assert_ne!(
            print,
            Fingerprint::bytes(text),
            "a document doesn't meet the bytes that spell it"
        );
        assert_eq!(
            Ok(print),
            Fingerprint::of(&value),
            "its value is the same document"
        );
    }
}

/// No number is long enough to lose anything on its way through a double.
fn has_only_plain_numbers(text: &[u8]) -> bool {
    let number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let longest = text.split(|byte| !number(byte)).map(<[u8]>::len).max();
    longest.unwrap_or_default() <= 15 && !text.iter().any(|byte| matches!(byte, b'e' | b'E'))
}

/// Returns the number of members of its objects, on all levels.
fn names(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(names).sum(),
        Value::Object(members) => members.len() + members.values().map(names).sum::<usize>(),
        _ => 0,
    }
}

/// Returns the number of colons: that of the members, if no string holds one and no name was repeated.
fn colons(text: &[u8]) -> usize {
    text.split(|byte| *byte == b':').count() - 1
}
