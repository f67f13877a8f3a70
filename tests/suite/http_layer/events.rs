//! Handlers of events as they are: what holds through `lambda_http` holds without it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use data_encoding::BASE64;
use lambda_http::aws_lambda_events::alb::AlbTargetGroupRequest;
use lambda_http::aws_lambda_events::apigw::{ApiGatewayProxyRequest, ApiGatewayV2httpRequest};
use lambda_http::{Context, LambdaEvent};
use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::http::events::{HttpEvent, Incoming};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use super::api::{Api, Call, Door, Failure, place_order};
use crate::on_each_server;
use crate::support::{Server, alone, builder_on};

type UrlRequest = aws_lambda_events::lambda_function_urls::LambdaFunctionUrlRequest;

/// A function whose handler answers with this JSON, after it has put its run's number into it.
#[derive(Clone)]
struct Function {
    service: BoxCloneService<Value, Value, Failure>,
    runs: Arc<AtomicUsize>,
}

impl Function {
    fn at(door: Door, store: DynamoDbStore, answer: Value) -> Self {
        Self::with(door, store, IdempotencyLayer::unscoped, answer)
    }

    fn with(
        door: Door,
        store: DynamoDbStore,
        layer: impl FnOnce(Idempotency) -> IdempotencyLayer,
        answer: Value,
    ) -> Self {
        let once = builder_on(store, "shop").build().unwrap();
        let layer = layer(once);
        match door {
            Door::Rest => Self::of::<ApiGatewayProxyRequest>(&layer, answer),
            Door::Http => Self::of::<ApiGatewayV2httpRequest>(&layer, answer),
            Door::Alb => Self::of::<AlbTargetGroupRequest>(&layer, answer),
            Door::Url => Self::of::<UrlRequest>(&layer, answer),
            Door::Lattice => panic!("its events come through lambda_http"),
        }
    }

    fn of<E>(layer: &IdempotencyLayer, answer: Value) -> Self
    where
        E: HttpEvent + DeserializeOwned + Debug + Clone,
        E::Response: DeserializeOwned + Serialize,
    {
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        let handler = service_fn(move |event: Incoming<E>| {
            let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
            let mut answer = answer.clone();
            answer["headers"]["x-run"] = json!(run.to_string());
            if let Some(claim) = event.claim {
                answer["headers"]["x-operation"] = json!(claim.operation());
            }
            std::future::ready(serde_json::from_value::<E::Response>(answer).map_err(Failure::from))
        });
        let service = layer.layer(handler);
        let json = service
            .map_request(|event: Value| {
                LambdaEvent::new(
                    serde_json::from_value::<E>(event).unwrap(),
                    Context::default(),
                )
            })
            .map_response(|answer: E::Response| serde_json::to_value(answer).unwrap());
        Self {
            service: BoxCloneService::new(json),
            runs,
        }
    }

