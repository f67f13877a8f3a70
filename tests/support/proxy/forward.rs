//! To the server and back, as it is, or as whoever meddles with the wire or meters it wants it.

use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::{Cut, Exchange, Reply, State};

pub(super) async fn forward(exchange: Exchange) -> Reply {
    let Exchange {
        state,
        client,
        operation,
        mut parts,
        mut body,
    } = exchange;
    let is_metered = state.units.lock().expect("not poisoned").is_some();
    let is_read = is_metered || state.meddler.is_some();
    let mut asked = Value::Null;
    if is_read {
        asked = serde_json::from_slice(&body).map_err(|_| Cut)?;
        if let Some(meddler) = &state.meddler {
            asked = meddler.rewrite(&operation, asked);
        }
        if is_metered {
            asked["ReturnConsumedCapacity"] = json!("TOTAL");
        }
        body = asked.to_string().into();
    }
    parts.headers.remove(CONTENT_LENGTH);
    parts.uri = format!("{}{}", state.upstream, parts.uri.path())
        .parse()
        .map_err(|_| Cut)?;
    let reply = client
        .request(Request::from_parts(parts, Full::new(body)))
        .await
        .map_err(|_| Cut)?;
    let (mut parts, body) = reply.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    if is_read {
        let reply = serde_json::from_slice(&body).map_err(|_| Cut)?;
        if let Some(meddler) = &state.meddler {
            meddler.answered(&operation, &asked, parts.status.as_u16(), &reply);
        }
        state.meter(&reply);
    }
    Ok(Response::from_parts(parts, Full::new(body)))
}

impl State {
    fn meter(&self, reply: &Value) {
        let consumed = &reply["ConsumedCapacity"];
        let all = consumed
            .as_array()
            .map_or(std::slice::from_ref(consumed), Vec::as_slice);
        let units: f64 = all
            .iter()
            .filter_map(|one| one["CapacityUnits"].as_f64())
            .sum();
        if let Some(sum) = self.units.lock().expect("not poisoned").as_mut() {
            *sum += units;
        }
    }
}
