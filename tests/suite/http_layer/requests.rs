//! The requests that are the same, those that are guarded at all, and the handler's view of them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Method;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use lambda_http::{Body, Request};
use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use tower::{Layer, ServiceExt, service_fn};

use super::api::{Api, Call, Door, Failure, answer, place_order};
use crate::on_each_server;
use crate::support::Proxy;
use crate::support::Server;

async fn assert_same(api: &Api, first: &Call, second: &Call) {
    let runs = api.runs();
    assert_eq!(api.send(first).await.status, 201);
    assert!(api.send(second).await.is_replayed());
    assert_eq!(api.runs(), runs + 1);
}

async fn assert_mismatch(api: &Api, first: &Call, second: &Call) {
    let runs = api.runs();
    assert_eq!(api.send(first).await.status, 201);
    let refused = api.send(second).await;
    refused.assert_problem(422, "mismatch");
    assert_eq!(refused.retry_after(), None);
    assert_eq!(api.runs(), runs + 1);
}

on_each_server!(a_key_used_again_with_another_body_is_refused);
async fn a_key_used_again_with_another_body_is_refused(server: Server) {
    for door in Door::ALL {
        let api = Api::new(&server, place_order).await;
        let call = |amount| door.post("k-1").json(amount);
        assert_mismatch(&api, &call(r#"{"amount":1}"#), &call(r#"{"amount":2}"#)).await;
    }
}

on_each_server!(one_key_on_two_paths_of_one_template_is_a_mismatch);
async fn one_key_on_two_paths_of_one_template_is_a_mismatch(server: Server) {
    for door in [Door::Rest, Door::Http] {
        let api = Api::new(&server, place_order).await;
        let call = |path| door.post("k-1").path(path);
        assert_mismatch(&api, &call("/shops/7/orders"), &call("/shops/8/orders")).await;
    }
}

on_each_server!(one_key_on_two_paths_without_a_template_is_two_requests);
async fn one_key_on_two_paths_without_a_template_is_two_requests(server: Server) {
    for door in Door::ALL {
        let api = Api::new(&server, place_order).await;
        let call = |path| door.post("k-1").catch_all().path(path);
        assert_eq!(api.send(&call("/orders")).await.text(), "order 1");
        assert_eq!(api.send(&call("/refunds")).await.text(), "order 2");
        assert!(api.send(&call("/orders")).await.is_replayed());
    }
}

on_each_server!(an_operation_of_ones_own_holds_paths_together);
async fn an_operation_of_ones_own_holds_paths_together(server: Server) {
    let name = |parts: &http::request::Parts| match parts.uri.path() {
        "/nameless" => String::new(),
        "/torn" => "a\nb".to_owned(),
        _ => "order".to_owned(),
    };
    let api = Api::configured(
        &server,
        |once| once,
        |layer| layer.operation(name),
        place_order,
    )
    .await;
    let call = |path| Door::Alb.post("k-1").path(path);
    assert_mismatch(&api, &call("/orders"), &call("/v2/orders")).await;
    for path in ["/nameless", "/torn"] {
        api.send(&call(path))
            .await
            .assert_problem(500, "misconfigured");
    }
}

on_each_server!(another_query_is_another_request);
async fn another_query_is_another_request(server: Server) {
    for door in Door::ALL {
        let api = Api::new(&server, place_order).await;
        let call = |dry| door.post("k-1").query(&[("dry", dry), ("shop", "7")]);
        assert_mismatch(&api, &call("yes"), &call("no")).await;
    }
}

on_each_server!(the_order_in_which_a_gateway_hands_parameters_on_does_not_matter);
async fn the_order_in_which_a_gateway_hands_parameters_on_does_not_matter(server: Server) {
    let pairs = [
        ("a", "1"),
        ("b", "2 & 3"),
        ("c", "3"),
        ("d", "4"),
        ("e", "5"),
        ("f", "6"),
        ("a", "7"),
    ];
    for door in [Door::Rest, Door::Alb] {
        let api = Api::new(&server, place_order).await;
        let call = door.post("k-1").query(&pairs);
        assert_eq!(api.send(&call).await.status, 201);
        // Each parse gives the hash map behind the query another order.
        for _ in 0..8 {
            assert!(
                api.send(&call).await.is_replayed(),
                "{}",
                call.request().uri()
            );
        }
    }
}

on_each_server!(the_layout_of_json_does_not_matter);
async fn the_layout_of_json_does_not_matter(server: Server) {
    let api = Api::new(&server, place_order).await;
    let call = |body| Door::Http.post("k-1").json(body);
    assert_same(
        &api,
        &call(r#"{"sku":"tea","amount":1250}"#),
        &call("{ \"amount\": 1.25e3,\n  \"sku\": \"tea\" }"),
    )
    .await;
}

on_each_server!(any_body_is_compared_as_far_as_it_can_be_understood);
async fn any_body_is_compared_as_far_as_it_can_be_understood(server: Server) {
    let deep = |core: &str| "[".repeat(10_000) + core + &"]".repeat(10_000);
    let json = || {
        Door::Http
            .post("k-1")
            .header("content-type", "application/json")
    };
    let plain = || Door::Http.post("k-1").header("content-type", "text/plain");
    for (one, other) in [
        (json().text("no json"), json().text("no  json")),
        (json().text(""), json().text(" ")),
        (
            json().binary(b"{\"a\":\"\xff\"}"),
            json().binary(b"{\"a\":\"\xfe\"}"),
        ),
        (json().text(&deep("1")), json().text(&deep("2"))),
        (plain().text("{ }"), plain().text("{}")),
        (plain().binary(b"\xff\x00"), plain().binary(b"\xff\x01")),
    ] {
        let api = Api::new(&server, place_order).await;
        assert_same(&api, &one, &one).await;
        let api = Api::new(&server, place_order).await;
        assert_mismatch(&api, &one, &other).await;
    }
}

on_each_server!(paths_that_no_address_holds_are_told_apart);
async fn paths_that_no_address_holds_are_told_apart(server: Server) {
    let api = Api::new(&server, place_order).await;
    // As an HTTP API delivers them: decoded.
    let paths = [
        "/files/a#1",
        "/files/a#2",
        "/files/a b",
        "/files/a%20b",
        r"/files/a\b",
        "/files/a/b",
        "/files/a\nb",
        "/files/a\u{7f}b",
    ];
    for path in paths {
        let call = Door::Http.post("k-1").catch_all().json("{}").path(path);
        assert!(!api.send(&call).await.is_replayed(), "{path}");
        assert!(api.send(&call).await.is_replayed(), "{path}");
    }
    let call = Door::Http
        .post("k-1")
        .catch_all()
        .json("{}")
        .path("/files/a#1");
    let other = api.send(&call.query(&[("part", "1")])).await;
    other.assert_problem(422, "mismatch");
}

on_each_server!(text_and_its_base64_transport_are_the_same_request);
async fn text_and_its_base64_transport_are_the_same_request(server: Server) {
    let api = Api::new(&server, place_order).await;
    let (text, base64) = (
        Door::Http.post("k-1").json("{}"),
        Door::Http.post("k-1").json("").binary(b"{ }"),
    );
    assert_same(&api, &text, &base64).await;
}

on_each_server!(the_handler_gets_the_body_as_it_came);
async fn the_handler_gets_the_body_as_it_came(server: Server) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let seen = Arc::clone(&seen);
        move |_, request: Request| {
            seen.lock().unwrap().push(request.into_body());
            async { Ok(answer(201, ())) }
        }
    };
    let api = Api::new(&server, handler).await;
    api.send(&Door::Http.post("k-1").json("{ }")).await;
    api.send(&Door::Http.post("k-2").binary(b"\xff\x00")).await;
    api.send(&Door::Http.post("k-3")).await;
    let expected = [
        Body::Text("{ }".to_owned()),
        Body::Binary(b"\xff\x00".to_vec()),
        Body::Empty,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

on_each_server!(a_body_over_the_limit_is_refused);
async fn a_body_over_the_limit_is_refused(server: Server) {
    let api = Api::configured(
        &server,
        |once| once,
        |layer| layer.settings(|settings| settings.body_limit = 4),
        place_order,
    )
    .await;
    api.send(&Door::Http.post("k-1").text("12345"))
        .await
        .assert_problem(413, "body-too-large");
    assert_eq!(api.runs(), 0);
    assert_eq!(
        api.send(&Door::Http.post("k-1").text("1234")).await.status,
        201
    );
}

on_each_server!(methods_that_are_not_guarded_pass_through);
async fn methods_that_are_not_guarded_pass_through(server: Server) {
    let proxy = Proxy::before(&server).await;
    let table = server.idempotency_table().await;
    let store = DynamoDbStore::new(proxy.server().client(), table);
    let api = Api::on(
        store,
        |once| once,
        |layer| layer.settings(|settings| settings.methods = vec![Method::POST, Method::GET]),
        place_order,
    );
    for (run, method) in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"]
        .into_iter()
        .enumerate()
    {
        for key in [None, Some("\"")] {
            let passed = api.send(&Door::Http.post(key).method(method)).await;
            assert_eq!(passed.status, 201, "{method}");
            let is_unsafe = ["PUT", "DELETE", "PATCH"].contains(&method);
            let stated = (is_unsafe && key.is_some()).then_some("unprotected");
            assert_eq!(passed.header("idempotency-status"), stated, "{method}");
        }
        assert_eq!(api.runs(), 2 * run + 2);
    }
    assert_eq!(proxy.take_total(), 0);
}

on_each_server!(what_an_answer_says_of_itself_stands_and_observing_adds_nothing);
async fn what_an_answer_says_of_itself_stands_and_observing_adds_nothing(server: Server) {
    for (observes, own, stated) in [
        (false, None, Some("unprotected")),
        (false, Some("final"), Some("final")),
        (true, None, None),
    ] {
        let handler = move |_, _| async move {
            let mut response = answer(201, "passed");
            if let Some(own) = own {
                let own = http::HeaderValue::from_static(own);
                response.headers_mut().insert("idempotency-status", own);
            }
            Ok(response)
        };
        let observed = |once: lambda_idempotency::Builder| once.observe(observes);
        let api = Api::configured(&server, observed, |layer| layer, handler).await;
        let passed = api.send(&Door::Http.post("k-1").method("DELETE")).await;
        assert_eq!(passed.header("idempotency-status"), stated);
    }
}

on_each_server!(patch_is_guarded_and_apart_from_post);
async fn patch_is_guarded_and_apart_from_post(server: Server) {
    let api = Api::new(&server, place_order).await;
    let patch = Door::Alb.post("k-1").method("PATCH");
    assert_eq!(api.send(&patch).await.text(), "order 1");
    assert_eq!(api.send(&Door::Alb.post("k-1")).await.text(), "order 2");
    assert!(api.send(&patch).await.is_replayed());
    api.send(&Door::Alb.post(None).method("PATCH"))
        .await
        .assert_problem(400, "key-missing");
}

#[tokio::test(start_paused = true)]
async fn a_service_outside_lambda_is_served_alike() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let api = layer.layer(service_fn(
        |request: http::Request<UnsyncBoxBody<Bytes, _>>| async {
            let body = request.into_body().collect().await?.to_bytes();
            Ok::<_, Failure>(http::Response::new(Full::new(body)))
        },
    ));
    for is_replayed in [false, true] {
        let body = Full::from("tea").map_err(Failure::from).boxed_unsync();
        let request = http::Request::post("/orders").header("idempotency-key", "k-1");
        let answer = api
            .clone()
            .oneshot(request.body(body).unwrap())
            .await
            .unwrap();
        assert_eq!(
            answer.headers().contains_key("idempotent-replayed"),
            is_replayed
        );
        assert_eq!(
            answer.into_body().collect().await.unwrap().to_bytes(),
            "tea"
        );
    }
}
