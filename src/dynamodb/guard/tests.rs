//! Tests of the module above.

use aws_sdk_dynamodb::primitives::Blob;
use serde_json::json;

use super::*;
use crate::dynamodb::wire::Wire;

fn item(entries: &[(&str, AttributeValue)]) -> Item {
    let entry = |(name, value): &(&str, AttributeValue)| ((*name).to_owned(), value.clone());
    entries.iter().map(entry).collect()
}

fn paid() -> Guard {
    Guard::transition("orders", [("order_id", S("1".into()))], ["pending"], "paid")
}

#[test]
fn a_state_that_is_reached_already_is_told_from_one_that_is_not_to_be_reached() {
    let is_paid = item(&[("status", S("paid".into()))]);
    let is_cancelled = item(&[("status", S("cancelled".into()))]);
    assert_eq!(paid().judge(Some(&is_paid)), Guarded::AlreadyApplied);
    let refused = Guarded::Refused {
        found: Some(is_cancelled.clone()),
    };
    assert_eq!(paid().judge(Some(&is_cancelled)), refused);
    assert_eq!(paid().judge(None), Guarded::Refused { found: None });
}

#[test]
fn a_value_that_is_set_tells_whose_move_it_was() {
    let mine = paid().set("paid_by", S("me".into()));
    let by = |who: &str| item(&[("status", S("paid".into())), ("paid_by", S(who.into()))]);
    assert_eq!(mine.judge(Some(&by("me"))), Guarded::AlreadyApplied);
    assert_matches!(mine.judge(Some(&by("other"))), Guarded::Refused { .. });
    let nobody = item(&[("status", S("paid".into()))]);
    assert_matches!(mine.judge(Some(&nobody)), Guarded::Refused { .. });
}

#[test]
fn an_event_that_is_remembered_has_applied() {
    let add = Guard::once("accounts", [("account", S("a".into()))], "e-1").add("balance", 5);
    let remembers = |event: &str| item(&[("applied_events", Ss(vec![event.into()]))]);
    assert_eq!(add.judge(Some(&remembers("e-1"))), Guarded::AlreadyApplied);
    assert_matches!(add.judge(Some(&remembers("e-2"))), Guarded::Refused { .. });
    let values = add.builder().build().unwrap().expression_attribute_values;
    assert_eq!(values.unwrap()[":at_most"], N("100".into()));
}

#[test]
fn the_state_stands_in_the_attribute_that_is_named() {
    let paid = paid().attribute("phase");
    let is_paid = item(&[("phase", S("paid".into()))]);
    assert_eq!(paid.judge(Some(&is_paid)), Guarded::AlreadyApplied);
    let elsewhere = item(&[("status", S("paid".into()))]);
    assert_matches!(paid.judge(Some(&elsewhere)), Guarded::Refused { .. });
}

#[test]
fn the_events_stand_in_the_attribute_that_is_named() {
    let add = Guard::once("accounts", [("account", S("a".into()))], "e-1").attribute("seen");
    let seen = item(&[("seen", Ss(vec!["e-1".into()]))]);
    assert_eq!(add.judge(Some(&seen)), Guarded::AlreadyApplied);
    let elsewhere = item(&[("applied_events", Ss(vec!["e-1".into()]))]);
    assert_matches!(add.judge(Some(&elsewhere)), Guarded::Refused { .. });
}

