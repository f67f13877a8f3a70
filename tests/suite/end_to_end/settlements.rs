//! `settlements`, invoked directly: a settlement that is asked for again isn't paid out again, and its caller gets the same answer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::lambda::{Function, Reply, text};

fn settlement(id: &str, amount: u64) -> Value {
    json!({ "settlement_id": id, "merchant": "m-1", "amount": amount })
}

/// The error message of an invocation that must fail.
fn failed(reply: Reply) -> String {
    match reply {
        Reply::Failed(message) => message,
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn a_settlement_is_paid_out_once_and_each_caller_gets_its_payout() {
    let function = Function::settlements().await;
    let mut sandbox = function.start().await;

    let first = sandbox.invoke(settlement("s-1", 1250)).await.answer();
    assert_eq!(first["settlement_id"], "s-1");
    assert_eq!(first["amount"], 1250);
    assert_eq!(
        sandbox.invoke(settlement("s-1", 1250)).await.answer(),
        first
    );
    let mut another = function.start().await;
    assert_eq!(
        another.invoke(settlement("s-1", 1250)).await.answer(),
        first
    );

    let payouts = function.effects().await;
    assert_eq!(payouts.len(), 1);
    assert_eq!(text(&payouts[0], "payout_id"), first["payout_id"]);
    assert_eq!(text(&payouts[0], "merchant"), "m-1");

    let other = sandbox.invoke(settlement("s-2", 1250)).await.answer();
    assert_ne!(other["payout_id"], first["payout_id"]);
    assert_eq!(function.effects().await.len(), 2);
}

#[tokio::test]
async fn a_key_of_another_request_and_a_request_without_a_key_pay_nothing() {
    let function = Function::settlements().await;
    let mut sandbox = function.start().await;
    sandbox.invoke(settlement("s-1", 1250)).await.answer();

    let mismatch = failed(sandbox.invoke(settlement("s-1", 1251)).await);
    assert!(mismatch.contains("another payload"), "{mismatch}");
    let missing = failed(sandbox.invoke(settlement("", 1250)).await);
    assert!(missing.contains("no idempotency key"), "{missing}");
    let undecodable = failed(sandbox.invoke(json!({ "amount": 1250 })).await);
    assert!(
        undecodable.contains("missing field `settlement_id`"),
        "{undecodable}"
    );
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn a_settlement_whose_process_was_killed_is_paid_out_when_its_lease_is_over() {
    let function = Function::settlements().await;
    let mut killed = function.slow(Duration::from_hours(1)).start().await;
    let invocation = killed.begin(settlement("s-1", 1250)).await;
    let record = function.claimed_by_attempt(1).await;
    killed.kill();
    drop(invocation);
    assert!(function.effects().await.is_empty());

    function.end_lease(&record).await;
    let answer = function
        .start()
        .await
        .invoke(settlement("s-1", 1250))
        .await
        .answer();
    let payouts = function.effects().await;
    assert_eq!(payouts.len(), 1);
    assert_eq!(text(&payouts[0], "payout_id"), answer["payout_id"]);
}
