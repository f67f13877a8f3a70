//! The hook that may change a replayed answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full};
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{AtDeadline, Builder, Idempotency, Replay};
use tokio::sync::Notify;
use tower::{Layer, ServiceExt, service_fn};

use super::api::{Api, Door, Failure, answer, place_order};
use crate::on_each_server;
use crate::secrets::Log;
use crate::support::{Server, VirtualClock};

type Answer = Result<Response<Bytes>, std::io::Error>;

/// Says in the body and in a header of which request and attempt this is a replay.
async fn renew(request: Parts, response: Response<Bytes>, replay: Replay) -> Answer {
    let tag = &request.headers["x-retry"];
    let text = std::str::from_utf8(response.body()).unwrap();
    let attempt = replay.attempt;
    assert!(replay.processed_at.is_some());
    let body = format!(
        "{text}, renewed for {} after {attempt}",
        tag.to_str().unwrap()
    );
    let mut response = response.map(|_| Bytes::from(body));
    response.headers_mut().insert("x-renewed", tag.clone());
    response
        .headers_mut()
        .insert("idempotent-replayed", "false".parse().unwrap());
    Ok(response)
}

on_each_server!(a_hook_changes_replays_and_never_a_first_answer_or_the_record);
async fn a_hook_changes_replays_and_never_a_first_answer_or_the_record(server: Server) {
    let layer = |layer: IdempotencyLayer| layer.on_replay(renew);
    let api = Api::configured(&server, |once| once, layer, place_order).await;
    for door in [Door::Http, Door::Alb] {
        let key = if door == Door::Http { "k-1" } else { "k-2" };
        let call = |tag| door.post(key).header("X-Retry", tag);
        let first = api.send(&call("a")).await;
        assert!(first.text().starts_with("order ") && !first.text().contains("renewed"));
        assert_eq!(first.header("x-renewed"), None);
        for tag in ["b", "c"] {
            let retry = api.send(&call(tag)).await;
            let expected = format!("{}, renewed for {tag} after 1", first.text());
            assert_eq!(retry.text(), expected);
            assert_eq!(retry.header("x-renewed"), Some(tag));
            assert_eq!((retry.status, retry.is_replayed()), (first.status, true));
        }
    }
    assert_eq!(api.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_stored_answer_is_given_where_the_hook_fails() {
    let server = Server::dynoxide().await;
    let hooks: [fn() -> Answer; 2] = [
        || Err(std::io::Error::other("no key to sign with")),
        || panic!("in a hook"),
    ];
    for hook in hooks {
        let layer = |layer: IdempotencyLayer| layer.on_replay(move |_, _, _| async move { hook() });
        let api = Api::configured(&server, |once| once, layer, place_order).await;
        let call = Door::Http.post("k-1");
        assert_eq!(api.send(&call).await.text(), "order 1");
        let retry = api.send(&call).await;
        assert_eq!((retry.text(), retry.is_replayed()), ("order 1", true));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_hook_is_named_by_its_type_and_by_its_text_where_texts_are_logged() {
    let server = Server::dynoxide().await;
    for log_errors in [false, true] {
        let (log, _capture) = Log::capture();
        let failing = |_, _, _| async { Answer::Err(std::io::Error::other("no key to sign with")) };
        let layer = |layer: IdempotencyLayer| layer.on_replay(failing);
        let engine = |once: Builder| once.settings(|settings| settings.log_errors = log_errors);
        let api = Api::configured(&server, engine, layer, place_order).await;
        let call = Door::Http.post("k-1");
        api.send(&call).await;
        assert!(api.send(&call).await.is_replayed());
        let log = log.text();
        assert!(log.contains("\"hook_failed\""), "{log}");
        assert_eq!(log.contains("no key to sign with"), log_errors, "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_ends_before_its_invocation_whatever_goes_on() {
    const TIME: Duration = Duration::from_secs(2);
    for policy in [AtDeadline::GoOn, AtDeadline::End] {
        let server = Server::dynoxide().await;
        let layer =
            |layer: IdempotencyLayer| layer.on_replay(|_, _, _| std::future::pending::<Answer>());
        let engine = |once: Builder| once.settings(|settings| settings.at_deadline = policy);
        let api = Api::configured(&server, engine, layer, place_order).await;
        for _ in ["first", "replay"] {
            let mut context = lambda_http::Context::default();
            context.deadline = VirtualClock::deadline(TIME);
            let call = Door::Http.post("k-1").context(context);
            let answered = tokio::time::timeout(TIME, api.send(&call)).await;
            assert_eq!(answered.expect("in time").text(), "order 1");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_hook_runs_where_nothing_is_replayed() {
    let server = Server::dynoxide().await;
    let layer = |layer: IdempotencyLayer| {
        layer.on_replay(|_, _, _| async { Answer::Ok(answer_of("changed")) })
    };
    for engine in [
        (|once| once.observe(true)) as fn(Builder) -> Builder,
        |once| once.disabled(true),
    ] {
        let api = Api::configured(&server, engine, layer, place_order).await;
        for order in ["order 1", "order 2"] {
            assert_eq!(api.send(&Door::Http.post("k-1")).await.text(), order);
        }
    }
    // A problem is no replay either.
    let api = Api::configured(&server, |once| once, layer, place_order).await;
    api.send(&Door::Http.post("k-1").text("tea")).await;
    let refused = api.send(&Door::Http.post("k-1").text("jam")).await;
    refused.assert_problem(422, "mismatch");
}

fn answer_of(text: &'static str) -> Response<Bytes> {
    Response::new(Bytes::from_static(text.as_bytes()))
}

on_each_server!(a_successors_answer_goes_through_the_hook_too);
async fn a_successors_answer_goes_through_the_hook_too(server: Server) {
    let (store, clock) = (server.store().await, ManualClock::default());
    let timed = |once: Builder| once.clock(clock.clone());
    let (begun, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gate = (Arc::clone(&begun), Arc::clone(&open));
    let waiting = move |_, _| {
        let (begun, open) = gate.clone();
        async move {
            begun.notify_one();
            open.notified().await;
            Ok(answer(201, "too late"))
        }
    };
    let stale = Api::on(
        store.clone(),
        timed,
        |layer| layer.on_replay(renew),
        waiting,
    );
    let successor = Api::on(store, timed, |layer| layer, place_order);

    let first = stale.spawn(&Door::Http.post("k-1").header("X-Retry", "a"));
    begun.notified().await;
    clock.advance(Duration::from_hours(1));
    assert_eq!(
        successor.send(&Door::Http.post("k-1")).await.text(),
        "order 1"
    );
    open.notify_one();
    let replayed = first.await.unwrap();
    assert_eq!(replayed.text(), "order 1, renewed for a after 2");
    assert!(replayed.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_changed_body_has_none_of_the_stored_trailers_but_those_of_grpc() {
    let stored = ["checksum", "grpc-status"];
    for (body, expected) in [("stored", &stored[..]), ("fresh", &stored[1..])] {
        let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
        let layer = IdempotencyLayer::unscoped(once.build().unwrap())
            .on_replay(move |_, _, _| async move { Answer::Ok(answer_of(body)) });
        let api = layer.layer(service_fn(move |_: http::Request<Full<Bytes>>| {
            let trailers = stored.map(HeaderName::from_static);
            let trailers = trailers.map(|name| (name, HeaderValue::from_static("0")));
            let trailers = Some(Ok(HeaderMap::from_iter(trailers)));
            let body = Full::new(Bytes::from("stored"));
            let body = body.with_trailers(std::future::ready(trailers));
            std::future::ready(Ok::<_, Failure>(Response::new(body)))
        }));
        for expected in [&stored[..], expected] {
            let request = http::Request::post("/orders").header("idempotency-key", "k-1");
            let answer = api.clone().oneshot(request.body(Full::default()).unwrap());
            let answered = answer.await.unwrap().into_body().collect().await.unwrap();
            let names = answered.trailers().unwrap().keys();
            let mut names: Vec<_> = names.map(HeaderName::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{body}");
        }
    }
}
