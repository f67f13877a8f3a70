//! The form of refusals, and the statement of an answer about its protection.

use std::future::ready;
use std::num::NonZeroU32;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Put};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    AtDeadline, Builder, Claim, Idempotency, InFlight, Key, OnStoreUnavailable, Unrecorded, Verdict,
};
use tower::{Layer, ServiceExt, service_fn};

use super::api::{Api, Door, Failure, answer, cut_off_at_work, deposit, deposits, place_order};
use crate::on_each_server;
use crate::support::{Fault, Proxy, Server, VirtualClock, builder_on};

on_each_server!(a_refusal_links_to_the_apis_own_documentation);
async fn a_refusal_links_to_the_apis_own_documentation(server: Server) {
    let documented = |layer: IdempotencyLayer| {
        layer
            .documentation("https://docs.shop.example/retries")
            .unwrap()
    };
    let api = Api::configured(&server, |once| once, documented, place_order).await;
    api.send(&Door::Http.post("k-1").json("1")).await;
    for (call, status, code) in [
        (Door::Http.post(None), 400, "key-missing"),
        (Door::Http.post("k-1").json("2"), 422, "mismatch"),
    ] {
        let refused = api.send(&call).await;
        assert_eq!(refused.status, status);
        let link = r#"<https://docs.shop.example/retries>; rel="describedby"; type="text/html""#;
        assert_eq!(refused.header("link"), Some(link));
        let problem: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(
            problem["type"],
            format!("https://docs.shop.example/retries#{code}")
        );
    }
    // A refusal says how to get it right; an answer of the handler's stays as it was.
    assert_eq!(
        api.send(&Door::Http.post("k-1").json("1"))
            .await
            .header("link"),
        None
    );
}

on_each_server!(a_closure_replaces_the_problem_documents);
async fn a_closure_replaces_the_problem_documents(server: Server) {
    let house_style = |layer: IdempotencyLayer| {
        layer.problems(|problem| {
            let mut response = problem
                .to_response()
                .map(|_| Bytes::from(format!("no: {}", problem.code)));
            response
                .headers_mut()
                .insert("content-type", "text/plain".parse().unwrap());
            response
        })
    };
    let api = Api::configured(&server, |once| once, house_style, place_order).await;
    let refused = api.send(&Door::Http.post(None)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.text()),
        (400, "no: key-missing")
    );
    assert_eq!(refused.header("content-type"), Some("text/plain"));
}

