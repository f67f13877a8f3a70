//! Payloads: where the function validates them, both sides need one hash; where the hashes differ, it refuses.

use std::io::Error as HandlerError;

use lambda_idempotency::powertools::payload;
use lambda_idempotency::{Error, Fingerprint};
use serde_json::json;

use super::process::{Called, VALIDATION, raised};
use super::{Shared, charge};
use crate::on_each_server;
use crate::support::Server;

on_each_server!(
    with_one_hash_the_function_replays_the_payload_and_refuses_another,
    start_paused = false
);
async fn with_one_hash_the_function_replays_the_payload_and_refuses_another(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared
        .function()
        .await
        .with("config", json!({"payload_validation_jmespath": "amount"}));
    let handler = |_| async { Ok::<_, HandlerError>("receipt".to_owned()) };
    shared
        .engine()
        .run(charge("o-1"), payload(1_250), handler)
        .await
        .unwrap();

    let same = json!({"order_id": "o-1", "amount": 1_250});
    assert_eq!(
        function.call(same).await,
        Called::Returned(json!("receipt"))
    );
    let other = json!({"order_id": "o-1", "amount": 1_251});
    assert_eq!(function.call(other).await, raised(VALIDATION));
    // And here, since the record is this crate's.
    let refused = shared
        .engine()
        .run(charge("o-1"), payload(1_251), handler)
        .await;
    assert!(matches!(refused, Err(Error::Mismatch)), "{refused:?}");
}

on_each_server!(
    with_another_hash_the_function_refuses_whatever_comes,
    start_paused = false
);
async fn with_another_hash_the_function_refuses_whatever_comes(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared
        .function()
        .await
        .with("config", json!({"payload_validation_jmespath": "amount"}));
    let handler = |_| async { Ok::<_, HandlerError>("receipt".to_owned()) };
    for (order, fingerprint) in [("o-1", Some(Fingerprint::json(b"1250"))), ("o-2", None)] {
        shared
            .engine()
            .run(charge(order), fingerprint, handler)
            .await
            .unwrap();
        let same = json!({"order_id": order, "amount": 1_250});
        assert_eq!(function.call(same).await, raised(VALIDATION));
    }
}

on_each_server!(
    a_function_that_does_not_validate_looks_at_no_fingerprint,
    start_paused = false
);
async fn a_function_that_does_not_validate_looks_at_no_fingerprint(server: Server) {
    let shared = Shared::on(&server).await;
    let handler = |_| async { Ok::<_, HandlerError>("receipt".to_owned()) };
    shared
        .engine()
        .run(charge("o-1"), Fingerprint::json(b"1"), handler)
        .await
        .unwrap();
    assert_eq!(
        shared.function().await.charge("o-1").await,
        Called::Returned(json!("receipt"))
    );
}

on_each_server!(
    another_payload_for_a_record_of_the_function_is_not_noticed_here,
    start_paused = false
);
/// A limit of the shared table: a hash that this crate didn't write isn't compared.
async fn another_payload_for_a_record_of_the_function_is_not_noticed_here(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared
        .function()
        .await
        .with("config", json!({"payload_validation_jmespath": "amount"}));
    function
        .call(json!({"order_id": "o-1", "amount": 1_250}))
        .await;
    function.return_(json!("receipt")).await;
    let handler = |_| async { Err::<String, _>(HandlerError::other("it ran")) };
    let replayed = shared
        .engine()
        .run(charge("o-1"), payload(1_251), handler)
        .await
        .unwrap();
    assert_eq!(replayed.into_inner(), "receipt");
}
