use super::super::layout::as_item;
use super::*;
use crate::dynamodb::value::{number, string};

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
