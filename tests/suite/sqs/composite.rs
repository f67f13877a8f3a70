//! Batches in a table with a composite key: claims are single requests, which a table with another key schema refuses.

use aws_sdk_dynamodb::types::KeyType;

use super::*;
use crate::support::server::unique;

/// A worker whose layout has the keys `pk` and `sk`, on a table with these keys.
async fn worker(
    server: &Server,
    keys: &[(&str, KeyType)],
) -> (Proxy, String, Effects, impl Worker + use<>) {
    let table = unique("composite");
    server.create_table(&table, keys).await;
    let proxy = Proxy::before(server).await;
    let store = DynamoDbStore::new(proxy.server().client(), &table)
        .layout(|layout| layout.composite_key("pk", "idempotency", "sk"));
    let effects = Effects::default();
    let worker = charging_together(&builder(store).build().unwrap(), &effects, 3);
    proxy.take_total();
    (proxy, table, effects, worker)
}

fn messages() -> impl Iterator<Item = Value> {
    (1..=3).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n))
}

on_each_server!(claims_leave_one_by_one_and_completions_together);
async fn claims_leave_one_by_one_and_completions_together(server: Server) {
    let keys = [("pk", KeyType::Hash), ("sk", KeyType::Range)];
    let (proxy, _, effects, mut worker) = worker(&server, &keys).await;
    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-2", "m-3"]);
    let counts = proxy.take_counts();
    assert_eq!(
        (
            counts["UpdateItem"],
            counts["BatchExecuteStatement"],
            counts.len()
        ),
        (3, 1, 2),
        "{counts:?}"
    );
}

on_each_server!(a_table_with_one_of_the_two_keys_runs_nothing_and_keeps_nothing);
async fn a_table_with_one_of_the_two_keys_runs_nothing_and_keeps_nothing(server: Server) {
    for key in ["pk", "sk"] {
        let (_proxy, table, effects, mut worker) = worker(&server, &[(key, KeyType::Hash)]).await;
        let failed = worker.call(batch(messages())).await;
        assert_matches!(failed, Err(BatchError::Misconfigured { .. }), "{key}");
        assert_eq!(effects.take(), NOTHING);
        let items = server
            .client()
            .scan()
            .table_name(table)
            .consistent_read(true)
            .send()
            .await;
        assert_eq!(items.unwrap().count(), 0, "{key}");
    }
}
