//! The headers of a replay.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http::header::{DATE, HeaderName};
use lambda_http::{Body, Request};
use lambda_idempotency::InFlight;
use lambda_idempotency::http::IdempotencyLayer;
use tower::{Layer, Service, ServiceExt};

use super::api::{Answer, Api, Door, Failure};
use crate::on_each_server;
use crate::support::{Server, builder_on};

async fn with_many_headers(_: usize, _: lambda_http::Request) -> Result<Response<Body>, Failure> {
    let response = Response::builder()
        .status(201)
        .header("location", "/orders/17")
        .header("connection", "keep-alive, x-hop")
        .header("keep-alive", "timeout=5")
        .header("x-hop", "1")
        .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("set-cookie", "session=1")
        .header("set-cookie", "cart=2")
        .header("server-timing", "db;dur=53");
    Ok(response.body("made".into())?)
}

fn names(answer: &Answer) -> Vec<&str> {
    let own = |name: &&str| !name.starts_with("idempoten");
    answer
        .headers
        .keys()
        .map(HeaderName::as_str)
        .filter(own)
        .collect()
}

on_each_server!(a_replay_has_no_hop_by_hop_header_no_date_and_no_cookie);
async fn a_replay_has_no_hop_by_hop_header_no_date_and_no_cookie(server: Server) {
    let api = Api::new(&server, with_many_headers).await;
    for door in Door::ALL {
        let key = if door == Door::Rest { "k-1" } else { "k-2" };
        let call = door.post(key).catch_all().path(&format!("/{door:?}"));
        // The first answer is the handler's, with all of them.
        assert_eq!(names(&api.send(&call).await).len(), 7);
        let mut replayed = api.send(&call).await;
        assert_eq!(names(&replayed), ["location", "server-timing"]);
        assert_eq!(replayed.headers.remove("location").unwrap(), "/orders/17");
    }
}

on_each_server!(which_headers_are_left_out_is_a_setting);
async fn which_headers_are_left_out_is_a_setting(server: Server) {
    let left_out = |layer: IdempotencyLayer| {
        layer.settings(|settings| {
            settings.unstored_headers = vec![DATE, HeaderName::from_static("server-timing")];
        })
    };
    let api = Api::configured(&server, |once| once, left_out, with_many_headers).await;
    let call = Door::Http.post("k-1");
    api.send(&call).await;
    let replayed = api.send(&call).await;
    assert_eq!(names(&replayed), ["location", "set-cookie"]);
    let cookies: Vec<_> = replayed.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["session=1", "cart=2"]);
}

on_each_server!(what_is_left_out_is_not_in_the_table_either);
async fn what_is_left_out_is_not_in_the_table_either(server: Server) {
    let table = server.idempotency_table().await;
    let client = server.client();
    let store = lambda_idempotency::dynamodb::DynamoDbStore::new(client.clone(), &table);
    let api = Api::on(store, |once| once, |layer| layer, with_many_headers);
    api.send(&Door::Http.post("k-1")).await;
    let records = client.scan().table_name(&table).send().await.unwrap();
    let data = records.items()[0]["data"].as_s().unwrap();
    assert!(
        data.contains("/orders/17") && !data.contains("session=1"),
        "{data}"
    );
}

/// A service that is ready once, and then fails.
#[derive(Clone, Default)]
struct ReadyOnce(Arc<AtomicBool>);

impl Service<Request> for ReadyOnce {
    type Response = Response<String>;
    type Error = Failure;
    type Future = Ready<Result<Self::Response, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let was_ready = self.0.swap(true, Ordering::Relaxed);
        Poll::Ready(if was_ready {
            Err("not ready".into())
        } else {
            Ok(())
        })
    }

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

on_each_server!(a_duplicate_without_a_claim_is_replayed_though_its_handler_is_not_ready);
async fn a_duplicate_without_a_claim_is_replayed_though_its_handler_is_not_ready(server: Server) {
    let waiting = InFlight::WaitUpTo(Duration::from_secs(20));
    let once = builder_on(server.store().await, "shop")
        .in_flight(waiting)
        .build();
    let once = once.unwrap().claimless();
    let layer = IdempotencyLayer::unscoped(once);
    let call = Door::Http.post("k-1");
    Api::under(&layer, with_many_headers).send(&call).await;
    let replayed = layer.layer(ReadyOnce::default()).oneshot(call.request());
    let replayed = replayed.await.unwrap();
    assert_eq!(replayed.headers()["idempotent-replayed"], "true");
}
