use aws_sdk_dynamodb::types::AttributeValue::S;

use super::*;
use crate::dynamodb::layout::Item;

fn put(table: &str, id: &str) -> Write {
    Put::builder()
        .table_name(table)
        .item("id", S(id.into()))
        .into()
}

fn check(table: &str, id: &str) -> Write {
    ConditionCheck::builder()
        .table_name(table)
        .key("id", S(id.into()))
        .condition_expression("attribute_exists(id)")
        .into()
}

fn padded(id: &str, bytes: usize) -> Write {
    let put = Put::builder().table_name("t").item("id", S(id.into()));
    put.item("padding", S("x".repeat(bytes))).into()
}

#[test]
fn ninety_nine_writes_fit_beside_the_record() {
    let mut writes: Vec<_> = (0..98).map(|id| put("t", &id.to_string())).collect();
    let last = put("t", "98");
    assert_eq!(admit(&writes, &last), Ok(()));
    writes.push(last);
    assert_eq!(
        admit(&writes, &put("t", "99")),
        Err(WriteError::TooMany { max: 99 })
    );
}

#[test]
fn the_same_item_twice_is_refused() {
    let writes = [put("other", "1"), put("t", "1")];
    for again in [put("t", "1"), check("t", "1")] {
        assert_eq!(
            admit(&writes, &again),
            Err(WriteError::SameTarget { first: 1 })
        );
    }
    let by_arn = check("arn:aws:dynamodb:eu-central-1:123456789012:table/t", "1");
    assert_eq!(
        admit(&writes, &by_arn),
        Err(WriteError::SameTarget { first: 1 })
    );
    for another in [put("t", "2"), check("t", "2"), check("third", "1")] {
        assert_eq!(admit(&writes, &another), Ok(()));
    }
}

#[test]
fn two_puts_are_compared_by_their_key_where_another_write_tells_it() {
    let one = Put::builder()
        .table_name("t")
        .item("id", S("1".into()))
        .item("a", S("1".into()));
    let other = Put::builder()
        .table_name("t")
        .item("id", S("1".into()))
        .item("a", S("2".into()));
    let writes = [check("t", "7"), Write::from(one)];
    assert_eq!(
        admit(&writes, &Write::from(other)),
        Err(WriteError::SameTarget { first: 1 })
    );
}

#[test]
fn an_item_and_a_transaction_have_their_largest_size() {
    assert!(matches!(
        admit(&[], &padded("1", 410_000)),
        Err(WriteError::TooLarge { max: 409_600, .. })
    ));
    let writes: Vec<_> = (0..10).map(|id| padded(&id.to_string(), 400_000)).collect();
    assert_eq!(admit(&writes, &padded("10", 100_000)), Ok(()));
    assert!(matches!(
        admit(&writes, &padded("10", 200_000)),
        Err(WriteError::TooLarge { max: 4_194_304, .. })
    ));
}

#[test]
fn what_is_no_complete_write_is_refused() {
    let no_table = Write::from(Put::builder().item("id", S("1".into())));
    assert!(matches!(
        admit(&[], &no_table),
        Err(WriteError::Incomplete(_))
    ));
    let nothing = Write::from(TransactWriteItem::builder().build());
    assert!(matches!(
        admit(&[], &nothing),
        Err(WriteError::Incomplete(_))
    ));
    assert_eq!(
        admit(&[], &Write::new("SELECT 1")),
        Err(WriteError::NotSupported)
    );
}

#[test]
fn each_kind_of_write_asks_for_what_a_failing_condition_meets() {
    let key = || {
        [("id".to_owned(), S("1".into()))]
            .into_iter()
            .collect::<Item>()
    };
    let kinds = [
        TransactWriteItem::builder().put(
            Put::builder()
                .table_name("t")
                .set_item(Some(key()))
                .build()
                .unwrap(),
        ),
        TransactWriteItem::builder().update(
            Update::builder()
                .table_name("t")
                .set_key(Some(key()))
                .update_expression("SET a = b")
                .build()
                .unwrap(),
        ),
        TransactWriteItem::builder().delete(
            Delete::builder()
                .table_name("t")
                .set_key(Some(key()))
                .build()
                .unwrap(),
        ),
        TransactWriteItem::builder().condition_check(
            ConditionCheck::builder()
                .table_name("t")
                .set_key(Some(key()))
                .condition_expression("attribute_exists(id)")
                .build()
                .unwrap(),
        ),
    ];
    for kind in kinds {
        let write = Write::from(kind.build());
        let item = action(&write).unwrap();
        let wish = (item.put.as_ref())
            .and_then(|put| put.return_values_on_condition_check_failure.as_ref())
            .or(item
                .update
                .as_ref()
                .and_then(|update| update.return_values_on_condition_check_failure.as_ref()))
            .or(item
                .delete
                .as_ref()
                .and_then(|delete| delete.return_values_on_condition_check_failure.as_ref()))
            .or(item
                .condition_check
                .as_ref()
                .and_then(|check| check.return_values_on_condition_check_failure.as_ref()));
        assert_eq!(wish, Some(&OnFailure::AllOld), "{item:?}");
        let target = Target::of(item).unwrap();
        assert_eq!((target.table, target.item), ("t", &key()));
        assert_eq!(target.is_key, item.put.is_none());
    }
}

#[test]
fn a_write_that_sends_no_item_counts_no_bytes() {
    let id = AttributeValue::S("17".to_owned());
    let delete = Delete::builder().table_name("orders").key("id", id.clone());
    let delete = Write::from(delete);
    assert_eq!(bytes_of(action(&delete).unwrap()), 0);
    assert_eq!(bytes_of(action(&check("orders", "17")).unwrap()), 0);
    assert_eq!(
        bytes_of(action(&put("orders", "17")).unwrap()),
        "id17".len()
    );
}
