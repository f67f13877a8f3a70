//! Payloads: where the function validates them, both sides need one hash; where the hashes differ, it refuses.

use lambda_idempotency::powertools::payload;
use lambda_idempotency::{Error, Fingerprint};
use serde_json::{Value, json};

use super::process::{VALIDATION, raised, returned};
use super::{Shared, charge, it_ran};

on_both!(with_one_hash_the_function_replays_the_payload_and_refuses_another);
async fn with_one_hash_the_function_replays_the_payload_and_refuses_another(shared: Shared) {
    let mut function = shared.validating().await;
    shared.done(charge("o-1"), payload(1_250), "receipt").await;

    let same = json!({"order_id": "o-1", "amount": 1_250});
    assert_eq!(function.call(same).await, returned("receipt"));
    let other = json!({"order_id": "o-1", "amount": 1_251});
    assert_eq!(function.call(other).await, raised(VALIDATION));
    // And here, since the record is this crate's.
    let (once, other) = (shared.engine(), payload(1_251));
    let refused = once.run(charge("o-1"), other, it_ran::<Value>).await;
    assert!(matches!(refused, Err(Error::Mismatch)), "{refused:?}");
}

on_both!(with_another_hash_the_function_refuses_whatever_comes);
async fn with_another_hash_the_function_refuses_whatever_comes(shared: Shared) {
    let mut function = shared.validating().await;
    for (order, fingerprint) in [("o-1", Some(Fingerprint::json(b"1250"))), ("o-2", None)] {
        shared.done(charge(order), fingerprint, "receipt").await;
        let same = json!({"order_id": order, "amount": 1_250});
        assert_eq!(function.call(same).await, raised(VALIDATION));
    }
}

on_both!(a_function_that_does_not_validate_looks_at_no_fingerprint);
async fn a_function_that_does_not_validate_looks_at_no_fingerprint(shared: Shared) {
    let fingerprint = Fingerprint::json(b"1");
    shared.done(charge("o-1"), fingerprint, "receipt").await;
    let answer = shared.function().await.charge("o-1").await;
    assert_eq!(answer, returned("receipt"));
}

on_both!(another_payload_for_a_record_of_the_function_is_not_noticed_here);
/// A limit of the shared table: a hash that this crate didn't write isn't compared.
async fn another_payload_for_a_record_of_the_function_is_not_noticed_here(shared: Shared) {
    let mut function = shared.validating().await;
    let first = json!({"order_id": "o-1", "amount": 1_250});
    function.call(first).await;
    function.return_(json!("receipt")).await;
    let other = payload(1_251);
    shared.replays(charge("o-1"), other, "receipt").await;
}
