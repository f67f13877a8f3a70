//! The parts of this crate's records that the other side doesn't know.

use std::io::Error as HandlerError;

use lambda_idempotency::Verdict;
use lambda_idempotency::dynamodb::DynamoDbStore;
use serde_json::json;

use super::process::{Function, PERSISTENCE, raised, returned};
use super::{Shared, charge};

on_both!(a_failure_that_is_kept_here_is_an_error_there_and_nothing_runs);
async fn a_failure_that_is_kept_here_is_an_error_there_and_nothing_runs(shared: Shared) {
    let declined = |_| async { Err::<String, _>(HandlerError::other("card declined")) };
    shared
        .engine()
        .run_with(charge("o-1"), None, declined, |_| Verdict::Fail)
        .await
        .unwrap_err();
    let answer = shared.function().await.charge("o-1").await;
    assert_eq!(answer, raised(PERSISTENCE));
}

on_both!(an_outcome_above_the_inline_limit_is_none_there);
async fn an_outcome_above_the_inline_limit_is_none_there(shared: Shared) {
    let mut function = shared.function().await;
    // Of letters that don't repeat, so that compressing it isn't enough.
    let mut dice = fastrand::Rng::with_seed(7);
    let large: String = (0..100_000).map(|_| dice.alphanumeric()).collect();
    for (order, limit, seen) in [
        ("o-1", 8 << 10, json!(null)),
        ("o-2", 350 << 10, json!(large)),
    ] {
        let handler = |_| async { Ok::<_, HandlerError>(large.clone()) };
        let once =
            shared.engine_with(|once| once.settings(|settings| settings.inline_limit = limit));
        once.run(charge(order), None, handler).await.unwrap();
        assert_eq!(function.charge(order).await, returned(seen));
        let replayed = once.run(charge(order), None, handler).await.unwrap();
        assert!(replayed.is_replayed() && *replayed.get() == large);
    }
}

on_both!(a_table_with_a_sort_key_and_names_of_its_own_is_shared_too);
async fn a_table_with_a_sort_key_and_names_of_its_own_is_shared_too(shared: Shared) {
    use aws_sdk_dynamodb::types::KeyType;

    let table = crate::support::server::unique("composite");
    let server = &shared.server;
    server
        .create_table(&table, &[("pk", KeyType::Hash), ("sk", KeyType::Range)])
        .await;
    let store = DynamoDbStore::new(server.client(), &table).layout(|layout| {
        layout.composite_key("pk", "idempotency#payments-prod", "sk");
        layout.expiration = "ttl".into();
        layout.data = "result".into();
        layout.status = "state".into();
    });
    let once = lambda_idempotency::Idempotency::builder(store)
        .namespace("payments")
        .build()
        .unwrap();
    let mut function = Function::start(server, &table).await.with(
        "store",
        json!({
            "key_attr": "pk",
            "sort_key_attr": "sk",
            "expiry_attr": "ttl",
            "data_attr": "result",
            "status_attr": "state",
        }),
    );
    let handler = |_| async { Ok::<_, HandlerError>("here".to_owned()) };
    once.run(charge("o-1"), None, handler).await.unwrap();
    assert_eq!(function.charge("o-1").await, returned("here"));
    function.run("o-2", json!("there")).await;
    let replayed = once.run(charge("o-2"), None, handler).await.unwrap();
    assert_eq!(replayed.into_inner(), "there");
}
