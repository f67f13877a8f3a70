//! `checkout`, killed before and behind each of its requests: at the end all effects stand, or each that was confirmed is undone, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::payments_worker::{NONE, failed};
use crate::support::lambda::{Function, PATIENCE, number, text};
use crate::support::proxy::Meddler;
use crate::support::server::unique;
use crate::support::{Fault, Proxy, events};

/// As many crash points at once: each has processes and tables of its own.
const SIDE_BY_SIDE: usize = 4;

/// Returns the delivery of the message that the gateway puts into the queue for a request. Each has its own id.
fn delivery(order: &Value) -> Value {
    json!({ "Records": [events::message(&unique("m"), order.to_string())] })
}

/// Stops the request of this number, before it applies or behind.
struct StopAt {
    number: usize,
    applies: bool,
    seen: AtomicUsize,
}

impl Meddler for StopAt {
    fn fault(&self, _: &str, _: &Value) -> Fault {
        if self.seen.fetch_add(1, Ordering::Relaxed) == self.number {
            let applies = self.applies;
            return Fault::Park { applies };
        }
        Fault::Pass
    }
}

/// Loses the reply to the first charge.
#[derive(Default)]
struct LoseCharge(AtomicUsize);

impl Meddler for LoseCharge {
    fn fault(&self, operation: &str, request: &Value) -> Fault {
        let is_charge = request["ExpressionAttributeValues"][":what"]["S"] == "charge";
        if operation == "UpdateItem" && is_charge && self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            return Fault::LoseReply;
        }
        Fault::Pass
    }
}

/// Loses each reply to a reservation, until it is told to stop.
struct LoseReservations(AtomicBool);

impl Meddler for LoseReservations {
    fn fault(&self, _: &str, request: &Value) -> Fault {
        let is_reservation = request["Item"]["what"]["S"] == "reserve";
        if is_reservation && self.0.load(Ordering::Relaxed) {
            return Fault::LoseReply;
        }
        Fault::Pass
    }
}

/// Returns how often each thing was done, as the warehouse, the bank and the carrier have it.
async fn done(function: &Function) -> BTreeMap<String, i64> {
    let mut done = BTreeMap::new();
    for effect in function.effects().await {
        *done.entry(text(&effect, "what").to_owned()).or_default() += number(&effect, "times");
    }
    done
}

/// Delivers the order until its message leaves the queue, each time behind the lease of the attempt before. Returns what the
/// function wrote.
async fn deliver(function: &Function, order: &Value, at: (usize, bool)) -> String {
    let mut sandbox = function.start().await;
    for _ in 0..3 {
        if failed(sandbox.invoke(delivery(order)).await) == NONE {
            return sandbox.lines();
        }
        function.end_leases_within(Duration::from_hours(1)).await;
    }
    panic!("{at:?}: it never left the queue");
}

async fn survives_each_crash(order: Value, expected: &[&str]) {
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|what| ((*what).to_owned(), 1))
        .collect();
    let (proxy, function) = Function::checkout().await.behind_a_proxy().await;
    deliver(&function, &order, (0, false)).await;
    assert_eq!(done(&function).await, expected);
    let requests = proxy.take_total();
    assert!(requests > 8, "{requests}");

    let points = (0..requests).flat_map(|number| [(number, false), (number, true)]);
    let crashes = stream::iter(points).map(|at| {
        let (order, expected) = (&order, &expected);
        async move {
            let function = Function::checkout().await;
            let (number, applies) = at;
            let stop = StopAt {
                number,
                applies,
                seen: AtomicUsize::new(0),
            };
            let proxy = Proxy::meddled_with(function.server(), Arc::new(stop)).await;
            let mut doomed = function.behind(&proxy).start().await;
            doomed.begin(delivery(order)).await;
            let parked = tokio::time::timeout(PATIENCE, proxy.parked()).await;
            assert!(parked.is_ok(), "{at:?}: it never came there");
            doomed.kill();
            deliver(&function, order, at).await;
            assert_eq!(done(&function).await, *expected, "{at:?}");
            assert_eq!(text(&function.record().await, "status"), "COMPLETED");
            // The client asks again: another message, the same checkout.
            deliver(&function, order, at).await;
            assert_eq!(done(&function).await, *expected, "{at:?}");
        }
    });
    crashes.buffer_unordered(SIDE_BY_SIDE).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_shipped_once_wherever_its_worker_dies() {
    let order = json!({ "order_id": "o-1", "quantity": 2, "amount": 1_250 });
    survives_each_crash(order, &["reserve", "charge", "ship"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_no_carrier_takes_is_undone_once_wherever_its_worker_dies() {
    let order = json!({ "order_id": "o-1", "quantity": 101, "amount": 1_250 });
    survives_each_crash(order, &["reserve", "charge", "refund", "release"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_card_is_declined_is_undone_once_wherever_its_worker_dies() {
    let order = json!({ "order_id": "o-1", "quantity": 2, "amount": 1_000_001 });
    survives_each_crash(order, &["reserve", "release"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_whose_reply_is_lost_is_not_repeated() {
    let function = Function::checkout().await;
    let lossy = Arc::new(LoseCharge::default());
    let proxy = Proxy::meddled_with(function.server(), lossy.clone()).await;
    let order = json!({ "order_id": "o-1", "quantity": 2, "amount": 1_250 });
    let lines = deliver(&function.behind(&proxy), &order, (0, false)).await;
    assert!(lines.contains("not checked out"), "{lines}");
    let expected = ["reserve", "charge", "ship"].map(|what| (what.to_owned(), 1));
    assert_eq!(done(&function).await, BTreeMap::from(expected));
    assert_eq!(lossy.0.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_whose_replies_are_lost_may_have_happened_says_its_record() {
    let function = Function::checkout().await;
    let lossy = Arc::new(LoseReservations(AtomicBool::new(true)));
    let proxy = Proxy::meddled_with(function.server(), lossy.clone()).await;
    let order = json!({ "order_id": "o-1", "quantity": 2, "amount": 1_250 });
    let behind = function.behind(&proxy);
    let mut sandbox = behind.start().await;
    assert_eq!(failed(sandbox.invoke(delivery(&order)).await).len(), 1);
    let record = function.record().await;
    let reservation = record["step:reserve"].as_m().expect("an entry");
    assert_eq!(text(reservation, "state"), "PENDING");

    lossy.0.store(false, Ordering::Relaxed);
    deliver(&behind, &order, (0, false)).await;
    let expected = ["reserve", "charge", "ship"].map(|what| (what.to_owned(), 1));
    assert_eq!(done(&function).await, BTreeMap::from(expected));
}
