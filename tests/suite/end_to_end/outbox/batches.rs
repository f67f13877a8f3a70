//! Batches of the stream, as it may cut, order and repeat what it announces.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{FOREVER, Path, Put};
use crate::support::proxy::Meddler;
use crate::support::{Fault, Proxy, Server};

/// Returns the stream's record of the event with this id.
async fn announced(path: &Path, id: &str) -> Value {
    let mut event = path.stream.event().await;
    let mut records = event["Records"].as_array_mut().unwrap().drain(..);
    let is_it = |record: &Value| record["dynamodb"]["Keys"]["id"]["S"] == *id;
    records.find(is_it).expect("announced")
}

async fn batch(path: &Path, ids: &[&str]) -> Value {
    let mut records = Vec::new();
    for id in ids {
        records.push(announced(path, id).await);
    }
    json!({ "Records": records })
}

/// The ids of what was sent since the last call.
fn sent(path: &Path) -> Vec<String> {
    let id = |(_, message): (String, Value)| {
        let id = message["MessageDeduplicationId"].as_str();
        id.unwrap().to_owned()
    };
    path.queue.take().into_iter().map(id).collect()
}

#[tokio::test]
async fn events_of_a_transaction_over_several_batches_are_published_in_their_order() {
    for (positions, batches) in [
        ([0, 1, 2], vec![vec!["0-0", "0-2"], vec!["0-1"]]),
        // Other writes of the transaction stand between.
        ([1, 4, 9], vec![vec!["0-0", "0-2"], vec!["0-1"]]),
        ([0, 1, 2], vec![vec!["0-2"], vec!["0-1", "0-0"]]),
        ([0, 1, 2], vec![vec!["0-1"], vec!["0-2"], vec!["0-0"]]),
    ] {
        let path = Path::new().await;
        for (number, position) in positions.into_iter().enumerate() {
            let id = &format!("0-{number}");
            let put = Put {
                id,
                position,
                ..Put::default()
            };
            put.into(&path).await;
        }
        // Another transaction of the aggregate, and the same transaction in another aggregate, are of no concern.
        Put {
            id: "0-8",
            transaction: "other",
            ..Put::default()
        }
        .into(&path)
        .await;
        Put {
            id: "0-9",
            aggregate: "order-2",
            ..Put::default()
        }
        .into(&path)
        .await;
        let mut relay = path.relay.start().await;
        for ids in &batches {
            let answer = relay.invoke(batch(&path, ids).await).await.answer();
            assert_eq!(answer["batchItemFailures"], json!([]));
        }
        assert_eq!(
            sent(&path),
            ["0-0", "0-1", "0-2"],
            "{positions:?} {batches:?}"
        );
    }
}

#[tokio::test]
async fn an_earlier_event_of_another_batch_that_fails_stops_those_behind_it() {
    let path = Path::new().await;
    for (id, position) in [("0-0", 0), ("0-1", 1)] {
        Put {
            id,
            position,
            ..Put::default()
        }
        .into(&path)
        .await;
    }
    path.queue_wire.inject("SendMessage", Fault::DENY);
    let mut relay = path.relay.start().await;
    let batch = batch(&path, &["0-1"]).await;
    let number = &batch["Records"][0]["dynamodb"]["SequenceNumber"];
    let answer = relay.invoke(batch.clone()).await.answer();
    assert_eq!(
        answer["batchItemFailures"],
        json!([{ "itemIdentifier": number }])
    );
    assert!(sent(&path).is_empty());
    let answer = relay.invoke(batch).await.answer();
    assert_eq!(answer["batchItemFailures"], json!([]));
    assert_eq!(sent(&path), ["0-0", "0-1"]);
}

#[tokio::test]
async fn a_key_that_is_announced_twice_fails_nobody() {
    let path = Path::new().await;
    for (aggregate, id) in [("order-1", "0-1"), ("order-2", "0-2"), ("order-3", "0-1")] {
        Put {
            aggregate,
            id,
            ..Put::default()
        }
        .into(&path)
        .await;
    }
    let mut event = path.stream.event().await;
    let records = event["Records"].as_array_mut().unwrap();
    assert_eq!(records.len(), 3, "an id of two aggregates is of two events");
    let mut again = records[0].clone();
    again["dynamodb"]["SequenceNumber"] = json!("999999999999999999999");
    records.push(again);
    let mut relay = path.relay.start().await;
    path.queue_wire.inject("SendMessage", Fault::DENY);
    let answer = relay.invoke(event.clone()).await.answer();
    let failures = answer["batchItemFailures"].as_array().unwrap().len();
    assert!((1..3).contains(&failures), "{answer}");
    let answer = relay.invoke(event).await.answer();
    assert_eq!(answer["batchItemFailures"], json!([]));
    assert_eq!(sent(&path).len(), 3);
}

