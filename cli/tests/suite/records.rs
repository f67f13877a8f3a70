//! `get`, `explain`, `list`, and the commands that end a record.

use crate::support::{on, run, table};

#[tokio::test]
async fn what_is_not_there_is_said() {
    let table = table().await;
    on(&table, &["get", "payments#charge#0f"])
        .await
        .refused(2, "there is no record `payments#charge#0f`");
    run(&["get", "any"]).await.refused(2, "name the table");
}
