//! Deliveries as requests over HTTP.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use lambda_idempotency::Claim;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_runtime::Context;
use tower::{Layer, ServiceExt, service_fn};

use super::{Trouble, Worker, payload, token};
use crate::scenario::Delivery;
use crate::world::What;

/// One request, to one worker.
pub async fn request(worker: Worker, number: usize, delivery: Delivery) -> What {
    let handler = worker.clone();
    let layer = IdempotencyLayer::unscoped(worker.once.clone());
    let service = layer.layer(service_fn(move |request: Request<_>| {
        let handler = handler.clone();
        async move {
            let claim = request
                .extensions()
                .get::<Claim>()
                .expect("a claim")
                .clone();
            let (status, text) = match handler.handle(number, delivery, claim).await {
                Ok(value) => (StatusCode::CREATED, mark(value)),
                // A refusal is an answer like any other; a failure is not.
                Err(Trouble::Permanent) => (StatusCode::UNPROCESSABLE_ENTITY, String::new()),
                Err(Trouble::Passing) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
            };
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    }));
    let mut request = Request::post("/charges")
        .header("idempotency-key", token(delivery.key))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(payload(&delivery))))
        .expect("a request");
    if let Some(left) = delivery.deadline {
        let mut context = Context::default();
        context.deadline = worker.deadline(left);
        request.extensions_mut().insert(context);
    }
    let Ok(answer) = AssertUnwindSafe(service.oneshot(request))
        .catch_unwind()
        .await
    else {
        return What::Panicked;
    };
    let answer = answer.expect("an answer");
    let replayed = answer.headers().contains_key("idempotent-replayed");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a body");
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    match (value(&text), replayed) {
        (Some(value), true) => What::Replayed(value),
        // The client doesn't learn whether it could be recorded.
        (Some(value), false) => What::Unrecorded(value),
        (None, _) => What::Refused(name_of(status)),
    }
}

/// As the report has it; any other answer is none that a client should get.
fn name_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        409 => "HTTP 409",
        422 => "HTTP 422",
        500 => "HTTP 500",
        503 => "HTTP 503",
        _ => "an unexpected answer",
    }
}

/// So that the value is found wherever the text is kept.
fn mark(value: usize) -> String {
    format!("<{value}>")
}

pub fn value(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once('<')?;
    let (digits, _) = rest.split_once('>')?;
    digits.parse().ok()
}
