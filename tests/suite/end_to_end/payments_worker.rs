//! `payments-worker` behind SQS: a payment that is delivered again isn't made again, whatever happens to the process.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::lambda::{Function, Reply, Sandbox, text};
use crate::support::provider::Provider;

/// Longer than any test: a payment that sleeps so long before its effect never gets there.
const FOREVER: Duration = Duration::from_hours(1);

pub fn payment(id: &str) -> String {
    json!({ "payment_id": id, "order_id": "order-1", "amount": 5_980, "currency": "EUR" })
        .to_string()
}

/// A batch of these bodies; the messages are called `message-0`, `message-1`, …
pub fn batch(bodies: &[String]) -> Value {
    let fixture = include_str!("../../fixtures/e2e-sqs.json");
    let mut event: Value = serde_json::from_str(fixture).unwrap();
    let template = event["Records"][0].clone();
    let record = |(position, body): (usize, &String)| {
        let mut record = template.clone();
        record["messageId"] = json!(format!("message-{position}"));
        record["body"] = json!(body);
        record
    };
    event["Records"] = bodies.iter().enumerate().map(record).collect();
    event
}

pub fn one_payment() -> Value {
    batch(&[payment("pay-1")])
}

/// The messages that SQS will deliver again.
pub fn failed(reply: Reply) -> Vec<String> {
    let answer = reply.answer();
    let failures = answer["batchItemFailures"].as_array().expect("a list");
    failures
        .iter()
        .map(|failure| {
            failure["itemIdentifier"]
                .as_str()
                .expect("an id")
                .to_owned()
        })
        .collect()
}

pub const NONE: [&str; 0] = [];

#[tokio::test]
async fn each_payment_in_a_batch_is_made_once_and_a_redelivery_makes_none() {
    let function = Function::payments_worker().await;
    let mut sandbox = function.start().await;
    let event = batch(&[
        payment("pay-1"),
        payment("pay-2"),
        payment("pay-1"),
        payment("pay-3"),
        payment("pay-2"),
    ]);

    assert_eq!(failed(sandbox.invoke(event.clone()).await), NONE);
    let entries = function.effects().await;
    let mut made: Vec<_> = entries
        .iter()
        .map(|entry| text(entry, "payment_id"))
        .collect();
    made.sort_unstable();
    assert_eq!(made, ["pay-1", "pay-2", "pay-3"]);

    assert_eq!(failed(sandbox.invoke(event.clone()).await), NONE);
    assert_eq!(failed(function.start().await.invoke(event).await), NONE);
    assert_eq!(function.effects().await.len(), 3);
}

#[tokio::test]
async fn a_message_that_cannot_be_decoded_fails_alone() {
    let function = Function::payments_worker().await;
    let mut sandbox = function.start().await;
    let event = batch(&[
        payment("pay-1"),
        "{\"payment_id\": ".to_owned(),
        payment("pay-2"),
    ]);

    assert_eq!(failed(sandbox.invoke(event).await), ["message-1"]);
    assert_eq!(function.effects().await.len(), 2);
}

