//! Keys that are not in the layer's header: in another header, in the body, in the path, or found by a closure.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Builder, Claim, Idempotency, OnMissingKey, Selector};
use serde_json::Value;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use super::api::{Answer, Api, Call, Door, place_order};
use crate::on_each_server;
use crate::secrets::Log;
use crate::support::Server;

fn from_body() -> RoutePolicy {
    RoutePolicy::required().key_from(Selector::pointer("/event/id").unwrap())
}

fn by_expression(expression: &str) -> RoutePolicy {
    RoutePolicy::required().key_from(Selector::jmespath(expression).unwrap())
}

fn webhook(body: &str) -> Call {
    Door::Alb.post(None).path("/webhooks").json(body)
}

async fn api(server: &Server, policy: RoutePolicy) -> Api {
    let routes = |layer: IdempotencyLayer| {
        let layer = layer.route("PUT /orders/{order}", policy.clone());
        layer.unwrap().other_routes(policy)
    };
    Api::configured(server, |once| once, routes, place_order).await
}

/// The detail of a problem document.
fn detail(answer: &Answer) -> String {
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    problem["detail"].as_str().unwrap().to_owned()
}

on_each_server!(the_key_may_be_in_the_body);
async fn the_key_may_be_in_the_body(server: Server) {
    let closure = RoutePolicy::required().key(|_, body| {
        let event: Value = serde_json::from_slice(body).ok()?;
        Some(event["event"]["id"].as_str()?.to_owned())
    });
    for policy in [from_body(), by_expression("event.id"), closure] {
        let api = api(&server, policy.clone()).await;
        let paid = webhook(r#"{"event": {"id": "e-1", "kind": "paid"}}"#);
        assert_eq!(api.send(&paid).await.text(), "order 1", "{policy:?}");
        // Its layout doesn't count, and neither does the layer's own header.
        let again = webhook(r#"{"event":{"kind":"paid","id":"e-1"}}"#);
        for again in [again.clone(), again.header("Idempotency-Key", "other")] {
            let retry = api.send(&again).await;
            assert!(retry.is_replayed(), "{policy:?}");
            assert_eq!(retry.text(), "order 1");
        }
        let other = webhook(r#"{"event": {"id": "e-2", "kind": "paid"}}"#);
        assert_eq!(api.send(&other).await.text(), "order 2", "{policy:?}");
        let changed = webhook(r#"{"event": {"id": "e-1", "kind": "refunded"}}"#);
        let refused = api.send(&changed).await;
        refused.assert_problem(422, "mismatch");
        assert_eq!(api.runs(), 2, "{policy:?}");
    }
}

on_each_server!(the_key_may_be_in_another_header);
async fn the_key_may_be_in_another_header(server: Server) {
    let policy = RoutePolicy::required().key_header(HeaderName::from_static("x-delivery"));
    let api = api(&server, policy).await;
    let call = webhook("{}").header("X-Delivery", "d-1");
    assert_eq!(api.send(&call).await.text(), "order 1");
    assert!(api.send(&call).await.is_replayed());
    let other = webhook("{}").header("Idempotency-Key", "d-1");
    let refused = api.send(&other).await;
    refused.assert_problem(400, "key-missing");
    assert!(detail(&refused).ends_with("from the header `x-delivery`."));
}

on_each_server!(the_key_may_be_a_parameter_of_the_path);
async fn the_key_may_be_a_parameter_of_the_path(server: Server) {
    for door in Door::ALL {
        let api = api(&server, RoutePolicy::required().key_parameter("order")).await;
        let put = |path| {
            let call = door.post(None).method("PUT").catch_all();
            call.stage("live").path(path)
        };
        assert_eq!(api.send(&put("/orders/7")).await.text(), "order 1");
        assert!(api.send(&put("/orders/7")).await.is_replayed(), "{door:?}");
        assert_eq!(api.send(&put("/orders/8")).await.text(), "order 2");
        let changed = put("/orders/7").json("{}");
        let refused = api.send(&changed).await;
        refused.assert_problem(422, "mismatch");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parameter_that_the_gateway_has_decoded_is_not_decoded_again() {
    let server = Server::dynoxide().await;
    let api = api(&server, RoutePolicy::required().key_parameter("order")).await;
    let put = |path| Door::Http.post(None).method("PUT").catch_all().path(path);
    for (path, text) in [("/orders/a b", "order 1"), ("/orders/a%20b", "order 2")] {
        assert_eq!(api.send(&put(path)).await.text(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_key_is_refused_with_the_place_where_it_was_looked_for() {
    let server = Server::dynoxide().await;
    let closure = RoutePolicy::required().key(|_, _| Some(""));
    let expression = by_expression("[account, event.id]");
    for (policy, place) in [
        (from_body(), "from `/event/id` in the JSON body."),
        (expression, "from `[account, event.id]` in the JSON body."),
        (closure, "from the content of the request."),
    ] {
        let api = api(&server, policy).await;
        let refused = api.send(&webhook(r#"{"event": {}}"#)).await;
        refused.assert_problem(400, "key-missing");
        let detail = detail(&refused);
        assert!(
            detail.ends_with(&format!("This API takes it {place}")),
            "{detail}"
        );
        assert_eq!(api.runs(), 0);
    }
    let header = Api::new(&server, place_order).await;
    let refused = header.send(&webhook("{}")).await;
    assert!(detail(&refused).ends_with("from the header `idempotency-key`."));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_json_or_too_long_is_refused_where_the_key_is_required() {
    let server = Server::dynoxide().await;
    let api = api(&server, from_body()).await;
    for body in ["id=7", "", r#"{"event": "#] {
        let refused = api.send(&webhook("{}").text(body)).await;
        refused.assert_problem(400, "body-not-json");
    }
    let refused = api.send(&webhook("{}").binary(b"\xff\xfe")).await;
    refused.assert_problem(400, "body-not-json");

    let routes = |layer: IdempotencyLayer| {
        layer
            .settings(|settings| settings.body_limit = 8)
            .other_routes(from_body())
    };
    let short = Api::configured(&server, |once| once, routes, place_order).await;
    let refused = short.send(&webhook(r#"{"event": {"id": 7}}"#)).await;
    refused.assert_problem(413, "body-too-large");
    assert_eq!((api.runs(), short.runs()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_runs_where_the_key_is_optional() {
    let server = Server::dynoxide().await;
    let selector = Selector::pointer("/event/id").unwrap();
    let api = api(&server, RoutePolicy::optional().key_from(selector)).await;
    for (body, order) in [("id=7", "order 1"), ("id=7", "order 2"), ("{}", "order 3")] {
        let first = api.send(&webhook("{}").text(body)).await;
        assert_eq!(first.text(), order);
        assert_eq!(first.header("idempotency-status"), Some("unprotected"));
    }
    let keyed = webhook(r#"{"event": {"id": 7}}"#);
    assert_eq!(api.send(&keyed).await.text(), "order 4");
    assert!(api.send(&keyed).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_key_in_the_body_is_as_long_as_any_other_and_has_a_scope() {
    let server = Server::dynoxide().await;
    let layer = |once| {
        let tenant = |parts: &http::request::Parts| {
            let tenant = parts.headers.get("x-tenant")?.to_str().ok()?;
            Some(tenant.to_owned())
        };
        let layer = IdempotencyLayer::scoped(once, tenant);
        layer.other_routes(from_body())
    };
    let api = Api::layered(&server, layer, place_order).await;
    let call = |id: &str, tenant| {
        let body = format!(r#"{{"event": {{"id": "{id}"}}}}"#);
        webhook(&body).header("X-Tenant", tenant)
    };
    assert_eq!(api.send(&call("e-1", "a")).await.text(), "order 1");
    assert_eq!(api.send(&call("e-1", "b")).await.text(), "order 2");
    assert!(api.send(&call("e-1", "b")).await.is_replayed());
    let refused = api.send(&call(&"x".repeat(256), "a")).await;
    refused.assert_problem(400, "key-too-long");
    let refused = api.send(&webhook(r#"{"event": {"id": 7}}"#)).await;
    refused.assert_problem(403, "scope-missing");
}

#[tokio::test(start_paused = true)]
async fn a_parameter_that_the_route_does_not_have_is_a_misconfiguration() {
    let (log, _capture) = Log::capture();
    let server = Server::dynoxide().await;
    let policy = RoutePolicy::required().key_parameter("cart");
    let routes = |layer: IdempotencyLayer| {
        let declared = layer.clone().route("PUT /orders/{order}", policy.clone());
        let error = declared.unwrap_err().to_string();
        assert!(error.contains("it has no parameter of the name"), "{error}");
        layer.other_routes(policy)
    };
    let api = Api::configured(&server, |once| once, routes, place_order).await;
    let refused = api.send(&webhook("{}")).await;
    refused.assert_problem(500, "misconfigured");
    assert_eq!(api.runs(), 0);
    let log = log.text();
    let mut errors = log.lines().filter(|line| line.contains("ERROR"));
    assert!(errors.any(|line| line.contains("misconfigured")), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_template_that_the_gateway_matched_has_its_parameters() {
    let server = Server::dynoxide().await;
    let policy = RoutePolicy::required().key_parameter("shop");
    let routes = |layer: IdempotencyLayer| layer.other_routes(policy);
    let api = Api::configured(&server, |once| once, routes, place_order).await;
    // The fixture's template is `/shops/{shop}/orders`.
    for (path, is_replayed) in [
        ("/shops/7/orders", false),
        ("/shops/7/orders", true),
        ("/shops/8/orders", false),
    ] {
        let answer = api.send(&Door::Rest.post(None).path(path)).await;
        assert_eq!(answer.is_replayed(), is_replayed, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_parameters_of_the_path_are_the_key() {
    let server = Server::dynoxide().await;
    let template = "/carts/{cart}/items/{item}";
    for is_declared in [true, false] {
        let routes = |layer: IdempotencyLayer| {
            let policy = RoutePolicy::required().key_parameter("item");
            if is_declared {
                layer.route(&format!("POST {template}"), policy).unwrap()
            } else {
                layer.other_routes(policy)
            }
        };
        let api = Api::configured(&server, |once| once, routes, place_order).await;
        let call = |path| {
            let call = Door::Rest.post(None).path(path);
            if is_declared {
                call.catch_all()
            } else {
                call.request_context("resourcePath", template.into())
            }
        };
        for (path, order, is_replayed) in [
            ("/carts/1/items/7", "order 1", false),
            ("/carts/2/items/7", "order 2", false),
            ("/carts/1/items/7", "order 1", true),
        ] {
            let answer = api.send(&call(path)).await;
            assert_eq!(answer.text(), order, "{path}, declared: {is_declared}");
            assert_eq!(answer.is_replayed(), is_replayed, "{path}");
        }
    }
}

type Body = Full<Bytes>;

/// An API that answers with what it was sent, and the key that its claim derives.
fn echo(
    engine: impl FnOnce(Builder) -> Builder,
    policy: RoutePolicy,
) -> BoxCloneService<Request<Body>, Vec<u8>, Infallible> {
    let once = engine(Idempotency::builder(MemoryStore::new()).namespace("shop"));
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let layer = layer
        .other_routes(policy)
        .settings(|settings| settings.body_limit = 30);
    let service = layer.layer(service_fn(async |request: Request<Body>| {
        let key = request.extensions().get::<Claim>().unwrap().derive_key("x");
        let mut body = request.into_body().collect().await?.to_bytes().to_vec();
        body.extend_from_slice(format!(" {key}").as_bytes());
        Ok::<_, Infallible>(Response::new(Body::from(body)))
    }));
    let whole = service.and_then(async |response: Response<_>| {
        assert_eq!(response.status(), 200);
        let body = BodyExt::collect(response.into_body()).await.unwrap();
        Ok(body.to_bytes().to_vec())
    });
    BoxCloneService::new(whole)
}

fn posted(body: &str) -> Request<Body> {
    let request = Request::post("/webhooks");
    request.body(Body::from(body.to_owned())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_protected_no_selector_refuses_anything() {
    for observes in [true, false] {
        let (log, _capture) = Log::capture();
        let engine = |once: Builder| {
            let once = once.observe(observes).disabled(!observes);
            once.on_missing_key(OnMissingKey::RunUnprotected)
        };
        let panics =
            RoutePolicy::required().key(|_, _| -> Option<String> { panic!("in a closure") });
        let missing = RoutePolicy::required().key_parameter("cart");
        for policy in [from_body(), panics, missing] {
            let api = echo(engine, policy.clone());
            let oversized = format!(r#"{{"event": {{"id": "{}"}}}}"#, "x".repeat(300));
            let keyed = r#"{"event": {"id": 7}}"#;
            for body in [keyed, keyed, "{}", "id=7", "", oversized.as_str()] {
                let answer = api.clone().oneshot(posted(body)).await.unwrap();
                let answer = String::from_utf8(answer).unwrap();
                assert!(
                    answer.starts_with(&format!("{body} ")),
                    "{policy:?}: {answer}"
                );
            }
        }
        let text = log.text();
        for code in ["body-too-large", "misconfigured"] {
            assert_eq!(text.contains(code), observes, "{code}: {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_kill_switch_leaves_derived_keys_as_they_were() {
    let derived = async |engine: fn(Builder) -> Builder| {
        let api = echo(engine, from_body());
        let answer = api.oneshot(posted(r#"{"event": {"id": 7}}"#)).await;
        answer.unwrap()
    };
    let protected = derived(|once| once).await;
    assert_eq!(derived(|once| once.disabled(true)).await, protected);
    assert_eq!(derived(|once| once.observe(true)).await, protected);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_in_base64_has_its_key_too() {
    let server = Server::dynoxide().await;
    let api = api(&server, from_body()).await;
    for is_replayed in [false, true] {
        let call = webhook("{}").binary(br#"{"event": {"id": "e-1"}}"#);
        assert_eq!(api.send(&call).await.is_replayed(), is_replayed);
    }
}
