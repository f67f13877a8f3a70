//! Tests of the module above.

use std::collections::HashMap;

use super::{number, string, *};
use crate::dynamodb::layout::as_item;

/// A record of this layout, completed.
fn completed() -> Item {
    as_item([
        ("id", string("record")),
        ("status", string("COMPLETED")),
        ("data", string("1")),
        ("expiration", number(9)),
        ("owner", string("me")),
        ("attempt", number(1)),
        ("v", number(LAYOUT)),
    ])
}

fn content(item: &Item) -> Result<Box<Record>, String> {
    TableLayout::default().read(item).content
}

#[test]
fn a_record_of_this_layout_is_not_believed_without_its_owner_or_its_attempt() {
    assert_eq!(content(&completed()).unwrap().layout, Some(LAYOUT));
    for missing in ["owner", "attempt"] {
        let mut item = completed();
        item.remove(missing);
        let reason = content(&item).unwrap_err();
        assert_eq!(reason, format!("`{missing}` is missing"));
    }
}

#[test]
fn a_claim_of_this_layout_is_not_believed_without_its_lease() {
    let mut item = completed();
    item.insert("status".to_owned(), string("INPROGRESS"));
    assert!(content(&item).is_err());
    item.insert("in_progress_expiration".to_owned(), number(7));
    assert_eq!(content(&item).unwrap().lease, Some(EpochMillis(7)));
}

#[test]
fn another_librarys_record_needs_neither_owner_nor_attempt() {
    let mut item = completed();
    for missing in ["v", "owner", "attempt"] {
        item.remove(missing);
    }
    let record = content(&item).unwrap();
    assert_eq!((record.layout, record.owner), (None, None));
}

fn why(item: &Item) -> String {
    content(item).unwrap_err()
}

#[test]
fn what_is_missing_is_named() {
    assert!(content(&completed()).is_ok());
    for name in ["status", "expiration", "owner", "attempt", "data"] {
        let mut item = completed();
        item.remove(name);
        assert_eq!(why(&item), format!("`{name}` is missing"));
    }
    let mut claimed = completed();
    claimed.insert("status".to_owned(), string("INPROGRESS"));
    assert_eq!(why(&claimed), "`in_progress_expiration` is missing");
}

#[test]
fn what_cannot_be_understood_is_named_and_not_quoted() {
    for (name, value, reason) in [
        (
            "v",
            number(2),
            "layout version 2, where this release knows 1",
        ),
        (
            "status",
            string("PAUSED"),
            "`status` has a value that this release doesn't know",
        ),
        (
            "omitted",
            string("lazy"),
            "`omitted` has a value that this release doesn't know",
        ),
        ("owner", number(1), "`owner` is not a string"),
        (
            "expiration",
            string("soon"),
            "`expiration` is not a whole number",
        ),
        ("attempt", number(-1), "`attempt` is no count"),
        ("packed", string("?"), "`packed`: it is not a map"),
    ] {
        let mut item = completed();
        item.insert(name.to_owned(), value);
        assert_eq!(why(&item), reason);
    }
}

#[test]
fn a_member_that_is_missing_or_of_another_type_is_named() {
    let value = AttributeValue::M(HashMap::from([(
        "odd".to_owned(),
        AttributeValue::Bool(true),
    )]));
    let members = Members::of(&value).unwrap();
    let missing = Err("`none` is missing".to_owned());
    assert_eq!(members.text("none"), Ok(None));
    assert_eq!(members.required_text("none").map(drop), missing);
    assert_eq!(members.number("none").map(drop), missing);
    assert_eq!(members.bytes("none").map(drop), missing);
    let odd = |kind: &str| Err(format!("`odd` is not {kind}"));
    assert_eq!(members.text("odd").map(drop), odd("a string"));
    assert_eq!(members.number("odd").map(drop), odd("a whole number"));
    assert_eq!(members.bytes("odd").map(drop), odd("binary"));
}

#[test]
fn names_and_values_are_counted_in_bytes() {
    let item = HashMap::from([
        ("id".to_owned(), AttributeValue::S("ü".to_owned())),
        ("on".to_owned(), AttributeValue::Bool(true)),
        (
            "tags".to_owned(),
            AttributeValue::L(vec![AttributeValue::N("12".to_owned())]),
        ),
    ]);
    assert_eq!(of_item(&item), (2 + 2) + (2 + 1) + (4 + 3 + 1 + 3));
}

#[test]
fn a_set_counts_as_its_members() {
    let texts = ["ab", "c"].map(str::to_owned).to_vec();
    assert_eq!(of_value(&AttributeValue::Ss(texts)), 3);
    let numbers = ["12", "3"].map(str::to_owned).to_vec();
    assert_eq!(of_value(&AttributeValue::Ns(numbers)), 3 + 2);
    let bytes = [vec![1, 2], vec![3]].map(Into::into).to_vec();
    assert_eq!(of_value(&AttributeValue::Bs(bytes)), 3);
}

#[test]
fn a_map_counts_as_its_members_and_a_container() {
    let member = ("name".to_owned(), AttributeValue::B(vec![1, 2].into()));
    let map = AttributeValue::M(HashMap::from([member]));
    assert_eq!(of_value(&map), 3 + 1 + 4 + 2);
}