#[tokio::test]
async fn of_two_processes_with_one_payment_one_makes_it() {
    let (proxy, function) = Function::payments_worker()
        .await
        .with_stopped_effects()
        .await;
    let (mut one, mut other) = tokio::join!(function.start(), function.start());

    // The process that is refused answers first.
    let invoke = async |sandbox: &mut Sandbox| {
        let reply = failed(sandbox.invoke(one_payment()).await);
        proxy.let_go();
        reply
    };
    let (first, second) = tokio::join!(invoke(&mut one), invoke(&mut other));
    let mut loser = if first.is_empty() { other } else { one };
    let mut failures = [first, second];
    failures.sort_unstable();
    assert_eq!(failures, [vec![], vec!["message-0".to_owned()]]);
    assert_eq!(function.effects().await.len(), 1);

    assert_eq!(failed(loser.invoke(one_payment()).await), NONE);
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn a_handler_that_hangs_is_reported_and_a_retry_runs() {
    let function = Function::payments_worker().await;
    let soon = function.slow(FOREVER).timeout(Duration::from_secs(3));
    let mut slow = soon.start().await;
    let mut successor = function.start().await;

    let invocation = slow.begin(one_payment()).await;
    assert_eq!(failed(slow.finish_late(invocation).await), ["message-0"]);
    assert!(function.effects().await.is_empty());

    // On a busy machine there may be no time left for the release; then the lease has to be over.
    while failed(successor.invoke(one_payment()).await) != NONE {}
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn a_process_that_wakes_past_its_lease_writes_nothing_over() {
    let function = Function::payments_worker().await;
    let (wire, stopped) = function.with_stopped_effects().await;
    let mut stale = stopped.start().await;
    let mut successor = function.start().await;

    let invocation = stale.begin(one_payment()).await;
    let left = function.claimed_by_attempt(1).await;
    stale.stop();
    function.end_lease(&left).await;
    assert_eq!(failed(successor.invoke(one_payment()).await), NONE);
    let completed = function.record().await;
    assert_eq!(text(&completed, "status"), "COMPLETED");
    assert_ne!(text(&completed, "owner"), text(&left, "owner"));

    stale.go_on();
    wire.let_go();
    let reply = failed(stale.finish(invocation).await);
    assert_eq!(reply, NONE, "the payment is done, by its successor");
    assert_eq!(
        function.record().await,
        completed,
        "nothing was written over"
    );
    // The effect itself has no fence.
    assert!((1..=2).contains(&function.effects().await.len()));
    assert_eq!(failed(successor.invoke(one_payment()).await), NONE);
}

#[tokio::test]
async fn a_process_that_wakes_while_its_successor_runs_reports_a_failure() {
    let function = Function::payments_worker().await;
    let (wire, stopped) = function.with_stopped_effects().await;
    let (next_wire, next) = function.with_stopped_effects().await;
    let mut stale = stopped.start().await;
    let mut successor = next.start().await;

    let invocation = stale.begin(one_payment()).await;
    let left = function.claimed_by_attempt(1).await;
    stale.stop();
    function.end_lease(&left).await;
    let running = successor.begin(one_payment()).await;
    let taken_over = function.claimed_by_attempt(2).await;

    stale.go_on();
    wire.let_go();
    assert_eq!(failed(stale.finish(invocation).await), ["message-0"]);
    assert_eq!(
        function.record().await,
        taken_over,
        "the claim is the successor's"
    );

    next_wire.let_go();
    assert_eq!(failed(successor.finish(running).await), NONE);
    let record = function.record().await;
    assert_eq!(text(&record, "status"), "COMPLETED");
    assert_eq!(text(&record, "owner"), text(&taken_over, "owner"));
}

#[tokio::test]
async fn an_entry_stays_when_its_record_has_expired_and_another_payment_has_its_id() {
    let provider = Provider::that_honours_keys().await;
    let function = Function::payments_worker().await.with_provider(&provider);
    let mut sandbox = function.start().await;
    assert_eq!(failed(sandbox.invoke(one_payment()).await), NONE);
    let entries = function.effects().await;
    assert_eq!(entries.len(), 1);

    function.forget().await;
    assert_eq!(failed(sandbox.invoke(one_payment()).await), NONE);
    assert_eq!(function.effects().await, entries);

    function.forget().await;
    let another = batch(&[payment("pay-1").replace("5980", "1")]);
    assert_eq!(failed(sandbox.invoke(another).await), ["message-0"]);
    assert_eq!(function.effects().await, entries);
    let lines = sandbox.lines();
    let mut told = lines
        .lines()
        .filter(|line| line.contains("the payment isn't finished"));
    assert!(
        told.any(|line| line.contains("ConditionalCheckFailed")),
        "{lines}"
    );
}

/// Returns the sum of this metric in these lines.
fn counted(lines: &str, metric: &str) -> u64 {
    let documents = lines.lines().filter(|line| line.contains("\"_aws\""));
    let counted = documents.filter_map(|line| {
        let document: Value = serde_json::from_str(line).expect("a document");
        document[metric].as_u64()
    });
    counted.sum()
}

#[tokio::test]
async fn what_was_counted_is_written_before_the_reply_and_once_across_a_freeze() {
    let function = Function::payments_worker().await;
    let mut sandbox = function.start().await;
    let event = batch(&[payment("pay-1"), payment("pay-2")]);

    assert_eq!(failed(sandbox.invoke(event.clone()).await), NONE);
    sandbox.stop();
    assert_eq!(counted(&sandbox.lines(), "idempotency_executions"), 2);
    sandbox.go_on();
    assert_eq!(failed(sandbox.invoke(event).await), NONE);
    let lines = sandbox.lines();
    assert_eq!(counted(&lines, "idempotency_executions"), 0);
    assert_eq!(counted(&lines, "idempotency_replays"), 2);
}
