//! Routes that need a key, that take one, and that are left alone.

use lambda_idempotency::OnMissingKey;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};

use super::api::{Api, Call, Door, answer, place_order};
use crate::on_each_server;
use crate::support::Proxy;
use crate::support::Server;
use crate::support::retention::{days, for_days};

fn alb(key: impl Into<Option<&'static str>>, path: &str) -> Call {
    Door::Alb.post(key).path(path)
}

on_each_server!(a_route_is_required_optional_or_off);
async fn a_route_is_required_optional_or_off(server: Server) {
    let routes = |layer: IdempotencyLayer| {
        let layer = layer
            .route("POST /payments", RoutePolicy::required())
            .unwrap();
        let layer = layer
            .route("POST /carts/{cart}", RoutePolicy::optional())
            .unwrap();
        layer.other_routes(RoutePolicy::off())
    };
    // A route's policy applies, whatever the engine's is.
    for policy in [OnMissingKey::Refuse, OnMissingKey::RunUnprotected] {
        let api = Api::configured(
            &server,
            |once| once.on_missing_key(policy),
            routes,
            place_order,
        )
        .await;

        api.send(&alb(None, "/payments"))
            .await
            .assert_problem(400, "key-missing");
        assert_eq!(api.send(&alb("k-1", "/payments")).await.text(), "order 1");
        assert!(api.send(&alb("k-1", "/payments")).await.is_replayed());

        assert_eq!(api.send(&alb(None, "/carts/7")).await.text(), "order 2");
        assert_eq!(api.send(&alb(None, "/carts/7")).await.text(), "order 3");
        assert_eq!(api.send(&alb("k-1", "/carts/7")).await.text(), "order 4");
        assert!(api.send(&alb("k-1", "/carts/7")).await.is_replayed());

        for order in ["order 5", "order 6"] {
            assert_eq!(api.send(&alb("k-1", "/elsewhere")).await.text(), order);
        }
    }
}

on_each_server!(a_path_that_is_not_there_gets_its_404_and_not_a_400_for_want_of_a_key);
async fn a_path_that_is_not_there_gets_its_404_and_not_a_400_for_want_of_a_key(server: Server) {
    let routes = |layer: IdempotencyLayer| {
        let layer = layer
            .route("POST /orders", RoutePolicy::required())
            .unwrap();
        layer.other_routes(RoutePolicy::off())
    };
    let handler = |_, _| async { Ok(answer(404, "no such thing")) };
    let api = Api::configured(&server, |once| once, routes, handler).await;
    for door in Door::ALL {
        let call = door.post(None).catch_all().path("/nowhere");
        assert_eq!(api.send(&call).await.status, 404, "{door:?}");
    }
}

on_each_server!(a_route_that_names_its_method_is_guarded_for_it);
async fn a_route_that_names_its_method_is_guarded_for_it(server: Server) {
    let routes = |layer: IdempotencyLayer| {
        layer
            .route("PUT /orders/{id}", RoutePolicy::required())
            .unwrap()
    };
    let api = Api::configured(&server, |once| once, routes, place_order).await;
    let put = |key| alb(key, "/orders/7").method("PUT");
    assert_eq!(api.send(&put("k-1")).await.text(), "order 1");
    assert!(api.send(&put("k-1")).await.is_replayed());
    // Other methods are as before: a DELETE passes through.
    let delete = alb("k-1", "/orders/7").method("DELETE");
    assert_eq!(api.send(&delete).await.text(), "order 2");
    assert_eq!(api.send(&delete).await.text(), "order 3");
}

on_each_server!(a_declared_template_is_the_operation_where_nothing_else_knows_one);
async fn a_declared_template_is_the_operation_where_nothing_else_knows_one(server: Server) {
    let routes = |layer: IdempotencyLayer| {
        layer
            .route("POST /shops/{shop}/orders", RoutePolicy::required())
            .unwrap()
    };
    let api = Api::configured(&server, |once| once, routes, place_order).await;
    assert_eq!(api.send(&alb("k-1", "/shops/7/orders")).await.status, 201);
    let other = api.send(&alb("k-1", "/shops/8/orders")).await;
    other.assert_problem(422, "mismatch");
    assert_eq!(api.runs(), 1);
}

