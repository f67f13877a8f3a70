//! The trouble of `tests/suite/peers.md` in Powertools itself: seen, not heard of. The test beside each in the table shows its end in
//! this crate.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::powertools;
use serde_json::json;

use super::process::{Called, IN_PROGRESS, Item, PERSISTENCE, VALIDATION, raised, returned};
use super::{PREFIX, Shared, after};

on_both!(a_stale_function_overwrites_its_successors_result);
async fn a_stale_function_overwrites_its_successors_result(shared: Shared) {
    let mut stale = shared.function().await.with("remaining", 100);
    let mut successor = shared.function().await;
    stale.charge("o-1").await;
    after(100).await;
    successor.run("o-1", json!("successor")).await;
    stale.return_(json!("stale")).await;
    assert_eq!(successor.charge("o-1").await, returned("stale"));
}

on_both!(a_stale_function_that_fails_deletes_its_successors_record);
async fn a_stale_function_that_fails_deletes_its_successors_record(shared: Shared) {
    let mut stale = shared.function().await.with("remaining", 100);
    let mut successor = shared.function().await;
    stale.charge("o-1").await;
    after(100).await;
    successor.run("o-1", json!("successor")).await;
    stale.raise().await;
    // The effect happens again.
    successor.run("o-1", json!("third")).await;
}

on_both!(of_two_functions_that_share_a_store_the_outer_writes_under_the_inner_ones_prefix);
async fn of_two_functions_that_share_a_store_the_outer_writes_under_the_inner_ones_prefix(
    shared: Shared,
) {
    let mut function = shared.function().await.with("do", "nested");
    let result = json!(["outer result", "inner result"]);
    assert_eq!(function.charge("o-1").await, returned(result));
    let mut states: Vec<_> = shared
        .records()
        .await
        .iter()
        .map(|record| {
            let text = |name: &str| record[name].as_s().unwrap().clone();
            let prefix = text("id").split('#').next().unwrap().to_owned();
            (
                prefix,
                text("status"),
                record.get("data").map(|data| data.as_s().unwrap().clone()),
            )
        })
        .collect();
    states.sort();
    let overwritten = Some("[\"outer result\", \"inner result\"]".to_owned());
    assert_eq!(
        states,
        [
            ("inner".to_owned(), "COMPLETED".to_owned(), overwritten),
            ("outer".to_owned(), "INPROGRESS".to_owned(), None),
        ]
    );
    assert_eq!(function.charge("o-1").await, raised(IN_PROGRESS));
}

on_both!(of_two_functions_that_share_a_store_the_one_called_first_configures_both);
async fn of_two_functions_that_share_a_store_the_one_called_first_configures_both(shared: Shared) {
    let of_orders = json!({"event_key_jmespath": "order_id", "expires_after_seconds": 60});
    let of_settlements =
        json!({"event_key_jmespath": "settlement_id", "expires_after_seconds": 7_200});

    let mut process = shared.function().await.with("config", of_orders);
    process.run("o-1", json!("receipt")).await;
    let mut process = process
        .with("config", of_settlements.clone())
        .with("prefix", "settlements");
    // Its own key isn't looked for: it runs each time, and leaves no record.
    for _ in 0..2 {
        let settlement = json!({"settlement_id": "s-1"});
        assert_eq!(process.call(settlement).await, Called::Running);
        process.return_(json!("settled")).await;
    }
    assert_eq!(shared.records().await.len(), 1);
    // The other function's key is, and its time counts.
    let both = json!({"settlement_id": "s-1", "order_id": "o-9"});
    assert_eq!(process.call(both.clone()).await, Called::Running);
    process.return_(json!("settled")).await;
    let records = shared.records().await;
    let record = |id: Option<String>| {
        let id = AttributeValue::S(id.unwrap());
        records.iter().find(|record| record["id"] == id).cloned()
    };
    let expiry = |record: &Item| record["expiration"].as_n().unwrap().parse::<u64>().unwrap();
    let of_first = record(powertools::id(PREFIX, "o-1")).unwrap();
    let of_second = record(powertools::id("settlements", "o-9")).unwrap();
    assert!(expiry(&of_second) - expiry(&of_first) < 60);

    // In a process that calls it first, its own configuration counts.
    let mut process = shared
        .function()
        .await
        .with("config", of_settlements)
        .with("prefix", "settlements");
    assert_eq!(process.call(both).await, Called::Running);
    process.return_(json!("settled")).await;
    let records = shared.records().await;
    let id = AttributeValue::S(powertools::id("settlements", "s-1").unwrap());
    assert!(records.iter().any(|record| record["id"] == id));
}

