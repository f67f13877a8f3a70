//! A client of an HTTP API: it asks with the same key until it has an answer that it may keep.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::judge::orders::Answer;
use crate::lane::Lane;
use crate::night::{AGAIN, DUPLICATE, FIRST, Night, between};
use crate::pool::{CALM_TIMEOUT, TIMEOUT};
use crate::support::gateway::{Gateway, Response};
use crate::support::lambda::Reply;

/// A gateway waits so much longer than the function may take.
const GATEWAY: Duration = Duration::from_millis(200);

/// Both versions of the function find the same keys by it.
pub const TENANT: (&str, &str) = ("X-Tenant-Id", "chaos");

/// The result of a client's order.
#[derive(Clone, Debug)]
pub enum Told {
    Placed(Answer),
    /// The key stands for another order.
    Mismatch,
    Nothing,
    /// An answer that it should never get.
    Nonsense(String),
}

pub struct Client {
    pub key: String,
    pub order: Value,
    pub dice: Rng,
}

impl Client {
    /// `is_first` where nobody has asked with this key before.
    pub async fn ask(mut self, night: Arc<Night>, lane: Arc<Lane>, is_first: bool) -> Told {
        let mut kind = if is_first { FIRST } else { DUPLICATE };
        // A client goes on asking, once nothing disturbs it any more.
        let mut until = Instant::now() + night.patience;
        loop {
            night.report.count(&format!("deliveries: {}", lane.name));
            night.report.count(std::mem::replace(&mut kind, AGAIN));
            let event = Gateway::Http.post(&[("Idempotency-Key", &self.key), TENANT], &self.order);
            let time = if night.is_troubled() {
                TIMEOUT
            } else {
                CALM_TIMEOUT
            };
            let reply = tokio::time::timeout(time + GATEWAY, lane.pool.invoke(event)).await;
            if let Ok(reply @ Reply::Answered(_)) = reply
                && let Some(told) = told(&Response::of(reply))
            {
                return told;
            }
            if night.is_troubled() {
                until = Instant::now() + night.patience;
            }
            if Instant::now() > until {
                return Told::Nothing;
            }
            sleep(between(&mut self.dice, 100, 900)).await;
        }
    }
}

/// The problems after which the same request may be sent again.
const AGAIN_LATER: [&str; 7] = [
    "in-flight",
    "lease-lost",
    "not-committed",
    "outcome-unknown",
    "store-unavailable",
    "too-late",
    "unrecorded",
];

/// `None` where it is to ask again.
fn told(response: &Response) -> Option<Told> {
    let at = SystemTime::now();
    let body = response.body();
    match (response.status, body["code"].as_str()) {
        (201, _) => Some(Told::Placed(Answer { body, at })),
        (422, Some("mismatch")) => Some(Told::Mismatch),
        (_, Some(code)) if AGAIN_LATER.contains(&code) => None,
        (status, _) => Some(Told::Nonsense(format!("{status}: {body}"))),
    }
}