on_each_server!(a_duplicate_waits_for_the_first_where_the_setting_says_so);
async fn a_duplicate_waits_for_the_first_where_the_setting_says_so(server: Server) {
    let handler = |run, request| async move {
        tokio::time::sleep(Duration::from_millis(400)).await;
        place_order(run, request).await
    };
    let wait = InFlight::WaitUpTo(Duration::from_secs(20));
    let api = Api::configured(&server, |once| once.in_flight(wait), |layer| layer, handler).await;
    let call = Door::Http.post("k-1").json("{}");
    let answers = futures_util::future::join_all((0..64).map(|_| api.send(&call))).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 201 && answer.text() == "order 1")
    );
    assert_eq!(
        answers.iter().filter(|answer| answer.is_replayed()).count(),
        63
    );
    assert_eq!(api.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_protection_says_so() {
    let unreachable = Server::behind("http://127.0.0.1:1".to_owned()).client();
    let open = Api::on(
        DynamoDbStore::new(unreachable.clone(), "t"),
        |once| once.on_store_unavailable(OnStoreUnavailable::FailOpen),
        |layer| layer,
        place_order,
    );
    let optional = Api::on(
        DynamoDbStore::new(unreachable.clone(), "t"),
        |once| once,
        |layer| layer.other_routes(RoutePolicy::optional()),
        place_order,
    );
    let disabled = Api::on(
        DynamoDbStore::new(unreachable, "t"),
        |once| once.disabled(true),
        |layer| {
            layer.settings(|settings| {
                settings.strict = true;
                settings.body_limit = 1;
            })
        },
        place_order,
    );
    for (api, key) in [
        (open, Some("k-1")),
        (optional, None),
        (disabled, Some("k-1")),
    ] {
        let answer = api.send(&Door::Http.post(key).text("a body")).await;
        assert_eq!(answer.text(), "order 1");
        assert_eq!(answer.header("idempotency-status"), Some("unprotected"));
    }
}

on_each_server!(a_refusal_after_an_unprotected_run_says_so_and_whether_a_retry_may_repeat_it);
async fn a_refusal_after_an_unprotected_run_says_so_and_whether_a_retry_may_repeat_it(
    server: Server,
) {
    let proxy = Proxy::before(&server).await;
    let table = server.idempotency_table().await;
    let business = server.table_with_key("business", "id").await;
    // Without a key, switched off, and only observing.
    for (is_off, observes, key) in [
        (false, false, None),
        (true, false, Some("k-1")),
        (false, true, Some("k-1")),
    ] {
        let store = DynamoDbStore::new(proxy.server().client(), &table);
        let business = business.clone();
        let place = move |run, request: lambda_http::Request| {
            let order = AttributeValue::S("order".to_owned());
            let put = Put::builder().table_name(&business).item("id", order);
            let written = request.extensions().get::<Claim>().unwrap().write(put);
            async move {
                written?;
                place_order(run, request).await
            }
        };
        let api = Api::on(
            store,
            |once| {
                let once = once.lease(Duration::from_secs(2));
                once.disabled(is_off).observe(observes)
            },
            |layer| layer.other_routes(RoutePolicy::optional()),
            place,
        );
        proxy.repeat("TransactWriteItems", Fault::LoseReply, 500);
        let unknown = api.send(&Door::Http.post(key)).await;
        unknown.assert_problem(500, "unprotected");
        assert_eq!(unknown.header("idempotency-status"), Some("unprotected"));
        assert_eq!(unknown.retry_after(), None);

        proxy.forget();
        proxy.inject("TransactWriteItems", Fault::DENY);
        let denied = api.send(&Door::Http.post(key)).await;
        denied.assert_problem(503, "not-committed");
        assert_eq!(
            denied.header("idempotency-status"),
            (!observes).then_some("unprotected")
        );
        assert_eq!(denied.retry_after(), Some(5));
    }
}

on_each_server!(a_call_that_fails_in_its_trailers_writes_nothing_where_nothing_protects_it);
async fn a_call_that_fails_in_its_trailers_writes_nothing_where_nothing_protects_it(
    server: Server,
) {
    for (is_off, observes, key) in [
        (false, false, None),
        (true, false, Some("k-1")),
        (false, true, Some("k-1")),
    ] {
        for (status, made) in [("14", 0), ("0", 1)] {
            let business = server.table_with_key("business", "id").await;
            let table = business.clone();
            let call = move |_, request: lambda_http::Request| {
                let written = deposit(&request, &table);
                async move {
                    written?;
                    let status = http::HeaderValue::from_static(status);
                    let trailers = [(http::HeaderName::from_static("grpc-status"), status)];
                    let trailers = ready(Some(Ok(http::HeaderMap::from_iter(trailers))));
                    let body = Full::new(Bytes::from_static(b"abc")).with_trailers(trailers);
                    Ok::<_, Failure>(http::Response::new(body))
                }
            };
            let api = Api::configured(
                &server,
                |once| once.disabled(is_off).observe(observes),
                |layer| layer.other_routes(RoutePolicy::optional()),
                call,
            );
            let answered = api.await.send(&Door::Http.post(key)).await;
            assert_eq!(answered.text(), "abc");
            let deposited = deposits(&server, &business).await;
            assert_eq!(deposited, made, "{is_off} {observes} {status}");
        }
    }
}

on_each_server!(an_answer_that_breaks_off_behind_a_write_is_unprotected_where_nothing_protects_it);
async fn an_answer_that_breaks_off_behind_a_write_is_unprotected_where_nothing_protects_it(
    server: Server,
) {
    for (is_off, observes) in [(true, false), (false, true)] {
        let business = server.table_with_key("business", "id").await;
        let table = business.clone();
        let call = move |_, request: lambda_http::Request| {
            let written = deposit(&request, &table);
            async move {
                written?;
                let broken = [Err::<http_body::Frame<Bytes>, _>(Failure::from("gone"))];
                let body = StreamBody::new(futures_util::stream::iter(broken));
                Ok::<_, Failure>(http::Response::new(body))
            }
        };
        let engine = |once: Builder| once.disabled(is_off).observe(observes);
        let api = Api::configured(&server, engine, |layer| layer, call).await;
        let broken = api.send(&Door::Http.post("k-1")).await;
        broken.assert_problem(500, "unprotected");
        assert_eq!(broken.header("idempotency-status"), Some("unprotected"));
        assert_eq!(deposits(&server, &business).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unprotected_run_that_is_ended_at_its_deadline_may_have_had_its_effect() {
    let unreachable = Server::behind("http://127.0.0.1:1".to_owned()).client();
    let hanging =
        |_, _| std::future::pending::<Result<http::Response<lambda_http::Body>, Failure>>();
    let api = Api::on(
        DynamoDbStore::new(unreachable, "t"),
        |once| once.settings(|settings| settings.at_deadline = AtDeadline::End),
        |layer| layer.other_routes(RoutePolicy::optional()),
        hanging,
    );
    let mut context = lambda_http::Context::default();
    context.deadline = VirtualClock::deadline(Duration::from_secs(2));
    let ended = api.send(&Door::Http.post(None).context(context)).await;
    ended.assert_problem(500, "unprotected");
    assert_eq!(ended.header("idempotency-status"), Some("unprotected"));
    assert_eq!(ended.retry_after(), None);
}

on_each_server!(an_answer_that_was_recorded_says_nothing_and_one_that_was_not_says_so);
async fn an_answer_that_was_recorded_says_nothing_and_one_that_was_not_says_so(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let api = Api::on(
        store,
        |once| once.settings(|settings| settings.unrecorded = Unrecorded::Return),
        |layer| layer,
        place_order,
    );
    let recorded = api.send(&Door::Http.post("k-1")).await;
    assert_eq!(recorded.header("idempotency-status"), None);

    proxy.inject("UpdateItem", Fault::DENY);
    let unrecorded = api.send(&Door::Http.post("k-2").json("{}")).await;
    assert_eq!(unrecorded.status, 201);
    assert_eq!(unrecorded.header("idempotency-status"), Some("unrecorded"));
}

on_each_server!(a_claim_that_comes_too_late_is_a_503_and_nothing_runs);
async fn a_claim_that_comes_too_late_is_a_503_and_nothing_runs(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let short = |once: Builder| {
        once.lease(Duration::from_millis(1))
            .settings(|settings| settings.skew_margin = Duration::ZERO)
    };
    let api = Api::on(store, short, |layer| layer, place_order);
    proxy.inject("PutItem", Fault::Delay(Duration::from_millis(100)));
    let refused = api.send(&Door::Http.post("k-1")).await;
    refused.assert_problem(503, "too-late");
    assert_eq!(refused.retry_after(), Some(1));
    assert_eq!(api.runs(), 0);
}

on_each_server!(a_key_that_used_up_its_attempts_is_a_409_without_retry_after);
async fn a_key_that_used_up_its_attempts_is_a_409_without_retry_after(server: Server) {
    let store = server.store().await;
    let clock = ManualClock::default();
    let once = |once: Builder| once.clock(clock.clone()).max_attempts(NonZeroU32::MIN);
    let call = Door::Http.post("k-1");
    cut_off_at_work(store.clone(), once, &call).await;
    clock.advance(Duration::from_hours(1));

    let next = Api::on(store, once, |layer| layer, place_order);
    let refused = next.send(&call).await;
    refused.assert_problem(409, "exhausted");
    assert_eq!(refused.header("idempotency-status"), Some("final"));
    assert_eq!((refused.retry_after(), next.runs()), (None, 0));
}

on_each_server!(a_failure_that_other_code_stored_under_the_key_is_a_500);
async fn a_failure_that_other_code_stored_under_the_key_is_a_500(server: Server) {
    let store = server.store().await;
    let once = builder_on(store.clone(), "shop").build().unwrap();
    let failed = once.run_with(
        Key::new("POST /shops/7/orders", "k-1"),
        None,
        |_| async { Err::<String, _>(std::io::Error::other("permanently")) },
        |_| Verdict::Fail,
    );
    failed.await.unwrap_err();
    let api = Api::on(store, |once| once, |layer| layer, place_order);
    let refused = api.send(&Door::Alb.post("k-1")).await;
    refused.assert_problem(500, "failed");
    assert_eq!(refused.header("idempotency-status"), Some("final"));
    assert_eq!((refused.retry_after(), api.runs()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_a_400_and_nothing_runs() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let api = layer.layer(service_fn(
        |_: http::Request<UnsyncBoxBody<Bytes, Failure>>| async {
            Ok::<_, Failure>(answer(201, "ran"))
        },
    ));
    let send = async |header, chunks: Vec<Result<http_body::Frame<Bytes>, Failure>>| {
        let body = UnsyncBoxBody::new(StreamBody::new(futures_util::stream::iter(chunks)));
        let request = http::Request::post("/orders").header(header, "k-1");
        let answer = api
            .clone()
            .oneshot(request.body(body).unwrap())
            .await
            .unwrap();
        let (parts, body) = answer.into_parts();
        (
            parts.status.as_u16(),
            body.collect().await.unwrap().to_bytes(),
        )
    };
    let chunk = || Ok(http_body::Frame::data(Bytes::from_static(b"half")));
    // Without a key, the body isn't read.
    for (header, code) in [
        ("idempotency-key", "body-unreadable"),
        ("x-key", "key-missing"),
    ] {
        let (status, body) = send(header, vec![chunk(), Err("the line is dead".into())]).await;
        assert_eq!(status, 400);
        assert!(String::from_utf8_lossy(&body).contains(code));
    }
    // Nothing was claimed: the same key is free.
    assert_eq!(
        send("idempotency-key", vec![chunk(), chunk()]).await,
        (201, Bytes::from("ran"))
    );
}

/// As `RequestBodyLimitLayer` outside passes a body on that comes in pieces.
#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_of_a_layer_outside_is_a_413() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let limited = || {
        let pieces = ["too", "long"].map(|piece| Ok::<_, Failure>(Bytes::from(piece)));
        let pieces = futures_util::stream::iter(pieces);
        Limited::new(axum::body::Body::from_stream(pieces), 5)
    };
    let request = || http::Request::post("/orders").header("idempotency-key", "k-1");
    let routed = layer.layer(service_fn(|_: http::Request<axum::body::Body>| async {
        Ok::<_, Failure>(http::Response::new(Full::<Bytes>::default()))
    }));
    let routed = routed.oneshot(request().body(axum::body::Body::new(limited())).unwrap());
    let boxed = layer.layer(service_fn(
        |_: http::Request<UnsyncBoxBody<Bytes, Failure>>| async {
            Ok::<_, Failure>(http::Response::new(Full::<Bytes>::default()))
        },
    ));
    let boxed = boxed.oneshot(request().body(limited().boxed_unsync()).unwrap());
    for answer in [routed.await, boxed.await] {
        let (parts, body) = answer.unwrap().into_parts();
        assert_eq!(parts.status, 413);
        let problem = body.collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&problem).contains("body-too-large"));
    }
}
