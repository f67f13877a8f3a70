//! Answers that are too long to wait for.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, Verdict};
use tower::{Layer, ServiceExt, service_fn};

use super::api::{Api, Door, Failure};
use crate::on_each_server;
use crate::secrets::Log;
use crate::support::Server;

fn chunks(n: usize) -> impl http_body::Body<Data = Bytes, Error = Failure> {
    let chunk = |_| Ok(Frame::data(Bytes::from_static(b"0123456789")));
    StreamBody::new(stream::iter(0..n).map(chunk))
}

on_each_server!(an_answer_over_the_limit_is_passed_on_whole_and_its_retry_learns_that_it_was_done);
async fn an_answer_over_the_limit_is_passed_on_whole_and_its_retry_learns_that_it_was_done(
    server: Server,
) {
    let handler = |_, _| async { Ok(Response::new(chunks(20))) };
    let limited = |layer: IdempotencyLayer| layer.settings(|settings| settings.response_limit = 55);
    let api = Api::configured(&server, |once| once, limited, handler).await;
    let call = Door::Http.post("k-1");
    assert_eq!(api.send(&call).await.text(), "0123456789".repeat(20));
    api.send(&call).await.assert_problem(409, "outcome-omitted");
    assert_eq!(api.runs(), 1);
}

on_each_server!(a_stream_within_the_limit_is_kept_like_any_answer);
async fn a_stream_within_the_limit_is_kept_like_any_answer(server: Server) {
    let handler = |_, _| async { Ok(Response::new(chunks(5))) };
    let limited = |layer: IdempotencyLayer| layer.settings(|settings| settings.response_limit = 50);
    let api = Api::configured(&server, |once| once, limited, handler).await;
    let call = Door::Http.post("k-1");
    let first = api.send(&call).await;
    let retry = api.send(&call).await;
    assert!(retry.is_replayed());
    assert_eq!(retry.body, first.body);
}

on_each_server!(a_long_server_error_releases_the_claim_like_any_other);
async fn a_long_server_error_releases_the_claim_like_any_other(server: Server) {
    let handler = |run, _| async move {
        let status = if run == 1 { 500 } else { 201 };
        Ok(Response::builder().status(status).body(chunks(20))?)
    };
    let limited = |layer: IdempotencyLayer| layer.settings(|settings| settings.response_limit = 55);
    let api = Api::configured(&server, |once| once, limited, handler).await;
    let call = Door::Http.post("k-1");
    assert_eq!(api.send(&call).await.status, 500);
    assert_eq!(api.send(&call).await.status, 201);
}

on_each_server!(a_retry_of_a_refusal_over_the_limit_gets_its_status);
async fn a_retry_of_a_refusal_over_the_limit_gets_its_status(server: Server) {
    let handler = |_, _| async { Ok(Response::builder().status(422).body(chunks(20))?) };
    let limited = |layer: IdempotencyLayer| layer.settings(|settings| settings.response_limit = 55);
    let api = Api::configured(&server, |once| once, limited, handler).await;
    let call = Door::Http.post("k-1");
    assert_eq!(api.send(&call).await.text(), "0123456789".repeat(20));
    let retry = api.send(&call).await;
    assert_eq!((retry.status.as_u16(), retry.text()), (422, ""));
    assert!(retry.is_replayed());
    assert_eq!(api.runs(), 1);
}

on_each_server!(a_handler_may_have_a_streamed_answer_run_again);
async fn a_handler_may_have_a_streamed_answer_run_again(server: Server) {
    let handler = |run, _| async move {
        let mut response = Response::new(chunks(run * 20));
        response.extensions_mut().insert(Verdict::Release);
        Ok(response)
    };
    let limited = |layer: IdempotencyLayer| layer.settings(|settings| settings.response_limit = 55);
    let api = Api::configured(&server, |once| once, limited, handler).await;
    let call = Door::Http.post("k-1");
    for run in [1, 2] {
        assert_eq!(api.send(&call).await.body.len(), run * 200);
    }
}

/// A stream that never ends reaches the client at its first event. Returns that one.
async fn first_event(
    layer: &IdempotencyLayer,
    content_type: &'static str,
    header: &'static str,
) -> Bytes {
    let api = layer.layer(service_fn(
        move |_: http::Request<Full<Bytes>>| async move {
            let first = stream::iter([Ok::<_, Failure>(Frame::data(Bytes::from("data: 1\n\n")))]);
            let body = StreamBody::new(first.chain(stream::pending()));
            let response = Response::builder().header("content-type", content_type);
            Ok::<_, Failure>(response.body(Box::pin(body))?)
        },
    ));
    let request = http::Request::post("/watch").header(header, "k-1");
    let answer = api.oneshot(request.body(Full::default()).unwrap());
    let answer = tokio::time::timeout(Duration::from_secs(5), answer);
    let mut body = answer.await.expect("in time").unwrap().into_body();
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

fn unscoped() -> IdempotencyLayer {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    IdempotencyLayer::unscoped(once.build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn server_sent_events_are_not_waited_for_and_are_logged() {
    let (log, _capture) = Log::capture();
    let content_type = "text/event-stream; charset=utf-8";
    let first = first_event(&unscoped(), content_type, "idempotency-key").await;
    assert_eq!(first, "data: 1\n\n");
    assert!(log.text().contains("streamed"));
}

#[tokio::test(start_paused = true)]
async fn no_answer_without_a_key_is_waited_for() {
    let layer = unscoped().other_routes(RoutePolicy::optional());
    let first = first_event(&layer, "application/x-ndjson", "x-key").await;
    assert_eq!(first, "data: 1\n\n");
}
