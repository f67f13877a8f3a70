//! Tests of the module above.

use aws_sdk_dynamodb::types::AttributeValue::{S, Ss};
use serde_json::json;

use super::*;
use crate::dynamodb::wire::Wire;

fn item(entries: &[(&str, AttributeValue)]) -> Item {
    let entry = |(name, value): &(&str, AttributeValue)| ((*name).to_owned(), value.clone());
    entries.iter().map(entry).collect()
}

fn paid() -> Transition {
    Transition::new("orders", [("order_id", S("1".into()))])
        .from("pending")
        .to("paid")
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
fn a_mark_tells_whose_move_it_was() {
    let mine = paid().mark("paid_by", S("me".into()));
    let by = |who: &str| item(&[("status", S("paid".into())), ("paid_by", S(who.into()))]);
    assert_eq!(mine.judge(Some(&by("me"))), Guarded::AlreadyApplied);
    assert!(matches!(
        mine.judge(Some(&by("other"))),
        Guarded::Refused { .. }
    ));
}

#[test]
fn an_event_that_is_remembered_has_applied() {
    let add = Once::new("accounts", [("account", S("a".into()))], "e-1").add("balance", 5);
    let remembers = |event: &str| item(&[("applied_events", Ss(vec![event.into()]))]);
    assert_eq!(add.judge(Some(&remembers("e-1"))), Guarded::AlreadyApplied);
    assert!(matches!(
        add.judge(Some(&remembers("e-2"))),
        Guarded::Refused { .. }
    ));
}

#[test]
fn the_state_stands_in_the_attribute_that_is_named() {
    let paid = paid().attribute("phase");
    let is_paid = item(&[("phase", S("paid".into()))]);
    assert_eq!(paid.judge(Some(&is_paid)), Guarded::AlreadyApplied);
    let elsewhere = item(&[("status", S("paid".into()))]);
    assert!(matches!(
        paid.judge(Some(&elsewhere)),
        Guarded::Refused { .. }
    ));
}

#[test]
fn the_events_stand_in_the_attribute_that_is_named() {
    let add = Once::new("accounts", [("account", S("a".into()))], "e-1").attribute("seen");
    let seen = item(&[("seen", Ss(vec!["e-1".into()]))]);
    assert_eq!(add.judge(Some(&seen)), Guarded::AlreadyApplied);
    let elsewhere = item(&[("applied_events", Ss(vec!["e-1".into()]))]);
    assert!(matches!(
        add.judge(Some(&elsewhere)),
        Guarded::Refused { .. }
    ));
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
    assert_eq!(shown.requests()[1].1["ConsistentRead"], true);

    let absent = wire(Some((200, json!({}))));
    let guarded = paid().apply(&absent.store().client).await.unwrap();
    assert_eq!(guarded, Guarded::Refused { found: None });
    let denied = wire(Some((400, json!({ "__type": "AccessDeniedException" }))));
    let guarded = paid().apply(&denied.store().client).await.unwrap();
    assert_eq!(guarded, Guarded::Refused { found: None });
    let failed = wire(Some((500, json!({ "__type": "InternalServerError" }))));
    let unknown = paid().apply(&failed.store().client).await;
    assert!(
        matches!(unknown, Err(GuardError::Unknown(_))),
        "{unknown:?}"
    );
}
