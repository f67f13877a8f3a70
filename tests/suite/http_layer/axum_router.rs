//! An axum router: behind its own socket, and in a function.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::{post, put};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy, path};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Claim, Idempotency, Key};
use tower::{Layer, ServiceExt};

use super::api::Door;
use crate::on_each_server;
use crate::support::virtual_time::stand;
use crate::support::{Server, builder_on, loopback};

/// `POST /tenants/{tenant}/orders`, nested, and `POST /echo`.
fn router(store: DynamoDbStore) -> Router {
    let once = builder_on(store, "shop").build().unwrap();
    let layer = IdempotencyLayer::unscoped(once).other_routes(RoutePolicy::required());
    let runs = Arc::new(AtomicUsize::new(0));
    let orders = Router::new().route(
        "/orders",
        post(move |request: Request<Body>| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let claim = request.extensions().get::<Claim>().unwrap();
            let answer = format!("order {run}, {}", claim.operation());
            async move { (StatusCode::CREATED, [("x-run", run.to_string())], answer) }
        }),
    );
    Router::new()
        .nest("/tenants/{tenant}", orders)
        .route("/echo", post(|body: Bytes| async move { body }))
        .layer(layer)
}

async fn serve(router: Router) -> String {
    let (listener, endpoint) = loopback::bind().await;
    tokio::spawn(async move { axum::serve(listener, router).await });
    endpoint
}

/// Status, headers and text.
async fn send(base: &str, path: &str, key: Option<&str>, body: &str) -> (u16, HeaderMap, String) {
    let _stands = stand();
    let mut request = Request::post(format!("{base}{path}"));
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (parts, body) = client.request(request).await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (
        parts.status.as_u16(),
        parts.headers,
        String::from_utf8(bytes.to_vec()).unwrap(),
    )
}

on_each_server!(a_plain_server_runs_a_request_once_and_replays_it);
async fn a_plain_server_runs_a_request_once_and_replays_it(server: Server) {
    let base = serve(router(server.store().await)).await;
    let (status, headers, first) = send(&base, "/tenants/7/orders", Some("k-1"), "tea").await;
    assert_eq!(
        (status, first.as_str()),
        (201, "order 1, POST /tenants/{tenant}/orders")
    );
    assert!(headers.contains_key("date"));

    let (status, retry, text) = send(&base, "/tenants/7/orders", Some("\"k-1\""), "tea").await;
    assert_eq!((status, &text), (201, &first));
    assert_eq!(retry["idempotent-replayed"], "true");
    assert_eq!(retry["x-run"], "1");
    // The server dates each of its messages itself: one date, of now.
    assert_eq!(retry.get_all("date").iter().count(), 1);

    let (status, ..) = send(&base, "/tenants/7/orders", Some("k-1"), "jam").await;
    assert_eq!(status, 422);
    let (status, _, problem) = send(&base, "/tenants/7/orders", None, "tea").await;
    assert_eq!(status, 400);
    assert!(problem.contains("key-missing"));
    let (_, _, echo) = send(&base, "/echo", Some("k-2"), "as it came").await;
    assert_eq!(echo, "as it came");
}

on_each_server!(one_key_on_two_paths_of_a_nested_template_is_a_mismatch);
async fn one_key_on_two_paths_of_a_nested_template_is_a_mismatch(server: Server) {
    let once = builder_on(server.store().await, "shop").build().unwrap();
    let orders = Router::new()
        .route("/orders", post(|| async { StatusCode::CREATED }))
        .layer(IdempotencyLayer::unscoped(once));
    let base = serve(Router::new().nest("/tenants/{tenant}", orders)).await;
    let (status, ..) = send(&base, "/tenants/7/orders", Some("k-1"), "tea").await;
    assert_eq!(status, 201);
    let (_, retry, _) = send(&base, "/tenants/7/orders", Some("k-1"), "tea").await;
    assert_eq!(retry["idempotent-replayed"], "true");
    // Inside, the layer sees `/orders` in both; it goes by the path that the client asked for.
    let (status, _, problem) = send(&base, "/tenants/8/orders", Some("k-1"), "tea").await;
    assert_eq!(status, 422, "{problem}");
}