    async fn send(&self, call: &Call) -> Value {
        self.service
            .clone()
            .oneshot(call.event().clone())
            .await
            .unwrap()
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

const RAW: [Door; 4] = [Door::Rest, Door::Http, Door::Alb, Door::Url];

fn created(body: &str, is_base64: bool) -> Value {
    json!({
        "statusCode": 201,
        "headers": { "content-type": "text/plain" },
        "multiValueHeaders": {},
        "cookies": ["session=1"],
        "body": body,
        "isBase64Encoded": is_base64,
    })
}

/// Wherever the door wants it.
fn header(answer: &Value, name: &str) -> Option<String> {
    let values = [&answer["headers"][name], &answer["multiValueHeaders"][name]];
    values
        .into_iter()
        .find(|value| !value.is_null())
        .map(|value| {
            let value = value.get(0).unwrap_or(value);
            value.as_str().unwrap().to_owned()
        })
}

fn code(answer: &Value) -> String {
    let problem: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    problem["code"].as_str().unwrap().to_owned()
}

on_each_server!(an_event_that_comes_twice_is_handled_once);
async fn an_event_that_comes_twice_is_handled_once(server: Server) {
    for door in RAW {
        let function = Function::at(door, server.store().await, created("order", false));
        let call = door.post("k-1").json(r#"{"sku":"tea"}"#);
        let first = function.send(&call).await;
        assert_eq!(
            (&first["statusCode"], &first["body"]),
            (&json!(201), &json!("order")),
            "{door:?}"
        );
        assert_eq!(header(&first, "idempotent-replayed"), None);

        let retry = function.send(&call).await;
        assert_eq!(
            (&retry["statusCode"], &retry["body"]),
            (&json!(201), &json!("order")),
            "{door:?}"
        );
        assert_eq!(
            header(&retry, "idempotent-replayed").as_deref(),
            Some("true")
        );
        assert_eq!(header(&retry, "x-run").as_deref(), Some("1"));
        assert_eq!(retry["isBase64Encoded"], false);
        assert_eq!(function.runs(), 1);

        let other = function
            .send(&door.post("k-1").json(r#"{"sku":"jam"}"#))
            .await;
        assert_eq!(
            (&other["statusCode"], code(&other).as_str()),
            (&json!(422), "mismatch")
        );
        let missing = function.send(&door.post(None).json("{}")).await;
        assert_eq!(
            (&missing["statusCode"], code(&missing).as_str()),
            (&json!(400), "key-missing")
        );
        assert_eq!(
            header(&missing, "content-type").as_deref(),
            Some("application/problem+json")
        );
    }
}

on_each_server!(the_first_answer_goes_out_as_the_handler_made_it);
async fn the_first_answer_goes_out_as_the_handler_made_it(server: Server) {
    for door in [Door::Http, Door::Url] {
        let function = Function::at(door, server.store().await, created("dGVh", true));
        let call = door.post("k-1");
        let first = function.send(&call).await;
        assert_eq!(
            (&first["body"], &first["isBase64Encoded"]),
            (&json!("dGVh"), &json!(true))
        );
        assert_eq!(first["cookies"], json!(["session=1"]));
        // A replay says the same in the plainest form, and has no cookie.
        let retry = function.send(&call).await;
        assert_eq!(
            (&retry["body"], &retry["isBase64Encoded"]),
            (&json!("tea"), &json!(false))
        );
        assert_eq!(retry["cookies"], json!([]));
    }
}

on_each_server!(bytes_that_are_no_text_are_replayed_in_base64);
async fn bytes_that_are_no_text_are_replayed_in_base64(server: Server) {
    let png = BASE64.encode(b"\x89PNG\r\n\x1a\n\x00\xff");
    for door in RAW {
        let function = Function::at(door, server.store().await, created(&png, true));
        let call = door.post("k-1").binary(b"\xff\x00");
        function.send(&call).await;
        let retry = function.send(&call).await;
        assert_eq!(
            header(&retry, "idempotent-replayed").as_deref(),
            Some("true"),
            "{door:?}"
        );
        assert_eq!(
            (&retry["body"], &retry["isBase64Encoded"]),
            (&json!(png), &json!(true)),
            "{door:?}"
        );
    }
}

on_each_server!(a_repeated_header_is_seen_at_each_door);
async fn a_repeated_header_is_seen_at_each_door(server: Server) {
    for door in RAW {
        let function = Function::at(door, server.store().await, created("", false));
        let call = door.post(None).headers("Idempotency-Key", &["a", "b"]);
        assert_eq!(
            code(&function.send(&call).await),
            "key-repeated",
            "{door:?}"
        );
        assert_eq!(function.runs(), 0);
    }
}

on_each_server!(an_event_means_the_same_with_lambda_http_and_without);
async fn an_event_means_the_same_with_lambda_http_and_without(server: Server) {
    for door in RAW {
        let store = server.store().await;
        let api = Api::on(store.clone(), |once| once, |layer| layer, place_order);
        let function = Function::at(door, store, created("", false));
        let query = [("b", "2"), ("a", "1 & 3"), ("b", "ü")];
        let query = if matches!(door, Door::Rest) {
            &query[..]
        } else {
            &query[..1]
        };
        for (key, call) in [
            ("k-1", door.post("k-1")),
            ("k-2", door.post("k-2").query(query)),
            ("k-3", door.post("k-3").json("[1]")),
        ] {
            assert_eq!(api.send(&call).await.status, 201);
            let replayed = function.send(&call).await;
            assert_eq!(
                header(&replayed, "idempotent-replayed").as_deref(),
                Some("true"),
                "{door:?} {key}: {replayed}"
            );
        }
        assert_eq!(function.runs(), 0);
    }
}

const STAGE: &str = concat!(
    module_path!(),
    "::without_the_stage_in_its_path_an_event_means_the_same_as_with_lambda_http"
);

#[tokio::test(start_paused = true)]
async fn without_the_stage_in_its_path_an_event_means_the_same_as_with_lambda_http() {
    if alone::child().is_none() {
        let variable = ("AWS_LAMBDA_HTTP_IGNORE_STAGE_IN_PATH", "true");
        alone::run(STAGE, "stage", &[variable]);
        return;
    }
    let server = Server::dynoxide().await;
    for door in [Door::Rest, Door::Http] {
        let store = server.store().await;
        let api = Api::on(store.clone(), |once| once, |layer| layer, place_order);
        let function = Function::at(door, store, created("", false));
        let call = door.post("k-1").path("/orders").stage("live");
        assert_eq!(api.send(&call).await.status, 201);
        let replayed = function.send(&call).await;
        assert_eq!(
            header(&replayed, "idempotent-replayed").as_deref(),
            Some("true"),
            "{door:?}: {replayed}"
        );
    }
}

on_each_server!(a_handler_of_events_gets_its_claim_and_its_template);
async fn a_handler_of_events_gets_its_claim_and_its_template(server: Server) {
    for (door, operation) in [
        (Door::Rest, "POST /shops/{shop}/orders"),
        (Door::Http, "POST /shops/{shop}/orders"),
        (Door::Alb, "POST /shops/7/orders"),
        (Door::Url, "POST /shops/7/orders"),
    ] {
        let function = Function::at(door, server.store().await, created("", false));
        let answer = function.send(&door.post("k-1")).await;
        assert_eq!(
            header(&answer, "x-operation").as_deref(),
            Some(operation),
            "{door:?}"
        );
        let passed = function.send(&door.post("k-1").method("GET")).await;
        assert_eq!(header(&passed, "x-operation"), None);
    }
}

on_each_server!(a_body_whose_base64_is_damaged_is_a_400_and_nothing_runs);
async fn a_body_whose_base64_is_damaged_is_a_400_and_nothing_runs(server: Server) {
    let function = Function::at(Door::Http, server.store().await, created("", false));
    let mut event = Door::Http.post("k-1").binary(b"tea").event().clone();
    event["body"] = json!("dGVh!");
    let refused = function.service.clone().oneshot(event).await.unwrap();
    assert_eq!(code(&refused), "body-unreadable");
    assert_eq!(function.runs(), 0);
}

on_each_server!(an_unprotected_answer_to_an_event_says_so);
async fn an_unprotected_answer_to_an_event_says_so(server: Server) {
    use lambda_idempotency::http::RoutePolicy;
    for door in RAW {
        let optional =
            |once| IdempotencyLayer::unscoped(once).other_routes(RoutePolicy::optional());
        let function = Function::with(door, server.store().await, optional, created("", false));
        for call in [door.post(None), door.post("k-1").method("DELETE")] {
            let answer = function.send(&call).await;
            assert_eq!(
                header(&answer, "idempotency-status").as_deref(),
                Some("unprotected"),
                "{door:?}"
            );
        }
    }
}

on_each_server!(an_iam_identity_is_the_scope_at_a_function_url_and_at_vpc_lattice);
async fn an_iam_identity_is_the_scope_at_a_function_url_and_at_vpc_lattice(server: Server) {
    use lambda_idempotency::http::scope;
    let by_identity = |once| IdempotencyLayer::scoped(once, scope::iam_identity());
    let function = Function::with(
        Door::Url,
        server.store().await,
        by_identity,
        created("", false),
    );
    assert_eq!(
        function.send(&Door::Url.post("k-1")).await["statusCode"],
        201
    );
    let anonymous = Door::Url
        .post("k-1")
        .request_context("authorizer", Value::Null);
    assert_eq!(code(&function.send(&anonymous).await), "scope-missing");

    let api = Api::layered(&server, by_identity, place_order).await;
    for door in [Door::Url, Door::Lattice] {
        let call = door.post(if door == Door::Url { "k-1" } else { "k-2" });
        assert_eq!(api.send(&call).await.status, 201, "{door:?}");
        assert!(api.send(&call).await.is_replayed());
    }
}

on_each_server!(a_server_error_of_a_handler_of_events_runs_again);
async fn a_server_error_of_a_handler_of_events_runs_again(server: Server) {
    for door in RAW {
        let mut failed = created("sorry", false);
        failed["statusCode"] = json!(500);
        let function = Function::at(door, server.store().await, failed);
        for _ in 0..2 {
            assert_eq!(function.send(&door.post("k-1")).await["statusCode"], 500);
        }
        assert_eq!(function.runs(), 2, "{door:?}");
    }
}
