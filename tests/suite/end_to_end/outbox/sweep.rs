//! The sweep: nothing that can't be published keeps it from the rest.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};

use super::Path;
use crate::support::Fault;
use crate::support::lambda::Reply;

/// Puts an event into a function's outbox, as `Outbox::emit` would.
async fn put(path: &Path, id: &str, recorded_at: i64, data: Option<&str>) {
    let put = path.orders.server().client().put_item();
    let mut put = put
        .table_name(path.orders.outbox())
        .item("aggregate", AttributeValue::S(format!("order-{id}")))
        .item("id", AttributeValue::S(id.to_owned()))
        .item("type", AttributeValue::S("order.created".to_owned()))
        .item("recorded_at", AttributeValue::N(recorded_at.to_string()))
        .item("transaction", AttributeValue::S("t".to_owned()))
        .item("position", AttributeValue::N("0".to_owned()))
        .item("pending", AttributeValue::S("0".to_owned()));
    if let Some(data) = data {
        put = put.item("data", AttributeValue::S(data.to_owned()));
    }
    put.send().await.expect("an item");
}

/// More than one page of a bucket.
const POISON: usize = 120;

#[tokio::test]
async fn events_that_cannot_be_published_keep_no_other_from_the_sweep_and_are_parked() {
    let path = Path::new().await;
    for number in 0..POISON {
        put(&path, &format!("0-{number}"), 1, Some("no JSON")).await;
    }
    put(&path, "0-good", 2, Some("{}")).await;
    put(&path, "0-none", 2, None).await;
    let relay = path.relay.target("eventbridge:orders");
    let mut relay = relay.with("PARK_AFTER_REFUSALS", "2").start().await;

    // Each is tried, what is no event is parked at once, and the sweep fails, so that its function does.
    assert!(matches!(relay.invoke(json!({})).await, Reply::Failed(_)));
    assert_eq!(path.queue.take().len(), 1);
    assert!(relay.lines().contains(r#""outbox_parked":1,"#));

    // Nobody takes them a second time: they are parked, the next sweep has nothing to do.
    assert!(matches!(relay.invoke(json!({})).await, Reply::Failed(_)));
    let counted = relay.lines();
    let counted = counted
        .lines()
        .find(|line| line.contains("outbox_parked\":"));
    let counted: Value = serde_json::from_str(counted.expect("a metric")).unwrap();
    assert_eq!(counted["outbox_parked"], POISON);
    let directive = &counted["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(directive["Namespace"], "LambdaIdempotency");
    assert_eq!(directive["Dimensions"], json!([["function"]]));
    assert_eq!(counted["function"], "outbox-relay");
    relay.invoke(json!({})).await.answer();
    let events = path.relay.effects().await;
    let parked = events
        .iter()
        .filter(|event| event.contains_key("parked_at"));
    let parked: Vec<_> = parked.collect();
    assert_eq!(parked.len(), POISON + 1);
    assert!(parked.iter().all(|event| !event.contains_key("pending")));

    // The way back that docs/operations/records.md has, for one whose data was mended.
    let server = path.orders.server().client();
    let back = server.update_item().table_name(path.orders.outbox());
    back.key("aggregate", AttributeValue::S("order-0-7".to_owned()))
        .key("id", AttributeValue::S("0-7".to_owned()))
        .condition_expression("attribute_exists(parked_at)")
        .update_expression("SET pending = :digit, #data = :data REMOVE parked_at, refusals")
        .expression_attribute_names("#data", "data")
        .expression_attribute_values(":digit", AttributeValue::S("0".to_owned()))
        .expression_attribute_values(":data", AttributeValue::S("[]".to_owned()))
        .send()
        .await
        .unwrap();
    relay.invoke(json!({})).await.answer();
    assert_eq!(path.queue.take().len(), 1);
}

#[tokio::test]
async fn a_target_that_denies_everything_parks_nothing() {
    let path = Path::new().await;
    path.place("cart-1").await;
    let relay = path.relay.with("PARK_AFTER_REFUSALS", "1");
    let mut relay = relay.start().await;
    for fault in [Fault::THROTTLE, Fault::LoseRequest, Fault::DENY] {
        // As often as the SDK tries.
        for _ in 0..3 {
            path.queue_wire.inject("SendMessage", fault.clone());
        }
        assert!(matches!(relay.invoke(json!({})).await, Reply::Failed(_)));
    }
    let events = path.relay.effects().await;
    assert!(events[0].contains_key("pending") && !events[0].contains_key("refusals"));
}
