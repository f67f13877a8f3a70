//! Whatever stands in a final record: a client gets the answer that it describes, or is told that it can't be read; the handler
//! doesn't run.

use std::convert::Infallible;

use data_encoding::BASE64;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use lambda_http::Body;
use lambda_idempotency::Fingerprint;
use lambda_idempotency::http::IdempotencyLayer;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use super::table::{Item, Table};
use super::{NOW, block_on, engine};

async fn never(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    panic!("the handler must not run")
}

/// The first byte says whether the record is a success or a failure, the others are its outcome.
///
/// # Panics
///
/// Where the property doesn't hold.
pub fn check(data: &[u8]) {
    let Some((first, outcome)) = data.split_first() else {
        return;
    };
    if let Ok(outcome) = std::str::from_utf8(outcome) {
        block_on(judge(first % 2 == 0, outcome));
    }
}

async fn judge(is_success: bool, outcome: &str) {
    let status = if is_success { "COMPLETED" } else { "FAILED" };
    let item = json!({
        "id": { "S": "any" },
        "status": { "S": status },
        "expiration": { "N": (NOW.0 / 1_000 + 60).to_string() },
        "data": { "S": outcome },
    });
    let item: Item = item
        .as_object()
        .expect("a map")
        .clone()
        .into_iter()
        .collect();
    let table = Table::holding(item.clone());
    let layer = IdempotencyLayer::new(engine(table.store()));
    let service = layer.layer(service_fn(never));
    let request = Request::post("/orders").header("idempotency-key", "k-1");
    let answer = service
        .oneshot(request.body(Body::Empty).expect("a request"))
        .await
        .expect("an answer");
    assert_eq!(table.item(), Some(item), "it is left alone");

    let (parts, body) = answer.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let is_replay = parts
        .headers
        .get("idempotent-replayed")
        .is_some_and(|value| value == "true");
    let expected = is_success.then(|| Expected::of(outcome)).flatten();
    match expected {
        Some(expected) if is_replay => {
            assert_eq!(parts.status.as_u16(), expected.status);
            assert_eq!(body, expected.body);
            for (name, value) in &expected.headers {
                let values: Vec<_> = parts.headers.get_all(name).iter().collect();
                assert!(values.contains(&value), "{name} is missing");
            }
        }
        _ => {
            let problem: Value = serde_json::from_slice(&body).expect("a problem");
            assert_eq!(problem["status"], parts.status.as_u16());
            assert!(
                expected.is_none(),
                "{outcome:?} is an answer, and was refused: {problem}"
            );
        }
    }
}

/// What an outcome's text describes.
struct Expected {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Expected {
    fn of(outcome: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(outcome).ok()?;
        // One that repeats a name has no one meaning.
        if Fingerprint::json(outcome.as_bytes()) == Fingerprint::bytes(outcome.as_bytes()) {
            return None;
        }
        let object = value.as_object()?;
        let status = u16::try_from(object.get("status")?.as_u64()?).ok()?;
        http::StatusCode::from_u16(status).ok()?;
        let mut headers = HeaderMap::new();
        for header in object.get("headers")?.as_array()? {
            let [name, value] = &header.as_array()?[..] else {
                return None;
            };
            let name: http::HeaderName = name.as_str()?.parse().ok()?;
            let value = http::HeaderValue::from_bytes(&octets(value)?).ok()?;
            headers.try_append(name, value).ok()?;
        }
        Some(Self {
            status,
            headers,
            body: octets(object.get("body")?)?,
        })
    }
}

/// Text, or what isn't text in base64.
fn octets(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        other => BASE64
            .decode(other.as_object()?.get("base64")?.as_str()?.as_bytes())
            .ok(),
    }
}
