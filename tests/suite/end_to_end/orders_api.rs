//! `orders-api` behind API Gateway: a client that sends its order again doesn't order again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use lambda_idempotency_client::{Delivery, KeyLayer, Policy};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::Fault;
use crate::support::gateway::{Gateway, Response, order};
use crate::support::lambda::{Function, Sandbox, number, text};

async fn an_order_posted_twice_is_placed_once(gateway: Gateway) {
    let function = Function::orders_api().await;
    let mut sandbox = function.start().await;
    let event = gateway.post(&[("Idempotency-Key", "cart-1734")], &order());

    let first = Response::of(sandbox.invoke(event.clone()).await);
    assert_eq!(first.status, 201, "{}", first.answer);
    assert!(!first.is_replayed());
    assert_eq!(first.body()["status"], "created");

    let second = Response::of(sandbox.invoke(event).await);
    assert_eq!(second.status, 201);
    assert!(second.is_replayed());
    assert_eq!(second.body(), first.body());

    let orders = function.effects().await;
    assert_eq!(orders.len(), 1);
    assert_eq!(first.body()["order_id"], text(&orders[0], "order_id"));
}

#[tokio::test]
async fn an_order_posted_twice_over_a_rest_api_is_placed_once() {
    an_order_posted_twice_is_placed_once(Gateway::Rest).await;
}

#[tokio::test]
async fn an_order_posted_twice_over_an_http_api_is_placed_once() {
    an_order_posted_twice_is_placed_once(Gateway::Http).await;
}

