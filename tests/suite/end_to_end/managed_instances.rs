//! The functions on a Managed Instance: one process serves many invocations at once, nothing ends what is late, and SIGTERM comes at
//! the end.
//!
//! `MANAGED_EVENTS` is the number of events of each function; `make verify` runs 2,000.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};

use super::payments_worker::batch;
use crate::support::gateway::{Gateway, Response, order};
use crate::support::lambda::{Function, PATIENCE, Reply, Sandbox, number, text};
use crate::support::proxy::Meddler;
use crate::support::shards::{DataStream, event};
use crate::support::{Fault, Proxy};

/// Invocations that a process serves at once.
const CONCURRENCY: &str = "64";
/// Events that are on their way at once: fewer, since those that are late go on beside them.
const SENT_AT_ONCE: usize = 32;
const EVENTS: usize = 50;

/// The deadline of an event's first delivery, in which no handler ends that [pauses](PAUSE).
const SHORT: Duration = Duration::from_secs(1);
const PAUSE: &str = "1500";
/// The deadline of a delivery that an event's source repeats.
const LONG: Duration = Duration::from_mins(5);
const BETWEEN_DELIVERIES: Duration = Duration::from_millis(200);

fn events() -> usize {
    let given = std::env::var("MANAGED_EVENTS");
    given.map_or(EVENTS, |text| {
        text.parse().expect("MANAGED_EVENTS is a number")
    })
}

/// The function as a Managed Instance runs it.
fn managed(function: &Function) -> Function {
    function.with("AWS_LAMBDA_MAX_CONCURRENCY", CONCURRENCY)
}

/// Returns whether a reply lets the source of an event take it as done.
fn is_done(reply: &Reply) -> bool {
    let Reply::Answered(answer) = reply else {
        return false;
    };
    let failures = answer["batchItemFailures"].as_array();
    failures.is_none_or(Vec::is_empty)
        && answer["statusCode"]
            .as_u64()
            .is_none_or(|status| status < 300)
}

/// Delivers an event until it is done with, as its source does.
async fn deliver(sandbox: &Sandbox, event: Value, first: Duration) {
    let mut time = first;
    loop {
        let invocation = sandbox.begin_within(event.clone(), time).await;
        if is_done(&sandbox.told(&invocation).await) {
            return;
        }
        time = LONG;
        tokio::time::sleep(BETWEEN_DELIVERIES).await;
    }
}

/// Delivers so many events, 20 % of them twice, and ends the process. Returns what it wrote.
async fn serve(function: &Function, event: impl Fn(usize) -> Value, first: Duration) -> String {
    let mut sandbox = managed(function).start().await;
    let mut numbers: Vec<_> = (0..events()).chain(0..events() / 5).collect();
    fastrand::shuffle(&mut numbers);
    let deliveries = stream::iter(numbers)
        .for_each_concurrent(SENT_AT_ONCE, |n| deliver(&sandbox, event(n), first));
    let longest = PATIENCE * u32::try_from(1 + events() / EVENTS).unwrap();
    let served = tokio::time::timeout(longest, deliveries).await;
    served.expect("each event is done with");
    let lines = sandbox.lines();
    sandbox.tell_to_end();
    sandbox.ended().await;
    for record in function.records().await {
        assert_eq!(text(&record, "status"), "COMPLETED", "{record:?}");
    }
    lines
}

/// Asserts one effect for each event, told apart by this attribute.
async fn assert_one_effect_each(function: &Function, attribute: &str) {
    let effects = function.effects().await;
    let distinct: BTreeSet<_> = effects
        .iter()
        .map(|effect| text(effect, attribute))
        .collect();
    assert_eq!(distinct.len(), events(), "lost");
    assert_eq!(effects.len(), events(), "second effects");
}

fn assert_outlived(lines: &str) {
    assert!(
        lines.contains(r#""event":"deadline_outlived""#),
        "no handler outlived its deadline"
    );
}

#[tokio::test]
async fn payments_that_outlive_their_deadlines_are_made_once() {
    let function = Function::payments_worker().await;
    let payment = |n| {
        let id = format!("pay-{n}");
        let body =
            json!({ "payment_id": id, "order_id": "order-1", "amount": 5_980, "currency": "EUR" });
        batch(&[body.to_string()])
    };
    let slow = function.with("PAYMENT_DELAY_MS", PAUSE);
    assert_outlived(&serve(&slow, payment, SHORT).await);
    assert_one_effect_each(&function, "payment_id").await;
}

#[tokio::test]
async fn settlements_that_outlive_their_deadlines_are_paid_out_once() {
    let function = Function::settlements().await;
    let settlement =
        |n| json!({ "settlement_id": format!("s-{n}"), "merchant": "m-1", "amount": 1250 });
    let slow = function.with("PAYMENT_DELAY_MS", PAUSE);
    assert_outlived(&serve(&slow, settlement, SHORT).await);
    assert_one_effect_each(&function, "settlement_id").await;
}

#[tokio::test]
async fn movements_that_outlive_their_deadlines_are_booked_once() {
    let function = Function::stock_movements().await;
    let movement = |n| {
        let mut stream = DataStream::new("movements", 1);
        let data = json!({ "movement_id": format!("m-{n}"), "sku": "tea", "delta": 1 });
        stream.put("tea", &data);
        event(&stream.shards[0])
    };
    let slow = function.with("MOVEMENT_DELAY_MS", PAUSE);
    assert_outlived(&serve(&slow, movement, SHORT).await);
    assert_one_effect_each(&function, "movement_id").await;
}

fn order_of(n: usize) -> Value {
    let mut order = order();
    order["sku"] = json!(format!("KETTLE-{n}"));
    Gateway::Http.post(&[("Idempotency-Key", &format!("cart-{n}"))], &order)
}

#[tokio::test]
async fn orders_whose_deadlines_are_over_when_they_come_are_placed_once() {
    let function = Function::orders_api().await;
    serve(&function, order_of, Duration::from_millis(1)).await;
    assert_one_effect_each(&function, "sku").await;
}

/// Holds what a claim commits until the test lets it go.
struct StoppingCommits;

impl Meddler for StoppingCommits {
    fn fault(&self, operation: &str, _: &Value) -> Fault {
        if operation == "TransactWriteItems" {
            Fault::Stop
        } else {
            Fault::Pass
        }
    }
}

#[tokio::test]
async fn a_process_that_is_told_to_end_places_the_order_under_way_and_admits_no_other() {
    let function = Function::orders_api().await;
    let proxy = Proxy::meddled_with(function.server(), Arc::new(StoppingCommits)).await;
    let mut sandbox = managed(&function.behind(&proxy)).start().await;
    let under_way = sandbox.begin(order_of(0)).await;
    function.claimed_by_attempt(1).await;
    proxy.held().await;

    sandbox.tell_to_end();
    // Orders are admitted until the signal has arrived: those wait for their commit, too.
    let mut orders = 1;
    loop {
        let other = sandbox.begin(order_of(orders)).await;
        match sandbox.finish_within(&other, SHORT).await {
            None => orders += 1,
            Some(refused) => {
                Response::of(refused).assert_problem(503);
                break;
            }
        }
    }
    proxy.let_go();
    sandbox.ended().await;
    drop(under_way);

    assert_eq!(function.effects().await.len(), orders);
    let records = function.records().await;
    assert_eq!(records.len(), orders);
    for record in &records {
        assert_eq!(text(record, "status"), "COMPLETED");
        assert_eq!(number(record, "attempt"), 1);
    }
}