on_each_server!(a_router_in_a_function_does_the_same_at_each_door);
async fn a_router_in_a_function_does_the_same_at_each_door(server: Server) {
    for door in Door::ALL {
        let router = router(server.store().await);
        let call = door
            .post("k-1")
            .catch_all()
            .path("/tenants/7/orders")
            .stage("$default")
            .text("tea");
        for is_replayed in [false, true] {
            let answer = router.clone().oneshot(call.request()).await.unwrap();
            assert_eq!(answer.status(), 201, "{door:?}");
            assert_eq!(
                answer.headers().contains_key("idempotent-replayed"),
                is_replayed
            );
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(text, "order 1, POST /tenants/{tenant}/orders");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_extracts_its_claim() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let routes = || {
        let operation = |claim: Claim| async move { claim.operation().to_owned() };
        let has_claim = |claim: Option<Claim>| async move { claim.is_some().to_string() };
        Router::new()
            .route("/orders", post(operation).get(operation))
            .route("/maybe", post(has_claim).get(has_claim))
    };
    for (router, method, path, status, expected) in [
        (
            routes().layer(layer.clone()),
            "POST",
            "/orders",
            200,
            "POST /orders",
        ),
        (routes().layer(layer.clone()), "POST", "/maybe", 200, "true"),
        (routes().layer(layer.clone()), "GET", "/maybe", 200, "false"),
        (
            routes().layer(layer),
            "GET",
            "/orders",
            500,
            "misconfigured",
        ),
        (routes(), "POST", "/orders", 500, "misconfigured"),
        (routes(), "POST", "/maybe", 200, "false"),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("idempotency-key", "k-1");
        let answer = router.oneshot(request.body(Body::empty()).unwrap()).await;
        let (parts, body) = answer.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        assert_eq!(parts.status, status, "{method} {path}: {text}");
        assert!(text.contains(expected), "{method} {path}: {text}");
        if status == 500 {
            assert_eq!(parts.headers["content-type"], "application/problem+json");
            assert_eq!(parts.headers["idempotency-status"], "final");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_applied_twice_is_a_misconfiguration() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let other = layer.clone().operation(|_| "charge".to_owned());
    for (inner, status) in [(layer.clone(), 500), (other, 200)] {
        let router = Router::new().route("/orders", post(|| async {}));
        let router: Router = router.layer(inner).layer(layer.clone());
        let request = Request::post("/orders").header("idempotency-key", "k-1");
        let answer = router.oneshot(request.body(Body::empty()).unwrap());
        assert_eq!(answer.await.unwrap().status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_lets_a_request_pass_does_not_deny_the_protection_of_another() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let guards = IdempotencyLayer::unscoped(once.build().unwrap());
    let passes = guards.clone().other_routes(RoutePolicy::off());
    for (key, inner, outer, stated) in [
        ("k-1", &guards, &passes, None),
        ("k-2", &passes, &guards, None),
        ("k-3", &passes, &passes, Some("unprotected")),
    ] {
        let router = Router::new().route("/orders", post(|| async {}));
        let router: Router = router.layer(inner.clone()).layer(outer.clone());
        let request = Request::post("/orders").header("idempotency-key", key);
        let answer = router.oneshot(request.body(Body::empty()).unwrap()).await;
        let answer = answer.unwrap();
        let status = answer.headers().get("idempotency-status");
        let status = status.map(|status| status.to_str().unwrap());
        assert_eq!(status, stated, "{key}");
    }
}

#[test]
fn the_path_of_a_plain_request_is_its_own() {
    let (parts, ()) = Request::post("/orders?x=1").body(()).unwrap().into_parts();
    assert_eq!(path(&parts), "/orders");
}

#[tokio::test(start_paused = true)]
async fn a_declared_route_matches_what_a_nested_router_has_left_of_the_path() {
    for is_service in [false, true] {
        let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
        let once = once.build().unwrap();
        let by_id = RoutePolicy::required().key_parameter("id");
        let layer = IdempotencyLayer::unscoped(once.clone())
            .route("POST /orders", RoutePolicy::required())
            .unwrap()
            .route("PUT /orders/{id}/{rest+}", by_id)
            .unwrap()
            .other_routes(RoutePolicy::off());
        let runs = Arc::new(AtomicUsize::new(0));
        let order = move |claim: Claim| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            async move { format!("{run}, {}", claim.key_hash()) }
        };
        let orders: Router = Router::new()
            .route("/orders", post(order.clone()))
            .route("/orders/{id}/{*rest}", put(order));
        let router: Router = if is_service {
            Router::new().nest_service("/api", layer.layer(orders))
        } else {
            Router::new().nest("/api", orders.layer(layer))
        };
        let posted = Key::new("POST /api/orders", "k-1");
        let of = |id| Key::of("PUT /api/orders/{id}/{rest+}", &[id, "a"]).unwrap();
        for (method, path, run, key) in [
            ("POST", "/api/orders", 1, posted.clone()),
            ("POST", "/api/orders", 1, posted),
            ("PUT", "/api/orders/7/a", 2, of("7")),
            ("PUT", "/api/orders/7/a", 2, of("7")),
            ("PUT", "/api/orders/8/a", 3, of("8")),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = request.header("idempotency-key", "k-1");
            let answer = router.clone().oneshot(request.body(Body::empty()).unwrap());
            let body = answer.await.unwrap().into_body().collect().await.unwrap();
            let expected = format!("{run}, {}", once.record_id(&key).unwrap().hash());
            assert_eq!(body.to_bytes(), expected, "{is_service}: {method} {path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_parameter_of_a_nest_is_a_part_of_the_key_and_not_of_the_operation() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let once = once.build().unwrap();
    let by_id = RoutePolicy::required().key_parameter("id");
    let layer = IdempotencyLayer::unscoped(once.clone());
    let layer = layer.route("PUT /orders/{id}", by_id).unwrap();
    let order = async |claim: Claim| claim.key_hash().to_owned();
    let orders = Router::new().route("/orders/{id}", put(order)).layer(layer);
    let router: Router = Router::new().nest("/tenants/{tenant}", orders);
    for (tenant, id) in [("7", "9"), ("8", "9"), ("7", "8")] {
        let request = Request::put(format!("/tenants/{tenant}/orders/{id}"));
        let answer = router.clone().oneshot(request.body(Body::empty()).unwrap());
        let body = answer.await.unwrap().into_body().collect().await.unwrap();
        let key = Key::of("PUT /tenants/{tenant}/orders/{id}", &[tenant, id]).unwrap();
        assert_eq!(body.to_bytes(), once.record_id(&key).unwrap().hash());
    }
}