#[tokio::test]
async fn a_replay_survives_the_environment_that_placed_the_order() {
    let function = Function::orders_api().await;
    let event = Gateway::Http.post(&[("Idempotency-Key", "cart-1734")], &order());
    let first = Response::of(function.start().await.invoke(event.clone()).await);
    let second = Response::of(function.start().await.invoke(event).await);

    assert!(second.is_replayed());
    assert_eq!(second.body(), first.body());
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn a_key_used_again_with_another_order_is_refused() {
    let function = Function::orders_api().await;
    let mut sandbox = function.start().await;
    for (gateway, key) in [(Gateway::Rest, "cart-1"), (Gateway::Http, "cart-2")] {
        let headers = [("Idempotency-Key", key)];
        let placed = sandbox.invoke(gateway.post(&headers, &order())).await;
        assert_eq!(Response::of(placed).status, 201);

        let mut other = order();
        other["quantity"] = json!(3);
        let refused = sandbox.invoke(gateway.post(&headers, &other)).await;
        Response::of(refused).assert_problem(422);
    }
    assert_eq!(function.effects().await.len(), 2);
}

#[tokio::test]
async fn an_order_without_a_key_is_refused() {
    let function = Function::orders_api().await;
    let mut sandbox = function.start().await;
    for gateway in [Gateway::Rest, Gateway::Http] {
        let refused = sandbox.invoke(gateway.post(&[], &order())).await;
        Response::of(refused).assert_problem(400);
    }
    assert!(function.effects().await.is_empty());
    assert!(function.records().await.is_empty());
}

#[tokio::test]
async fn a_named_stage_is_no_part_of_the_path() {
    let function = Function::orders_api().await;
    let mut sandbox = function.start().await;
    let mut event = Gateway::Http.post(&[("Idempotency-Key", "cart-1734")], &order());
    event["rawPath"] = json!("/live/orders");
    event["requestContext"]["stage"] = json!("live");
    for is_replayed in [false, true] {
        let placed = Response::of(sandbox.invoke(event.clone()).await);
        assert_eq!((placed.status, placed.is_replayed()), (201, is_replayed));
    }
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn a_path_that_is_not_there_is_a_404_and_another_method_a_405() {
    let function = Function::orders_api().await;
    let mut sandbox = function.start().await;
    let mut elsewhere = Gateway::Http.post(&[], &order());
    elsewhere["rawPath"] = json!("/nowhere");
    elsewhere["routeKey"] = json!("$default");
    elsewhere["requestContext"]["routeKey"] = json!("$default");
    assert_eq!(Response::of(sandbox.invoke(elsewhere).await).status, 404);

    let mut put = Gateway::Http.post(&[], &order());
    put["requestContext"]["http"]["method"] = json!("PUT");
    let refused = Response::of(sandbox.invoke(put).await);
    assert_eq!(refused.status, 405);
    assert_eq!(refused.header("allow").as_deref(), Some("POST"));
}

#[tokio::test]
async fn two_tenants_may_choose_the_same_key() {
    let function = Function::orders_api().await;
    let mut sandbox = function.start().await;
    let mut order_ids = Vec::new();
    for tenant in ["tenant-a", "tenant-b"] {
        let headers = [("Idempotency-Key", "cart-1"), ("x-tenant-id", tenant)];
        let placed = sandbox.invoke(Gateway::Http.post(&headers, &order())).await;
        let placed = Response::of(placed);
        assert_eq!(placed.status, 201, "{}", placed.answer);
        assert!(!placed.is_replayed());
        order_ids.push(placed.body()["order_id"].clone());
    }
    assert_ne!(order_ids[0], order_ids[1]);
    assert_eq!(function.effects().await.len(), 2);
}

#[tokio::test]
async fn a_tenant_that_cannot_be_read_is_refused_and_never_meets_the_others() {
    let function = Function::orders_api().await;
    let mut sandbox = function.start().await;
    for tenant in ["", "a,b", "ten\u{fc}nt"] {
        let headers = [("Idempotency-Key", "cart-1"), ("x-tenant-id", tenant)];
        let refused = sandbox.invoke(Gateway::Http.post(&headers, &order())).await;
        Response::of(refused).assert_problem(403);
    }
    assert!(function.effects().await.is_empty());
}

#[tokio::test]
async fn of_two_processes_with_one_key_one_places_the_order() {
    let (proxy, function) = Function::orders_api().await.behind_a_proxy().await;
    let (mut one, mut other) = tokio::join!(function.start(), function.start());
    let event = Gateway::Http.post(&[("Idempotency-Key", "cart-1734")], &order());
    // The loser finds the claim held, and answers first.
    proxy.inject("TransactWriteItems", Fault::Stop);
    let invoke = async |sandbox: &mut Sandbox| {
        let reply = Response::of(sandbox.invoke(event.clone()).await);
        proxy.let_go();
        reply
    };
    let (first, second) = tokio::join!(invoke(&mut one), invoke(&mut other));
    let (won, lost, mut loser) = if first.status == 201 {
        (first, second, other)
    } else {
        (second, first, one)
    };
    assert_eq!(won.status, 201, "{}", won.answer);
    assert!(!won.is_replayed());
    lost.assert_problem(409);
    let wait = lost.header("retry-after").expect("Retry-After");
    assert!(wait.parse::<u64>().is_ok(), "{wait}");

    let retried = Response::of(loser.invoke(event).await);
    assert!(retried.is_replayed());
    assert_eq!(retried.body(), won.body());
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn a_client_with_keys_places_each_order_once_over_a_wire_that_loses() {
    const ORDERS: u64 = 20;
    let function = Function::orders_api().await;
    let sandbox = Arc::new(Mutex::new(function.start().await));
    let sent = Arc::new(AtomicU64::new(0));
    // Every third request gets lost, and every third answer.
    let wire = service_fn(move |request: Request<Value>| {
        let (sandbox, fault) = (
            Arc::clone(&sandbox),
            sent.fetch_add(1, Ordering::Relaxed) % 3,
        );
        async move {
            if fault == 0 {
                return Err(std::io::Error::other("the request was lost"));
            }
            let key = request.headers()["idempotency-key"].to_str().unwrap();
            let event = Gateway::Http.post(&[("Idempotency-Key", key)], request.body());
            let response = Response::of(sandbox.lock().await.invoke(event).await);
            if fault == 1 {
                return Err(std::io::Error::other("the answer was lost"));
            }
            let status = u16::try_from(response.status).unwrap();
            let answer = http::Response::builder().status(status);
            let replayed = response.header("idempotent-replayed").unwrap_or_default();
            let answer = answer.header("idempotent-replayed", replayed);
            Ok(answer.body(response.body()).unwrap())
        }
    });
    let policy = Policy::default()
        .attempts(9)
        .backoff(Duration::from_millis(1));
    let client = KeyLayer::new(policy).layer(wire);
    let mut placed = Vec::new();
    for quantity in 1..=ORDERS {
        let mut order = order();
        order["quantity"] = json!(quantity);
        let request = Request::post("/orders").body(order).unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        let delivery = response.extensions().get::<Delivery>().unwrap();
        // The answer to the attempt before got lost.
        assert!(
            delivery.attempts == 3 && delivery.is_replayed,
            "{delivery:?}"
        );
        placed.push((
            response.body()["order_id"].as_str().unwrap().to_owned(),
            quantity,
        ));
    }
    let effects = function.effects().await;
    let mut effects: Vec<_> = effects
        .iter()
        .map(|order| {
            (
                text(order, "order_id").to_owned(),
                number(order, "quantity"),
            )
        })
        .map(|(id, quantity)| (id, u64::try_from(quantity).unwrap()))
        .collect();
    effects.sort();
    placed.sort();
    assert_eq!(effects, placed);
}