/// Without a time, an item isn't in the index, where the sweep looks.
#[tokio::test]
async fn an_item_that_is_no_event_is_parked_and_counted_once() {
    let path = Path::new().await;
    for (id, recorded_at) in [("0-1", None), ("0-2", Some("1.5")), ("0-3", Some("1"))] {
        let put = Put {
            id,
            recorded_at,
            ..Put::default()
        };
        put.into(&path).await;
    }
    let event = path.stream.event().await;
    let (table_wire, relay) = path.relay.behind_a_proxy().await;
    let mut relay = relay.start().await;
    table_wire.inject("UpdateItem", Fault::DENY);
    let answer = relay.invoke(event.clone()).await.answer();
    let failures = answer["batchItemFailures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{answer}");
    assert_eq!(sent(&path), ["0-3"]);
    assert!(relay.lines().contains(r#""outbox_parked":1"#));
    for parked in [1, 0] {
        let answer = relay.invoke(event.clone()).await.answer();
        assert_eq!(answer["batchItemFailures"], json!([]));
        let lines = relay.lines();
        assert_eq!(lines.matches("parked: it is no event").count(), parked);
        assert_eq!(lines.matches(r#""outbox_parked":1"#).count(), parked);
    }
    let events = path.relay.effects().await;
    let parked = events.iter().filter(|it| it.contains_key("parked_at"));
    assert_eq!(parked.count(), 2);
    assert!(events.iter().all(|event| !event.contains_key("pending")));
    assert!(sent(&path).is_empty());
}

/// No index and no announcement has it any more.
#[tokio::test]
async fn an_item_that_is_parked_without_an_answer_is_counted() {
    let path = Path::new().await;
    let (table_wire, relay) = path.relay.behind_a_proxy().await;
    let mut relay = relay.start().await;
    // Of the three sends of the SDK: the first, or all.
    for (id, lost, failed) in [("0-1", 1, 0), ("0-2", 3, 1)] {
        let put = Put {
            id,
            data: None,
            ..Put::default()
        };
        put.into(&path).await;
        let event = batch(&path, &[id]).await;
        table_wire.repeat("UpdateItem", Fault::LoseReply, lost);
        for (failed, counted) in [(failed, 1), (0, 0)] {
            let answer = relay.invoke(event.clone()).await.answer();
            let failures = answer["batchItemFailures"].as_array().unwrap();
            assert_eq!(failures.len(), failed, "{lost}: {answer}");
            let lines = relay.lines();
            let parked = lines.matches(r#""outbox_parked":1"#).count();
            assert_eq!(parked, counted, "{lost}: {lines}");
            assert_eq!(lines.matches("parked: it is no event").count(), counted);
        }
    }
    let events = path.relay.effects().await;
    assert!(events.iter().all(|event| event.contains_key("parked_at")));
}

/// Answers nothing.
struct Hanging;

impl Meddler for Hanging {
    fn fault(&self, _: &str, _: &Value) -> Fault {
        Fault::Delay(FOREVER)
    }
}

#[tokio::test]
async fn a_batch_whose_target_hangs_is_answered_before_the_deadline() {
    let path = Path::new().await;
    // More than are worked on side by side: one after the other, their timeouts outlast the invocation.
    for number in 0..30 {
        let (aggregate, id) = (&format!("order-{number}"), &format!("0-{number}"));
        Put {
            aggregate,
            id,
            ..Put::default()
        }
        .into(&path)
        .await;
    }
    let hanging = Server::behind(path.queue.endpoint().to_owned());
    let hanging = Proxy::meddled_with(&hanging, Arc::new(Hanging)).await;
    let relay = path.orders.outbox_relay(hanging.server().endpoint());
    let mut relay = relay.timeout(Duration::from_secs(20)).start().await;
    let event = path.stream.event().await;
    let answer = relay.invoke(event).await.answer();
    let failed = answer["batchItemFailures"].as_array().unwrap().iter();
    let failed: BTreeSet<_> = failed
        .map(|one| one["itemIdentifier"].to_string())
        .collect();
    assert_eq!(failed.len(), 30);
}
