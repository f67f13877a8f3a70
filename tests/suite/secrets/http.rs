//! The output of the HTTP layers about a request: about its key, headers, cookies, query and body, and about the answer.

use ::http::{HeaderValue, Method, Request, Response};
use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use axum::extract::OriginalUri;
use http_body_util::BodyExt;
use lambda_http::{Body, Context, LambdaEvent};
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::events::Incoming;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};

use super::canary::{Canary, Seen, with_secrets};
use super::engine::Quoting;

fn layer(once: &Idempotency) -> IdempotencyLayer {
    IdempotencyLayer::scoped(once.clone(), |parts| {
        Some(parts.headers.get("x-tenant")?.to_str().ok()?.to_owned())
    })
}

fn request(secret: &str, key: &str, body: &str) -> Request<Body> {
    let mut request = Request::post(format!("/orders?card={}", secret.len()))
        .body(Body::from(body))
        .unwrap();
    let query: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    *request.uri_mut() = format!("/orders?card={query}").parse().unwrap();
    for (name, value) in [
        ("idempotency-key", key),
        ("x-tenant", secret),
        ("authorization", secret),
        ("cookie", secret),
        ("content-type", "application/json"),
    ] {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_str(value).unwrap());
    }
    request
}

/// A status for the handler to answer with; zero for an error.
async fn send(
    seen: &mut Seen,
    layer: &IdempotencyLayer,
    request: Request<Body>,
    secret: &str,
    status: u16,
) -> u16 {
    let secret = secret.to_owned();
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        let secret = secret.clone();
        async move {
            if status == 0 {
                return Err(Quoting(secret));
            }
            let answer = Response::builder()
                .status(status)
                .header("x-receipt", &secret)
                .header("set-cookie", &secret);
            Ok(answer.body(Body::from(secret)).unwrap())
        }
    }));
    seen.debug(&service);
    let Ok(answer) = service.oneshot(request).await else {
        return 0;
    };
    let (parts, body) = answer.into_parts();
    let is_problem = parts
        .headers
        .get("content-type")
        .is_some_and(|kind| kind == "application/problem+json");
    let body = body.collect().await.unwrap().to_bytes();
    if is_problem {
        seen.text(String::from_utf8(body.to_vec()).unwrap());
        seen.debug(&parts.headers);
    }
    parts.status.as_u16()
}

async fn scenario(canary: &Canary) -> Seen {
    let mut seen = Seen::of(canary);
    let secret = &canary.text();
    let store = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(store.clone())
        .namespace("secrets")
        .build()
        .unwrap();
    let layer = layer(&once);
    seen.debug(&layer);
    let quoted = format!("\"{}\"", secret.replace('\\', "\\\\").replace('"', "\\\""));
    let body = json!({ "card": secret }).to_string();
    let first = || request(secret, &quoted, &body);
    let mut statuses = Vec::new();
    // An error, a passing failure, the answer, its replay, a mismatch.
    for (request, status) in [
        (first(), 0),
        (first(), 503),
        (first(), 201),
        (first(), 500),
        (request(secret, &quoted, secret), 201),
    ] {
        statuses.push(send(&mut seen, &layer, request, secret, status).await);
    }
    for key in [
        &format!("\"{secret}\\"),
        &format!("{quoted};a"),
        &format!("{quoted}, {quoted}"),
        &format!("\"{}\"", "k".repeat(300)),
        &format!("{secret}\u{fc}"),
    ] {
        statuses.push(send(&mut seen, &layer, request(secret, key, &body), secret, 201).await);
    }
    let other = format!("\"1{}", &quoted[1..]);
    for _ in 0..20 {
        store.inject(Call::Create, Fault::RequestLost);
        store.inject(Call::Release, Fault::RequestLost);
    }
    statuses.push(
        send(
            &mut seen,
            &layer,
            request(secret, &other, &body),
            secret,
            201,
        )
        .await,
    );
    store.calm();
    assert_eq!(
        statuses,
        [0, 503, 201, 201, 422, 400, 400, 400, 400, 400, 503]
    );
    event(&mut seen, &layer, secret, &quoted).await;
    in_path(&mut seen, layer, secret).await;
    seen
}

/// A token in the path of a route that stands for several segments, and in a nested router.
async fn in_path(seen: &mut Seen, layer: IdempotencyLayer, secret: &str) {
    let policy = RoutePolicy::required().key_parameter("token");
    let layer = layer.route("PUT /uploads/{token+}", policy).unwrap();
    let token: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let path = format!("/uploads/{token}/1");
    for nest in ["", "/api"] {
        for status in [201, 500] {
            let mut request = request(secret, "k-1", "{}");
            *request.method_mut() = Method::PUT;
            *request.uri_mut() = path.parse().unwrap();
            let whole = OriginalUri(format!("{nest}{path}").parse().unwrap());
            request.extensions_mut().insert(whole);
            assert_eq!(send(seen, &layer, request, secret, status).await, 201);
        }
    }
}

/// An event as it is.
async fn event(seen: &mut Seen, layer: &IdempotencyLayer, secret: &str, key: &str) {
    let event = json!({
        "version": "2.0", "routeKey": "POST /orders", "rawPath": "/orders", "rawQueryString": "",
        "headers": { "idempotency-key": key, "x-tenant": format!("{secret}1"), "authorization": secret }, "cookies": [secret],
        "requestContext": { "stage": "$default", "http": { "method": "POST", "path": "/orders" } },
        "body": secret, "isBase64Encoded": false,
    });
    let event: ApiGatewayV2httpRequest = serde_json::from_value(event).unwrap();
    let shown = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = shown.clone();
    let service = layer.layer(service_fn(
        move |event: Incoming<ApiGatewayV2httpRequest>| {
            noted.lock().unwrap().push(format!("{event:?}"));
            std::future::ready(Ok::<_, Quoting>(ApiGatewayV2httpResponse::default()))
        },
    ));
    seen.debug(&service);
    service
        .oneshot(LambdaEvent::new(event, Context::default()))
        .await
        .unwrap();
    let shown = shown.lock().unwrap().clone();
    assert_eq!(shown.len(), 1);
    for text in shown {
        seen.text(text);
    }
}

#[test]
fn no_answer_of_the_layer_tells_a_secret() {
    let events = "http_request claimed released completed replayed mismatch refused store_failed";
    with_secrets(scenario, |seen| seen.assert_silent(events));
}
