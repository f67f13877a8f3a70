//! The same of Powertools for AWS Lambda (TypeScript), where it differs from the Python version.

use lambda_idempotency::{Error, Key};
use serde_json::{Value, json};

use super::process::{IN_PROGRESS, typescript};
use super::{Shared, it_ran};

on_both!(the_same_payment_twice_in_a_batch_is_reported_as_failed);
async fn the_same_payment_twice_in_a_batch_is_reported_as_failed(shared: Shared) {
    let seen = typescript(&shared.server, &shared.table, "twice_in_a_batch").await;
    assert_eq!(seen, json!({"runs": 1, "reported": 1}));
}

on_both!(of_two_operations_that_share_a_store_the_outer_completes_the_inner_ones_record);
async fn of_two_operations_that_share_a_store_the_outer_completes_the_inner_ones_record(
    shared: Shared,
) {
    let seen = typescript(&shared.server, &shared.table, "nested").await;
    let result = json!(["outer result", "inner result"]);
    let expected = json!({"first": result, "inner": result, "outer": IN_PROGRESS});
    assert_eq!(seen, expected);
}

on_both!(input_that_the_function_changes_leaves_its_record_in_progress);
async fn input_that_the_function_changes_leaves_its_record_in_progress(shared: Shared) {
    let seen = typescript(&shared.server, &shared.table, "mutated").await;
    assert_eq!(seen, json!({"first": "done", "again": IN_PROGRESS}));
}

on_both!(a_result_that_it_kept_cannot_be_read_here_and_nothing_runs);
/// It keeps its results as DynamoDB's own values, not as JSON text.
async fn a_result_that_it_kept_cannot_be_read_here_and_nothing_runs(shared: Shared) {
    typescript(&shared.server, &shared.table, "done").await;
    let before = shared.records().await;
    let key = Key::raw("charge", before[0]["id"].as_s().unwrap());
    let refused = shared.engine().run(key, None, it_ran::<Value>).await;
    assert!(matches!(refused, Err(Error::Unreadable(_))), "{refused:?}");
    assert_eq!(shared.records().await, before);
}