on_both!(input_that_the_function_changes_keeps_its_record);
async fn input_that_the_function_changes_keeps_its_record(shared: Shared) {
    let mut function = shared.function().await;
    function.charge("o-1").await;
    function
        .tell(&json!({"mutate": {"order_id": "other"}, "return": "receipt"}))
        .await;
    assert_eq!(shared.records().await.len(), 1);
    assert_eq!(function.charge("o-1").await, returned("receipt"));
}

on_both!(a_falsy_result_is_stored_and_yet_replayed_as_none);
async fn a_falsy_result_is_stored_and_yet_replayed_as_none(shared: Shared) {
    let mut function = shared.function().await;
    for (order, result) in [
        ("o-1", json!(0)),
        ("o-2", json!(false)),
        ("o-3", json!("")),
        ("o-4", json!([])),
        ("o-5", json!({})),
    ] {
        function.run(order, result).await;
        assert_eq!(function.charge(order).await, returned(json!(null)));
    }
}

on_both!(a_missing_key_leaves_the_call_unprotected);
async fn a_missing_key_leaves_the_call_unprotected(shared: Shared) {
    let mut function = shared.function().await;
    for _ in 0..2 {
        assert_eq!(function.call(json!({"amount": 1})).await, Called::Running);
        function.return_(json!("receipt")).await;
    }
    assert!(shared.records().await.is_empty());
}

on_both!(another_payload_is_refused_on_the_conflict_path);
async fn another_payload_is_refused_on_the_conflict_path(shared: Shared) {
    let mut function = shared.validating().await;
    function.call(json!({"order_id": "o-1", "amount": 1})).await;
    function.return_(json!("receipt")).await;
    assert_eq!(
        function.call(json!({"order_id": "o-1", "amount": 2})).await,
        raised(VALIDATION)
    );
}

on_both!(a_result_over_400_kilobytes_is_an_error_and_the_function_runs_again);
async fn a_result_over_400_kilobytes_is_an_error_and_the_function_runs_again(shared: Shared) {
    let mut function = shared.function().await.with("remaining", 300);
    let large = json!("x".repeat(410_000));
    function.charge("o-1").await;
    assert_eq!(function.return_(large.clone()).await, raised(PERSISTENCE));
    after(300).await;
    // The effect happens again, as often as it is asked for.
    assert_eq!(function.charge("o-1").await, Called::Running);
    assert_eq!(function.return_(large).await, raised(PERSISTENCE));
}

on_both!(a_function_without_a_deadline_that_dies_locks_its_key_until_the_record_expires);
async fn a_function_without_a_deadline_that_dies_locks_its_key_until_the_record_expires(
    shared: Shared,
) {
    let mut dies = shared.function().await.with("remaining", json!(null));
    dies.charge("o-1").await;
    drop(dies);
    let mut function = shared.function().await;
    assert_eq!(function.charge("o-1").await, raised(IN_PROGRESS));
    assert!(!shared.records().await[0].contains_key("in_progress_expiration"));
    // And so it is honoured here, for as long.
    let lease = shared.in_flight("o-1").await;
    assert!((3_000..=3_601).contains(&lease), "{lease}");
}

on_both!(the_same_payment_twice_in_a_batch_runs_once_in_turn);
async fn the_same_payment_twice_in_a_batch_runs_once_in_turn(shared: Shared) {
    let mut function = shared.function().await.with("do", "batch");
    let body = json!({"order_id": "o-1"}).to_string();
    let records = ["m-1", "m-2"].map(|id| crate::support::events::message(id, body.clone()));
    assert_eq!(
        function.call(json!({ "Records": records })).await,
        Called::Running
    );
    let reply = function.return_(json!("receipt")).await;
    assert_eq!(reply, returned(json!({"batchItemFailures": []})));
}
