//! The functions under the real `cargo lambda watch`, called as its users call them. It sends the deadline 600000, ten minutes
//! after 1970, with each event. `docs/local.md` sends the same two events.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::StatusCode;
use nix::errno::Errno;
use nix::sys::signal::kill;
use serde_json::{Value, json};

use crate::support::gateway::{Response, order};
use crate::support::lambda::{Function, Reply, Running, Watch, text};

/// Returns the number of the function's warnings of a deadline so far.
fn warnings(running: &mut Running) -> usize {
    let lines = running.lines();
    let lines = lines.lines();
    lines.filter(|l| l.contains("deadline_unknown")).count()
}

#[tokio::test]
async fn an_order_is_placed_once_and_replayed_and_its_key_is_refused_for_another_order() {
    let (watch, function) = (Watch::start().await, Function::orders_api().await);
    let mut running = function.start_under(&watch);
    let post = async |order: &Value| {
        let headers = [("idempotency-key", "cart-1734")];
        watch.post("orders-api", "/orders", &headers, order).await
    };

    let first = post(&order()).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert!(!first.is_replayed());
    assert_eq!(first.json()["status"], "created");

    let second = post(&order()).await;
    assert_eq!(second.status, 201, "{second:?}");
    assert!(second.is_replayed());
    assert_eq!(second.body, first.body);

    let mut other = order();
    other["quantity"] = json!(3);
    let refused = post(&other).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(refused.headers["content-type"], "application/problem+json");

    let orders = function.effects().await;
    assert_eq!(orders.len(), 1);
    assert_eq!(first.json()["order_id"], text(&orders[0], "order_id"));
    assert_eq!(warnings(&mut running), 1);
}

#[tokio::test]
async fn orders_that_come_at_once_are_placed_once_by_a_process_that_serves_several() {
    let (watch, function) = (Watch::start().await, Function::orders_api().await);
    let several = function.with("AWS_LAMBDA_MAX_CONCURRENCY", "4");
    let mut running = several.start_under(&watch);
    let post = async |n: usize| {
        let key = format!("cart-{n}");
        let mut order = order();
        order["sku"] = json!(format!("KETTLE-{n}"));
        let headers = [("idempotency-key", key.as_str())];
        let answer = watch.post("orders-api", "/orders", &headers, &order).await;
        answer.status
    };
    let twice = join_all((0..16).map(|n| post(n / 2))).await;
    let statuses: BTreeSet<_> = twice.iter().map(StatusCode::as_u16).collect();
    assert!(statuses.is_subset(&[201, 409].into()), "{statuses:?}");
    assert_eq!(function.effects().await.len(), 8);
    assert_eq!(warnings(&mut running), 1);
}

#[tokio::test]
async fn an_event_of_an_api_that_is_invoked_twice_places_one_order() {
    let (watch, function) = (Watch::start().await, Function::orders_api().await);
    let _running = function.start_under(&watch);
    let event = include_str!("../../functions/orders-api/events/order.json");
    let event = serde_json::from_str(event).unwrap();
    let mut bodies = Vec::new();
    for is_replayed in [false, true] {
        let answer = watch.invoke("orders-api", &event).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = Response::of(Reply::Answered(answer.json()));
        assert_eq!((answer.status, answer.is_replayed()), (201, is_replayed));
        bodies.push(answer.body());
    }
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn a_payment_that_is_twice_in_a_batch_is_made_once_and_no_message_is_reported() {
    let (watch, function) = (Watch::start().await, Function::payments_worker().await);
    let mut running = function.start_under(&watch);
    let event = include_str!("../../functions/payments-worker/events/duplicate.json");
    let event = serde_json::from_str(event).unwrap();
    for _ in 0..2 {
        let answer = watch.invoke("payments-worker", &event).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json(), json!({ "batchItemFailures": [] }));
    }
    let entries = function.effects().await;
    let made = entries.iter().map(|entry| text(entry, "payment_id"));
    let mut made: Vec<_> = made.collect();
    made.sort_unstable();
    assert_eq!(made, ["p-1", "p-2"]);
    assert_eq!(warnings(&mut running), 1);
}

#[tokio::test]
async fn a_test_that_fails_leaves_no_watch_behind() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let failing = tokio::spawn(async move {
        let watch = Watch::start().await;
        tell.send(watch.pid()).unwrap();
        panic!("on purpose");
    });
    let pid = told.await.unwrap();
    assert!(failing.await.unwrap_err().is_panic());

    assert_eq!(kill(pid, None), Err(Errno::ESRCH));
}
