//! The same of Powertools for AWS Lambda (TypeScript), where it differs from the Python version.

use std::io::Error as HandlerError;

use lambda_idempotency::{Error, Key};
use serde_json::{Value, json};

use super::Shared;
use super::process::{IN_PROGRESS, typescript};
use crate::on_each_server;
use crate::support::Server;

on_each_server!(
    the_same_payment_twice_in_a_batch_is_reported_as_failed,
    start_paused = false
);
async fn the_same_payment_twice_in_a_batch_is_reported_as_failed(server: Server) {
    let seen = typescript(
        &server,
        &Shared::on(&server).await.table,
        "twice_in_a_batch",
    )
    .await;
    assert_eq!(seen, json!({"runs": 1, "reported": 1}));
}

on_each_server!(
    of_two_operations_that_share_a_store_the_outer_completes_the_inner_ones_record,
    start_paused = false
);
async fn of_two_operations_that_share_a_store_the_outer_completes_the_inner_ones_record(
    server: Server,
) {
    let seen = typescript(&server, &Shared::on(&server).await.table, "nested").await;
    let result = json!(["outer result", "inner result"]);
    assert_eq!(
        seen,
        json!({"first": result, "inner": result, "outer": IN_PROGRESS})
    );
}

on_each_server!(
    input_that_the_function_changes_leaves_its_record_in_progress,
    start_paused = false
);
async fn input_that_the_function_changes_leaves_its_record_in_progress(server: Server) {
    let seen = typescript(&server, &Shared::on(&server).await.table, "mutated").await;
    assert_eq!(seen, json!({"first": "done", "again": IN_PROGRESS}));
}

on_each_server!(
    a_result_that_it_kept_cannot_be_read_here_and_nothing_runs,
    start_paused = false
);
/// It keeps its results as DynamoDB's own values, not as JSON text.
async fn a_result_that_it_kept_cannot_be_read_here_and_nothing_runs(server: Server) {
    let shared = Shared::on(&server).await;
    typescript(&server, &shared.table, "done").await;
    let before = shared.records().await;
    let key = Key::raw("charge", before[0]["id"].as_s().unwrap());
    let ran = |_| async { Err::<Value, _>(HandlerError::other("it ran")) };
    let refused = shared.engine().run(key, None, ran).await;
    assert!(matches!(refused, Err(Error::Unreadable(_))), "{refused:?}");
    assert_eq!(shared.records().await, before);
}
