//! The sweep: nothing that can't be published keeps it from the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};

use super::{Path, Put};
use crate::support::lambda::{Item, Reply, Sandbox, text};
use crate::support::proxy::Meddler;
use crate::support::{Fault, Proxy};

/// More than one page of a bucket.
const POISON: usize = 120;

/// Puts events that no bus takes into the outbox, one that it takes, and an item that is no event.
async fn put_poison(path: &Path) {
    let ids = (0..POISON).map(|number| (format!("0-{number}"), "1", Some("no JSON")));
    let others = [("0-good", "2", Some("{}")), ("0-none", "2", None)];
    let others = others.map(|(id, recorded_at, data)| (id.to_owned(), recorded_at, data));
    for (id, recorded_at, data) in ids.chain(others) {
        let put = Put {
            aggregate: &format!("order-{id}"),
            id: &id,
            recorded_at: Some(recorded_at),
            data,
            ..Put::default()
        };
        put.into(path).await;
    }
}

#[tokio::test]
async fn events_that_cannot_be_published_keep_no_other_from_the_sweep_and_are_parked() {
    let path = Path::new().await;
    put_poison(&path).await;
    let relay = path.relay.target("eventbridge:orders");
    let mut relay = relay.with("PARK_AFTER_REFUSALS", "2").start().await;

    // Each is tried, what is no event is parked at once, and the sweep fails, so that its function does.
    assert_matches!(relay.invoke(json!({})).await, Reply::Failed(_));
    assert_eq!(path.queue.take().len(), 1);
    assert!(relay.lines().contains(r#""outbox_parked":1,"#));

    // Nobody takes them a second time: they are parked, the next sweep has nothing to do.
    assert_matches!(relay.invoke(json!({})).await, Reply::Failed(_));
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
    let leaves = |attribute| parked.iter().all(|event| !event.contains_key(attribute));
    assert!(leaves("pending") && leaves("expiration"));

    // The way back that docs/operations/records.md has, for one whose data was fixed.
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
async fn all_parked_events_are_put_back_at_once_and_an_interruption_costs_nothing() {
    let path = Path::new().await;
    put_poison(&path).await;
    let refusing = path.relay.target("eventbridge:orders");
    let mut refusing = refusing.with("PARK_AFTER_REFUSALS", "1").start().await;
    assert_matches!(refusing.invoke(json!({})).await, Reply::Failed(_));
    path.queue.take();

    // The target is corrected: it takes what isn't JSON.
    let (wire, relay) = path.relay.behind_a_proxy().await;
    let mut relay = relay.start().await;
    let parked = async |relay: &mut Sandbox| {
        let counted = relay.invoke(json!({ "parked": "count" })).await.answer();
        assert_eq!(counted["is_complete"], true, "{counted}");
        counted["parked"].as_u64().unwrap()
    };
    let all = u64::try_from(POISON).unwrap();
    assert_eq!(parked(&mut relay).await, all);
    // As many as are under way at once, so that one is done before another is denied.
    wire.repeat("UpdateItem", Fault::Pass, 10);
    wire.inject("UpdateItem", Fault::DENY);
    // A request goes on behind the event where another ended.
    let mut behind = Vec::new();
    for event in path.relay.effects().await {
        let place = json!({ "aggregate": text(&event, "aggregate"), "id": text(&event, "id") });
        let request = json!({ "parked": "count", "from": place });
        let counted = relay.invoke(request).await.answer();
        behind.push(counted["parked"].as_u64().unwrap());
    }
    assert_eq!(behind.iter().min(), Some(&0), "{behind:?}");
    assert!(behind.iter().max() >= Some(&(all - 1)), "{behind:?}");
    let put_back = json!({ "parked": "put_back" });
    let failed = relay.invoke(put_back.clone()).await;
    assert_matches!(failed, Reply::Failed(_));
    let left = parked(&mut relay).await;
    assert!((1..all).contains(&left), "{left}");
    let answer = relay.invoke(put_back).await.answer();
    // Some may have been put back by what was under way at the interruption.
    let put_back = answer["put_back"].as_u64().unwrap();
    assert!((1..=left).contains(&put_back), "{answer}");
    let expected = json!({ "parked": put_back, "put_back": put_back, "is_complete": true });
    assert_eq!(answer, expected);

    relay.invoke(json!({})).await.answer();
    assert_eq!(path.queue.take().len(), POISON);
    let events = path.relay.effects().await;
    let parked: Vec<_> = events
        .iter()
        .filter(|e| e.contains_key("parked_at"))
        .collect();
    assert_eq!((parked.len(), text(parked[0], "id")), (1, "0-none"));
}

#[tokio::test]
async fn the_events_behind_one_that_failed_are_not_loaded() {
    let path = Path::new().await;
    // More than two loads take.
    for number in 0..60 {
        let (recorded_at, data) = match number {
            0 => ("1", "no JSON"),
            _ => ("2", "{}"),
        };
        let put = Put {
            id: &format!("0-{number}"),
            recorded_at: Some(recorded_at),
            data: Some(data),
            ..Put::default()
        };
        put.into(&path).await;
    }
    let (wire, relay) = path.relay.behind_a_proxy().await;
    let mut relay = relay.target("eventbridge:orders").start().await;
    assert_matches!(relay.invoke(json!({})).await, Reply::Failed(_));
    assert_eq!(wire.count("BatchGetItem"), 1);
    assert!(path.queue.take().is_empty());
}

#[tokio::test]
async fn an_item_that_is_no_event_waits_behind_an_event_that_failed_and_is_parked_in_its_turn() {
    let path = Path::new().await;
    // More than one load takes.
    for number in 0..30 {
        let (recorded_at, data) = match number {
            0 => ("1", Some("no JSON")),
            29 => ("3", None),
            _ => ("2", Some("{}")),
        };
        let put = Put {
            id: &format!("0-{number}"),
            recorded_at: Some(recorded_at),
            data,
            ..Put::default()
        };
        put.into(&path).await;
    }
    let relay = path.relay.target("eventbridge:orders");
    let mut relay = relay.with("PARK_AFTER_REFUSALS", "2").start().await;
    for (parked, published) in [(0, 0), (2, 28)] {
        assert_matches!(relay.invoke(json!({})).await, Reply::Failed(_));
        assert_eq!(path.queue.take().len(), published);
        let events = path.relay.effects().await;
        let is_parked = |event: &&Item| event.contains_key("parked_at");
        assert_eq!(events.iter().filter(is_parked).count(), parked);
    }
}

#[tokio::test]
async fn an_item_whose_time_has_a_fraction_is_parked() {
    let path = Path::new().await;
    let put = Put {
        recorded_at: Some("1.5"),
        ..Put::default()
    };
    put.into(&path).await;
    let mut relay = path.relay.start().await;
    let swept = relay.invoke(json!({})).await;
    assert_matches!(swept, Reply::Failed(_));
    let event = path.relay.effects().await.remove(0);
    assert!(event.contains_key("parked_at") && !event.contains_key("pending"));
    assert!(path.queue.take().is_empty());
}

/// Pages of an aggregate that has no end.
#[derive(Default)]
struct Endless(AtomicUsize);

impl Meddler for Endless {
    fn fault(&self, operation: &str, request: &Value) -> Fault {
        if operation != "Query" || request.get("IndexName").is_some() {
            return Fault::Pass;
        }
        // Each goes on from another place than the one before.
        match self.0.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Fault::Reply(
                r#"{"Items":[],"Count":0,"ScannedCount":9,"LastEvaluatedKey":{"aggregate":{"S":"a"},"id":{"S":"0"}}}"#,
            ),
            _ => Fault::Reply(
                r#"{"Items":[],"Count":0,"ScannedCount":9,"LastEvaluatedKey":{"aggregate":{"S":"a"},"id":{"S":"1"}}}"#,
            ),
        }
    }
}

#[tokio::test]
async fn an_aggregate_that_takes_long_to_read_leaves_the_others_their_time() {
    let path = Path::new().await;
    // The one before it in its transaction isn't among those that wait, so that the aggregate is read.
    let large = Put {
        aggregate: "large",
        id: "0-large",
        position: 1,
        ..Put::default()
    };
    large.into(&path).await;
    // More than are loaded at once.
    for number in 0..30 {
        let put = Put {
            aggregate: &format!("order-{number}"),
            id: &format!("0-{number}"),
            recorded_at: Some("2"),
            ..Put::default()
        };
        put.into(&path).await;
    }
    let endless = Arc::new(Endless::default());
    let wire = Proxy::meddled_with(path.orders.server(), endless.clone()).await;
    let relay = path.relay.behind(&wire).timeout(Duration::from_secs(30));
    let swept = relay.start().await.invoke(json!({})).await;
    assert_matches!(swept, Reply::Failed(_));
    assert!(endless.0.load(Ordering::Relaxed) > 0, "it was not read");
    assert_eq!(path.queue.take().len(), 30);
}
