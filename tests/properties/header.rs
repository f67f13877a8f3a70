//! A header names one key or is refused, as another parser of structured fields has it; and what is refused is not echoed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{LazyLock, Mutex};

use http::header::HeaderValue;
use http::{Request, Response};
use http_body_util::BodyExt;
use lambda_http::Body;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Claim, Idempotency, Key};
use sfv::{BareItem, Item, Parser};
use tower::{Layer, ServiceExt, service_fn};

use super::{block_on, engine};

/// Values are parted by line feeds, which no header can hold.
///
/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let values = data
        .split(|byte| *byte == b'\n')
        .take(3)
        .map(HeaderValue::from_bytes);
    let Ok(values) = values.collect::<Result<Vec<_>, _>>() else {
        return;
    };
    for is_strict in [false, true] {
        block_on(judge(&values, is_strict));
    }
}

async fn judge(values: &[HeaderValue], is_strict: bool) {
    let store = MemoryStore::new();
    let once = engine(store.clone());
    let answer = send(&once, values, is_strict).await;
    let Some(token) = token(values, is_strict) else {
        assert_eq!(answer.ran_as, None, "{values:?} names no key");
        assert_eq!(answer.status, 400);
        assert_is_not_echoed(&answer.body);
        assert!(store.is_empty());
        return;
    };
    let key = Key::new("POST /orders", token.as_str());
    let expected = once.record_id(&key).expect("a usable key");
    assert_eq!(
        answer.ran_as.as_deref(),
        Some(expected.hash()),
        "{values:?}"
    );

    let quoted = format!("\"{}\"", token.replace('\\', "\\\\").replace('"', "\\\""));
    let quoted = HeaderValue::from_str(&quoted).expect("printable text");
    let again = send(&once, &[quoted], is_strict).await;
    assert_eq!(
        (again.ran_as, again.status),
        (None, 200),
        "the same key in quotes"
    );
}

/// The token as the project's documentation and another parser have it; `None` where the header is to be refused.
fn token(values: &[HeaderValue], is_strict: bool) -> Option<String> {
    let [value] = values else { return None };
    let text = value.to_str().ok()?.trim_matches([' ', '\t']);
    if text.contains('\t') {
        return None;
    }
    let token = if text.starts_with('"') {
        match Parser::new(text).parse::<Item>().ok()? {
            Item {
                bare_item: BareItem::String(text),
                params,
            } if params.is_empty() => text.into(),
            _ => return None,
        }
    } else if is_strict || text.contains([',', ';']) {
        return None;
    } else {
        text.to_owned()
    };
    (1..=255).contains(&token.len()).then_some(token)
}

struct Answer {
    /// The hash of the key that the handler ran under.
    ran_as: Option<String>,
    status: u16,
    body: Vec<u8>,
}

async fn send(once: &Idempotency, values: &[HeaderValue], is_strict: bool) -> Answer {
    let ran_as = Mutex::new(None);
    let layer = IdempotencyLayer::unscoped(once.clone());
    let layer = layer.settings(|settings| settings.strict = is_strict);
    let hash = std::sync::Arc::new(ran_as);
    let seen = hash.clone();
    let service = layer.layer(service_fn(move |request: Request<Body>| {
        let claim = request.extensions().get::<Claim>();
        *seen.lock().expect("one at a time") = claim.map(|claim| claim.key_hash().to_owned());
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::Empty)))
    }));
    let mut request = Request::post("/orders")
        .body(Body::Empty)
        .expect("a request");
    for value in values {
        request
            .headers_mut()
            .append("idempotency-key", value.clone());
    }
    let response = service.oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes()
        .to_vec();
    let ran_as = hash.lock().expect("one at a time").take();
    Answer {
        ran_as,
        status,
        body,
    }
}

/// Asserts that a problem's text depends on its code alone.
fn assert_is_not_echoed(body: &[u8]) {
    static SEEN: LazyLock<Mutex<HashMap<String, Vec<u8>>>> = LazyLock::new(Mutex::default);
    let problem: serde_json::Value = serde_json::from_slice(body).expect("a problem");
    let code = problem["code"].as_str().expect("a code").to_owned();
    let mut seen = SEEN.lock().expect("one at a time");
    let first = seen.entry(code).or_insert_with(|| body.to_vec());
    assert_eq!(first, body);
}
