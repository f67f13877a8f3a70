//! The same forms behind SQS and HTTP: a handler writes to its claim, and the layers needn't know.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use lambda_http::{Body, Request, Response};
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::sqs::{BatchLayer, Message, Rejection};
use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Claim, Clock, Idempotency};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Bench, Failed, met, number, string};
use crate::on_each_server;
use crate::support::Fault;
use crate::support::Server;
use crate::support::events::{batch, message};

/// `POST /orders`: deposits 5 and takes 2 pieces, of which there may be too few.
async fn post(bench: &Arc<Bench>, once: &Idempotency, key: &str) -> Response<Vec<u8>> {
    let held = Arc::clone(bench);
    let handler = service_fn(move |request: Request| {
        let bench = Arc::clone(&held);
        async move {
            let claim = request.extensions().get::<Claim>().unwrap();
            claim.write(bench.deposit(5)).unwrap();
            let take = Write::from(bench.take(2)).or_else(|refusal| {
                let left = met(refusal.item(), "pieces");
                Response::builder()
                    .status(409)
                    .body(Body::from(format!("{left} left")))
                    .unwrap()
            });
            claim.write(take).unwrap();
            Ok::<_, Infallible>(
                Response::builder()
                    .status(201)
                    .body(Body::from("placed"))
                    .unwrap(),
            )
        }
    });
    let api = IdempotencyLayer::unscoped(once.clone()).layer(handler);
    let request = http::Request::post("/orders")
        .header("idempotency-key", key)
        .body(Body::from("{}"));
    let response = api.oneshot(request.unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = http_body_util::BodyExt::collect(body)
        .await
        .unwrap()
        .to_bytes();
    Response::from_parts(parts, body.to_vec())
}

on_each_server!(an_http_handler_answers_a_failed_condition_with_a_response_of_its_own);
async fn an_http_handler_answers_a_failed_condition_with_a_response_of_its_own(server: Server) {
    let bench = Arc::new(Bench::on(&server).await);
    for once in [bench.once(), bench.once().claimless()] {
        let key = crate::support::server::unique("key");
        bench.stock(1).await;
        let before = bench.balance().await;
        let refused = post(&bench, &once, &key).await;
        assert_eq!(
            (refused.status(), refused.body().as_slice()),
            (StatusCode::CONFLICT, &b"1 left"[..])
        );
        assert_eq!(bench.balance().await, before);

        bench.stock(2).await;
        let placed = post(&bench, &once, &key).await;
        assert_eq!(
            (placed.status(), placed.body().as_slice()),
            (StatusCode::CREATED, &b"placed"[..])
        );
        assert!(!placed.headers().contains_key("idempotent-replayed"));
        let again = post(&bench, &once, &key).await;
        assert_eq!(
            (
                again.status(),
                again.headers()["idempotent-replayed"].to_str().unwrap()
            ),
            (StatusCode::CREATED, "true")
        );
        assert_eq!(bench.balance().await, before + 5);
    }
}

on_each_server!(a_server_error_behind_a_step_of_the_claimed_form_is_kept_as_long_as_an_answer);
async fn a_server_error_behind_a_step_of_the_claimed_form_is_kept_as_long_as_an_answer(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let (clock, day) = (ManualClock::default(), Duration::from_hours(24));
    let builder = bench.builder().clock(clock.clone());
    // So small that the answer has its own item.
    let builder = builder.settings(|settings| settings.inline_limit = 10);
    let once = builder.retention(day).build().unwrap();
    let handler = service_fn(|request: Request| async move {
        let claim = request.extensions().get::<Claim>().unwrap();
        // The claimless form keeps no journal.
        let _ = claim.step("charge", |_| async { Ok::<_, Failed>(1) }).await;
        let busy = Response::builder().status(503);
        Ok::<_, Infallible>(busy.body(Body::from("busy")).unwrap())
    });
    let claimed = IdempotencyLayer::unscoped(once.clone());
    let claimless = IdempotencyLayer::unscoped(once.claimless())
        .settings(|settings| settings.store_server_errors = Some(Duration::from_mins(5)));
    for layer in [claimed, claimless] {
        let request = http::Request::post("/orders").header("idempotency-key", "k-1");
        let request = request.body(Body::from("{}")).unwrap();
        let response = layer.layer(handler).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let records = server.client().scan().table_name(&bench.records);
    let mut items = records.send().await.unwrap().items.unwrap_or_default();
    items.sort_by_key(|item| item["id"].as_s().unwrap().len());
    let [record, outcome] = items.as_slice() else {
        panic!("{items:?}")
    };
    assert_eq!(record["status"], string("COMPLETED"));
    let kept = (clock.now() + day).ceil_seconds();
    assert_eq!(record["expiration"], number(kept.0));
    // The margin of the clocks, and an hour.
    assert_eq!(outcome["expiration"], number(kept.0 + 3_601));
}

on_each_server!(an_unknown_outcome_is_a_503_with_retry_after);
async fn an_unknown_outcome_is_a_503_with_retry_after(server: Server) {
    let bench = Arc::new(Bench::on(&server).await);
    bench.stock(2).await;
    let faults = [
        ("TransactWriteItems", Fault::LoseReply),
        ("UpdateItem", Fault::LoseRequest),
    ];
    for (operation, fault) in faults {
        bench.proxy.repeat(operation, fault, 200);
    }
    let once = bench.lasting(2);
    let unknown = post(&bench, &once, "key").await;
    assert_eq!(unknown.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(unknown.headers().contains_key("retry-after"));
    let problem: Value = serde_json::from_slice(unknown.body()).unwrap();
    assert_eq!(problem["code"], "outcome-unknown");
}

on_each_server!(an_http_handlers_own_error_for_a_failed_condition_reaches_its_caller);
async fn an_http_handlers_own_error_for_a_failed_condition_reaches_its_caller(server: Server) {
    let bench = Arc::new(Bench::on(&server).await);
    bench.stock(1).await;
    let held = Arc::clone(&bench);
    let handler = service_fn(move |request: Request| {
        let take = Write::from(held.take(2)).or_else(|refusal| Failed::SoldOut {
            left: met(refusal.item(), "pieces"),
        });
        async move {
            let claim = request.extensions().get::<Claim>().unwrap();
            claim.write(take)?;
            Ok::<_, Failed>(Response::new(Body::from("placed")))
        }
    });
    let api = IdempotencyLayer::unscoped(bench.once()).layer(handler);
    let request = http::Request::post("/orders").header("idempotency-key", "key");
    let refused = api.oneshot(request.body(Body::from("{}")).unwrap()).await;
    assert_eq!(refused.unwrap_err(), Failed::SoldOut { left: 1 });
}

/// Payments as deposits, and how often the handler ran.
async fn deliver(
    bench: &Arc<Bench>,
    layer: BatchLayer<i64, Failed>,
    messages: impl IntoIterator<Item = Value>,
) -> (Value, usize) {
    let (held, runs) = (Arc::clone(bench), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&runs);
    let mut worker =
        layer
            .key(|amount: &i64| amount.to_string())
            .handler(move |message: Message<i64>| {
                counted.fetch_add(1, Ordering::Relaxed);
                let bench = Arc::clone(&held);
                async move {
                    let id = message.body.to_string();
                    let mark = bench
                        .put(&id)
                        .condition_expression("attribute_not_exists(id)");
                    let left = message.body;
                    message
                        .claim
                        .write(Write::from(mark).or_else(move |_| Failed::SoldOut { left }))?;
                    Ok::<_, Failed>(())
                }
            });
    let reply = worker.call(batch(messages)).await.unwrap();
    (
        serde_json::to_value(reply).unwrap()["batchItemFailures"].clone(),
        runs.load(Ordering::Relaxed),
    )
}

fn deposits(count: usize, receives: &str) -> Vec<Value> {
    let one = |n: usize| {
        let mut one = message(&format!("m-{n}"), n.to_string());
        one["attributes"]["ApproximateReceiveCount"] = json!(receives);
        one
    };
    (0..count).map(one).collect()
}

on_each_server!(a_batch_claims_in_a_group_and_commits_each_message_by_itself);
async fn a_batch_claims_in_a_group_and_commits_each_message_by_itself(server: Server) {
    let bench = Arc::new(Bench::on(&server).await);
    let layer = || BatchLayer::new(bench.once()).operation("deposit");
    assert_eq!(
        deliver(&bench, layer(), deposits(6, "1")).await,
        (json!([]), 6)
    );
    let counts = bench.proxy.take_counts();
    assert_eq!(
        (
            counts["BatchExecuteStatement"],
            counts["TransactWriteItems"]
        ),
        (1, 6)
    );
    assert_eq!(
        deliver(&bench, layer(), deposits(6, "1")).await,
        (json!([]), 0)
    );
    assert_eq!(bench.items().await, 6);
}

on_each_server!(a_claimless_batch_takes_one_request_a_message_and_redeliveries_are_read_first);
async fn a_claimless_batch_takes_one_request_a_message_and_redeliveries_are_read_first(
    server: Server,
) {
    let bench = Arc::new(Bench::on(&server).await);
    let layer = || BatchLayer::new(bench.once().claimless()).operation("deposit");
    assert_eq!(
        deliver(&bench, layer(), deposits(6, "1")).await,
        (json!([]), 6)
    );
    assert_eq!(bench.proxy.take_counts()["TransactWriteItems"], 6);
    // Told to be new, they run, lose, and replay.
    assert_eq!(
        deliver(&bench, layer(), deposits(6, "1")).await,
        (json!([]), 6)
    );
    assert_eq!(bench.proxy.take_counts()["TransactWriteItems"], 6);
    assert_eq!(
        deliver(&bench, layer(), deposits(6, "2")).await,
        (json!([]), 0)
    );
    assert_eq!(bench.proxy.take_counts().get("TransactWriteItems"), None);
    assert_eq!(bench.items().await, 6);
}

on_each_server!(a_condition_that_no_retry_will_mend_rejects_the_message);
async fn a_condition_that_no_retry_will_mend_rejects_the_message(server: Server) {
    let bench = Arc::new(Bench::on(&server).await);
    server
        .client()
        .put_item()
        .table_name(&bench.business)
        .item("id", crate::exactly_once::string("0"))
        .send()
        .await
        .unwrap();
    let parked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hook = Arc::clone(&parked);
    let layer = BatchLayer::new(bench.once())
        .operation("deposit")
        .permanent(|error| matches!(error, Failed::SoldOut { left: 0 }))
        .on_rejected(move |message, why| {
            hook.lock()
                .unwrap()
                .push((message.message_id.unwrap(), why.rejection));
            async { Ok::<_, Failed>(()) }
        });
    assert_eq!(
        deliver(&bench, layer, deposits(2, "1")).await,
        (json!([]), 2)
    );
    assert_eq!(
        *parked.lock().unwrap(),
        [("m-0".to_owned(), Rejection::Failed)]
    );
    assert_eq!(bench.items().await, 2);
}

on_each_server!(a_condition_that_a_retry_may_find_mended_has_the_message_delivered_again);
async fn a_condition_that_a_retry_may_find_mended_has_the_message_delivered_again(server: Server) {
    let bench = Arc::new(Bench::on(&server).await);
    let taken = string("0");
    let put = server.client().put_item().table_name(&bench.business);
    put.item("id", taken).send().await.unwrap();
    let parked = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&parked);
    let layer = BatchLayer::new(bench.once())
        .operation("deposit")
        .on_rejected(move |_, _| {
            hook.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Failed>(()) }
        });
    assert_eq!(
        deliver(&bench, layer, deposits(2, "1")).await,
        (json!([{ "itemIdentifier": "m-0" }]), 2)
    );
    assert_eq!(parked.load(Ordering::Relaxed), 0);
}

on_each_server!(an_unknown_outcome_is_reported_and_a_redelivery_finds_it_done);
async fn an_unknown_outcome_is_reported_and_a_redelivery_finds_it_done(server: Server) {
    let bench = Arc::new(Bench::on(&server).await);
    bench
        .proxy
        .repeat("TransactWriteItems", Fault::LoseReply, 200);
    for operation in ["BatchExecuteStatement", "PutItem", "UpdateItem", "GetItem"] {
        bench.proxy.repeat(operation, Fault::LoseRequest, 200);
    }
    let once = bench.lasting(2);
    let layer = BatchLayer::new(once.claimless()).operation("deposit");
    let (failures, _) = deliver(&bench, layer, deposits(1, "1")).await;
    assert_eq!(failures[0]["itemIdentifier"], "m-0");
    assert_eq!(bench.items().await, 1);
}