#[test]
fn a_number_is_the_same_in_every_form_and_a_set_in_every_order() {
    let set = |members: [&str; 2]| Ss(members.map(str::to_owned).to_vec());
    for (stored, wanted) in [
        ("10.5", "10.50"),
        ("1000", "1e3"),
        ("5", "005"),
        ("5", "+5"),
        ("-5", "-05"),
        ("0.5", ".50"),
        ("0", "-00"),
    ] {
        assert!(is_same(&N(stored.into()), &N(wanted.into())), "{wanted}");
    }
    assert!(!is_same(&N("5".into()), &N("-5".into())));
    assert!(!is_same(&N("10.5".into()), &N("10.51".into())));
    assert!(is_same(&set(["a", "b"]), &set(["b", "a"])));
    assert!(!is_same(&set(["a", "b"]), &set(["a", "c"])));
    assert!(!is_same(&S("10.5".into()), &S("10.50".into())));
    let numbers = |members: [&str; 2]| Ns(members.map(str::to_owned).to_vec());
    assert!(is_same(&numbers(["1", "2"]), &numbers(["2.0", "1"])));
    assert!(!is_same(&numbers(["1", "2"]), &numbers(["1", "3"])));
    let blobs = |bytes: [&[u8]; 2]| Bs(bytes.map(Blob::new).to_vec());
    assert!(is_same(&blobs([b"a", b"b"]), &blobs([b"b", b"a"])));
    assert!(!is_same(&blobs([b"a", b"b"]), &blobs([b"a", b"c"])));
    let nested = |total: &str| {
        let total = ("total".to_owned(), N(total.to_owned()));
        M([total.clone(), ("all".to_owned(), L(vec![total.1]))].into())
    };
    assert!(is_same(&nested("10.5"), &nested("10.50")));
    assert!(!is_same(&nested("10.5"), &nested("10.51")));
    assert!(!is_same(&L(vec![N("1".into())]), &L(Vec::new())));
    let list = |second: &str| L(vec![N("1".into()), N(second.into())]);
    assert!(!is_same(&list("2"), &list("3")));
    let map = |name: &str, second: &str| {
        let first = ("a".to_owned(), N("1".into()));
        M([first, (name.to_owned(), N(second.into()))].into())
    };
    assert!(!is_same(&map("b", "2"), &map("b", "3")));
    assert!(!is_same(&map("b", "2"), &map("c", "2")));
}

/// A proxy or an emulator may leave the item out of a failed condition.
#[tokio::test(start_paused = true)]
async fn an_item_that_a_refusal_does_not_show_is_read() {
    let refused = || Some((400, json!({ "__type": "ConditionalCheckFailedException" })));
    let wire = |read| Wire::answering([refused(), read]);
    let is_paid = json!({ "Item": { "status": { "S": "paid" } } });
    let shown = wire(Some((200, is_paid)));
    let guarded = paid().apply(&shown.store().client).await.unwrap();
    assert_eq!(guarded, Guarded::AlreadyApplied);
    assert_eq!(shown.actions(), ["UpdateItem", "GetItem"]);
    let read = json!({ "TableName": "orders", "Key": { "order_id": { "S": "1" } }, "ConsistentRead": true });
    assert_eq!(shown.requests()[1].1, read);

    let absent = wire(Some((200, json!({}))));
    let guarded = paid().apply(&absent.store().client).await.unwrap();
    assert_eq!(guarded, Guarded::Refused { found: None });
    let denied = wire(Some((400, json!({ "__type": "AccessDeniedException" }))));
    let guarded = paid().apply(&denied.store().client).await.unwrap();
    assert_eq!(guarded, Guarded::Refused { found: None });
    let failed = wire(Some((500, json!({ "__type": "InternalServerError" }))));
    let unknown = paid().apply(&failed.store().client).await;
    assert_matches!(unknown, Err(GuardError::Unknown(_)));
}

#[tokio::test(start_paused = true)]
async fn a_guarded_write_that_the_page_of_a_proxy_answers_may_have_applied() {
    for page in [
        json!("<html>blocked</html>"),
        json!({ "message": "Forbidden" }),
    ] {
        let wire = Wire::answering([Some((403, page))]);
        let unknown = paid().apply(&wire.store().client).await;
        assert_matches!(unknown, Err(GuardError::Unknown(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_has_the_words_of_dynamodb_without_a_value() {
    for (code, message) in [
        ("ResourceNotFoundException", "Requested resource not found"),
        ("ValidationException", "no numeric value: 4111-1111"),
    ] {
        let reply = json!({ "__type": code, "message": message });
        let wire = Wire::answering([Some((400, reply))]);
        let failed = paid().apply(&wire.store().client).await.unwrap_err();
        for text in [failed.to_string(), format!("{failed:?}")] {
            let words = message.trim_end_matches(": 4111-1111");
            assert!(text.contains(words) && !text.contains("4111"), "{text}");
        }
    }
}