on_each_server!(the_stage_of_an_http_api_is_no_part_of_a_route);
async fn the_stage_of_an_http_api_is_no_part_of_a_route(server: Server) {
    let routes = |layer: IdempotencyLayer| {
        let layer = layer
            .route("POST /orders", RoutePolicy::required())
            .unwrap();
        layer.other_routes(RoutePolicy::off())
    };
    let api = Api::configured(&server, |once| once, routes, place_order).await;
    // An HTTP API's event, and one of the payload format 1.0.
    for door in [Door::Http, Door::Rest] {
        let call = door.post(None).path("/live/orders").stage("live");
        let call = match door {
            Door::Http => call.catch_all(),
            _ => call.request_context("resourcePath", serde_json::json!("$default")),
        };
        api.send(&call).await.assert_problem(400, "key-missing");
    }
}

on_each_server!(the_base_path_of_a_custom_domain_is_no_part_of_a_route);
async fn the_base_path_of_a_custom_domain_is_no_part_of_a_route(server: Server) {
    let routes = |layer: IdempotencyLayer| {
        let by_order = RoutePolicy::required().key_parameter("order");
        let layer = layer
            .route("POST /orders", RoutePolicy::required())
            .unwrap()
            .route("PUT /orders/{order}/{rest+}", by_order)
            .unwrap();
        layer.other_routes(RoutePolicy::off())
    };
    for door in [Door::Rest, Door::Http] {
        let api = Api::configured(&server, |once| once, routes, place_order).await;
        for base in ["", "/shop", "/shop/v1"] {
            let call = door.post(None).behind_base_path(base, "/orders");
            api.send(&call).await.assert_problem(400, "key-missing");
        }
        let put = |order: &str| {
            let call = door.post(None).method("PUT").stage("live");
            call.behind_base_path("/shop", &format!("/orders/{order}/lines/1"))
        };
        assert_eq!(api.send(&put("7")).await.text(), "order 1");
        assert!(api.send(&put("7")).await.is_replayed(), "{door:?}");
        assert_eq!(api.send(&put("8")).await.text(), "order 2");
    }
}

on_each_server!(the_outcomes_of_a_route_are_kept_as_long_as_it_says);
async fn the_outcomes_of_a_route_are_kept_as_long_as_it_says(server: Server) {
    let table = server.idempotency_table().await;
    let routes = |layer: IdempotencyLayer| {
        let month = RoutePolicy::required().retention(for_days(30));
        layer.route("POST /payments", month).unwrap()
    };
    let store = DynamoDbStore::new(server.client(), &table);
    let api = Api::on(
        store,
        |once| once.retention(for_days(2)),
        routes,
        place_order,
    );
    api.send(&alb("k-1", "/payments")).await;
    api.send(&alb("k-1", "/carts")).await;
    assert_eq!(days(&server, &table).await, [2, 30]);
}

on_each_server!(without_a_setting_an_answer_is_kept_for_a_day);
async fn without_a_setting_an_answer_is_kept_for_a_day(server: Server) {
    let table = server.idempotency_table().await;
    let store = DynamoDbStore::new(server.client(), &table);
    let api = Api::on(store, |once| once, |layer| layer, place_order);
    assert_eq!(api.send(&alb("k-1", "/payments")).await.text(), "order 1");
    assert_eq!(days(&server, &table).await, [1]);
}

on_each_server!(a_route_that_is_off_costs_no_request_and_a_preflight_passes_everywhere);
async fn a_route_that_is_off_costs_no_request_and_a_preflight_passes_everywhere(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let routes = |layer: IdempotencyLayer| {
        let layer = layer
            .route("POST /payments", RoutePolicy::required())
            .unwrap();
        layer.route("/carts", RoutePolicy::off()).unwrap()
    };
    let api = Api::on(store, |once| once, routes, place_order);
    let passed = api.send(&alb("k-1", "/carts")).await;
    assert_eq!(passed.status, 201);
    assert_eq!(passed.header("idempotency-status"), Some("unprotected"));
    for door in Door::ALL {
        let preflight = door
            .post(None)
            .path("/payments")
            .method("OPTIONS")
            .header("Origin", "https://shop.example")
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "idempotency-key");
        assert_eq!(api.send(&preflight).await.status, 201, "{door:?}");
    }
    assert_eq!(proxy.take_total(), 0);
}
