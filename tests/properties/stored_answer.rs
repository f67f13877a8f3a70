//! From any final record, a client gets the answer that it describes, or is told that it can't be read; the handler doesn't run.

use std::convert::Infallible;
use std::fmt;

use data_encoding::BASE64;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use lambda_http::Body;
use lambda_idempotency::http::IdempotencyLayer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
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
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let Some((first, outcome)) = data.split_first() else {
        return;
    };
    // Readers stop at 128 levels, and don't count them alike.
    let is_deep = outcome.iter().filter(|byte| b"[{".contains(byte)).count() > 100;
    if let Ok(outcome) = std::str::from_utf8(outcome)
        && !is_deep
    {
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
    let layer = IdempotencyLayer::unscoped(engine(table.store()));
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

/// The answer that an outcome's text describes: three members, each once, and a fourth that may be missing. Other members are not read,
/// so they may have no meaning, such as a number that no double holds, or a name that repeats.
struct Expected {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Expected {
    fn of(outcome: &str) -> Option<Self> {
        let [status, listed, body] = without_the_fourth(outcome)?;
        let status: Value = serde_json::from_str(status.get()).ok()?;
        let status = u16::try_from(status.as_u64()?).ok()?;
        http::StatusCode::from_u16(status).ok()?;
        let mut headers = HeaderMap::new();
        for header in elements(listed.get())? {
            let [name, value] = elements(header.get())?.try_into().ok()?;
            let name: String = serde_json::from_str(name.get()).ok()?;
            let name: http::HeaderName = name.parse().ok()?;
            let value = http::HeaderValue::from_bytes(&octets(value.get())?).ok()?;
            headers.try_append(name, value).ok()?;
        }
        let body = octets(body.get())?;
        Some(Self {
            status,
            headers,
            body,
        })
    }
}

/// The first three members. The fourth is a boolean, which says nothing to a client that accepts any coding.
fn without_the_fourth(outcome: &str) -> Option<[&RawValue; 3]> {
    let fourth = if let Some(mut elements) = elements(outcome) {
        let fourth = elements.split_off(elements.len().min(3));
        return are_one_boolean(&fourth).then(|| elements.try_into().ok())?;
    } else {
        let Members(all) = serde_json::from_str(outcome).ok()?;
        let named = all.into_iter().filter(|(name, _)| name == "any_coding");
        named.map(|(_, value)| value).collect::<Vec<_>>()
    };
    are_one_boolean(&fourth).then(|| members(outcome, ["status", "headers", "body"]))?
}

/// One at most.
fn are_one_boolean(values: &[&RawValue]) -> bool {
    values.len() <= 1
        && values
            .iter()
            .all(|value| matches!(value.get(), "true" | "false"))
}

/// The members of an object that have these names, or the elements of an array of as many.
fn members<'a, const N: usize>(json: &'a str, names: [&str; N]) -> Option<[&'a RawValue; N]> {
    if let Some(elements) = elements(json) {
        return elements.try_into().ok();
    }
    let Members(all) = serde_json::from_str(json).ok()?;
    let mut found = Vec::new();
    for wanted in names {
        let mut alike = all.iter().filter(|(name, _)| name == wanted);
        let (Some((_, value)), None) = (alike.next(), alike.next()) else {
            return None;
        };
        found.push(*value);
    }
    found.try_into().ok()
}

fn elements(json: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(json).ok()
}

/// Every member of an object, as it is written; names may repeat.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Text, or what isn't text in base64. This is read as a whole: here, all of it has a meaning.
fn octets(json: &str) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_str(json).ok()?;
    if let Value::String(text) = value {
        return Some(text.into_bytes());
    }
    let [base64] = members(json, ["base64"])?;
    let base64: String = serde_json::from_str(base64.get()).ok()?;
    BASE64.decode(base64.as_bytes()).ok()
}
