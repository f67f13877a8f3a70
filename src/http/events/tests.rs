//! Tests of the module above.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::sync::{Arc, Mutex};

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use futures_util::FutureExt;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

use super::*;
use crate::Idempotency;
use crate::http::IdempotencyLayer;
use crate::protocol::key::RecordId;
use crate::protocol::record::{Found, RecordWrite};
use crate::store::transaction::{Admission, Commit, Committed, Refusal, Write};
use crate::store::{Answer, MemoryStore, Store, StoreError};

#[tokio::test]
async fn a_body_may_be_as_long_as_the_limit() {
    for (limit, fits) in [(4, true), (3, false)] {
        let mut event = ApiGatewayV2httpRequest::default();
        event.body = Some("four".to_owned());
        let context = Context::default();
        let (read, _) = EventBody(Box::new((event, context))).read(limit).await;
        assert_eq!(read.is_ok(), fits, "{limit}");
    }
}

/// A handler that has no room for a request, or is broken.
#[derive(Clone)]
struct Handlers(Poll<Result<(), &'static str>>);

impl Service<Incoming<ApiGatewayV2httpRequest>> for Handlers {
    type Response = ApiGatewayV2httpResponse;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0
    }

    fn call(&mut self, _: Incoming<ApiGatewayV2httpRequest>) -> Self::Future {
        ready(Ok(ApiGatewayV2httpResponse::default()))
    }
}

#[test]
fn a_function_is_ready_when_its_handler_is() {
    for state in [
        Poll::Pending,
        Poll::Ready(Ok(())),
        Poll::Ready(Err("broken")),
    ] {
        let builder = Idempotency::builder(MemoryStore::new()).namespace("shop");
        let layer = IdempotencyLayer::unscoped(builder.build().unwrap());
        let mut function = layer.layer(Handlers(state));
        let is_ready = poll_fn(|cx| {
            let ready =
                Service::<LambdaEvent<ApiGatewayV2httpRequest>>::poll_ready(&mut function, cx);
            Poll::Ready(Ok::<_, Infallible>(ready))
        });
        assert_eq!(is_ready.now_or_never().unwrap(), Ok(state));
    }
}

#[tokio::test]
async fn a_handler_keeps_its_state_where_nothing_is_guarded() {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(builder.build().unwrap());
    let mut calls = 200;
    let mut function = layer.layer(service_fn(move |_: Incoming<ApiGatewayV2httpRequest>| {
        calls += 1;
        ready(Ok::<_, Infallible>(response(calls)))
    }));
    for status in [201, 202] {
        let event = ApiGatewayV2httpRequest::default();
        let answer = function.call(LambdaEvent::new(event, Context::default()));
        assert_eq!(answer.await.unwrap().status_code, status);
    }
}

fn event() -> LambdaEvent<ApiGatewayV2httpRequest> {
    let event = r#"{"version": "2.0", "routeKey": "POST /orders", "rawPath": "/orders", "rawQueryString": "",
        "headers": {"idempotency-key": "cart-17"}, "body": "tea", "isBase64Encoded": false,
        "requestContext": {"stage": "$default", "routeKey": "POST /orders", "http": {"method": "POST", "path": "/orders"}}}"#;
    LambdaEvent::new(serde_json::from_str(event).unwrap(), Context::default())
}

#[tokio::test]
async fn the_hook_is_shown_why_a_handler_did_not_become_ready() {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let shown = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&shown);
    let layer = IdempotencyLayer::unscoped(builder.build().unwrap());
    let layer = layer.on_error(move |parts, error| {
        let line = format!("{}: {error}", parts.uri.path());
        seen.lock().unwrap().push(line);
    });
    let mut function = layer.layer(Handlers(Poll::Ready(Err("broken"))));
    assert_eq!(function.call(event()).await, Err("broken"));
    assert_eq!(*shown.lock().unwrap(), ["/orders: broken"]);
}

/// Refuses each transaction, because a condition of its first write failed.
#[derive(Debug)]
struct Refusing(MemoryStore);

impl Store for Refusing {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.0.write(write, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.0.load(id, deadline).await
    }

    fn admission(&self) -> Option<Admission> {
        Some(|_, _| Ok(()))
    }

    async fn commit(&self, _: Commit<'_>, _: Instant) -> Result<Committed, StoreError> {
        Ok(Committed::Refused(Refusal::new(0, None)))
    }
}

fn response(status: i64) -> ApiGatewayV2httpResponse {
    let mut response = ApiGatewayV2httpResponse::default();
    response.status_code = status;
    response.body = Some("as the handler made it".into());
    response.cookies = vec!["stock=low".to_owned()];
    response
}

/// Calls a service whose transaction is refused, and whose write has this answer to it.
async fn answered<A: std::any::Any + Send + Sync + Clone>(
    answer: A,
) -> Result<ApiGatewayV2httpResponse, &'static str> {
    let handler = service_fn(move |event: Incoming<ApiGatewayV2httpRequest>| {
        let answer = answer.clone();
        let write = Write::new("a business write").or_else(move |_| answer);
        let written = event.claim.unwrap().write(write);
        ready(written.map(|()| response(201)).map_err(|_| "not written"))
    });
    let builder = Idempotency::builder(Refusing(MemoryStore::new())).namespace("shop");
    let layer = IdempotencyLayer::unscoped(builder.build().unwrap());
    layer.layer(handler).oneshot(event()).await
}

#[tokio::test]
async fn a_failed_condition_is_answered_with_the_handlers_own_response_or_error() {
    assert_eq!(answered(response(409)).await, Ok(response(409)));
    assert_eq!(answered("sold out").await, Err("sold out"));
    let lost = answered(17_u8).await.unwrap();
    assert_eq!(lost.status_code, 409, "an answer of another type is lost");
    assert_ne!(lost, response(409));
}
