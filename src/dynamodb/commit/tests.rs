use std::time::Duration;

use aws_sdk_dynamodb::config::BehaviorVersion;

use super::*;
use crate::store::transaction::{Write, WriteError};

/// A store that reaches nothing: what it answers, it answers by itself.
fn store() -> DynamoDbStore {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .build();
    DynamoDbStore::new(aws_sdk_dynamodb::Client::from_conf(config), "records")
}

async fn committed(writes: &[Write], deadline: Instant) -> Result<Committed, StoreError> {
    let all = Commit {
        token: "token",
        record: None,
        writes,
    };
    commit(&store(), all, deadline).await
}

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

#[tokio::test]
async fn a_write_of_another_store_is_refused() {
    let refused = committed(&[Write::new("theirs")], soon()).await;
    let Err(StoreError::Rejected(reason)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(
        reason.downcast_ref::<WriteError>(),
        Some(&WriteError::NotSupported)
    );
}

#[tokio::test]
async fn nothing_to_write_is_written_at_once() {
    assert!(matches!(
        committed(&[], soon()).await,
        Ok(Committed::Applied)
    ));
    assert!(matches!(
        committed(&[], Instant::now()).await,
        Err(StoreError::NotSent)
    ));
}

/// A proxy or an emulator may leave the item out of a failed condition.
#[tokio::test(start_paused = true)]
async fn what_a_cancelled_transaction_does_not_show_is_read() {
    use aws_sdk_dynamodb::types::AttributeValue::S;
    use serde_json::json;

    use crate::dynamodb::guard::Transition;
    use crate::dynamodb::wire::Wire;
    use crate::protocol::clock::{EpochMillis, EpochSeconds};
    use crate::protocol::key::RecordId;
    use crate::protocol::record::{Basis, Completion, Owner, StoredOutcome};

    let paid = Transition::new("orders", [("order_id", S("1".into()))])
        .from("pending")
        .to("paid");
    let outcome = StoredOutcome::Inline("1".to_owned());
    let (id, owner) = (RecordId::unkeyed("1"), Owner::from_stored("me"));
    let completion = Completion::new(id, owner, outcome, EpochMillis(9), EpochSeconds(10));
    let record = Final::new(completion, Basis::Claimed);
    let writes = [Write::from(paid)];
    let cancelled = |record: &str, write: &str| {
        let reasons = json!([{ "Code": record }, { "Code": write }]);
        let cancelled =
            json!({ "__type": "TransactionCanceledException", "CancellationReasons": reasons });
        let item =
            json!({ "Item": { "status": { "S": "COMPLETED" }, "expiration": { "N": "9" } } });
        Wire::answering([Some((400, cancelled)), Some((200, item))])
    };
    let all = || Commit {
        token: "token",
        record: Some(&record),
        writes: &writes,
    };
    let failed = "ConditionalCheckFailed";
    let wire = cancelled(failed, "None");
    let fenced = commit(&wire.store(), all(), soon()).await;
    assert!(
        matches!(fenced, Ok(Committed::Fenced(Some(_)))),
        "{fenced:?}"
    );
    let wire = cancelled("None", failed);
    let refused = commit(&wire.store(), all(), soon()).await;
    let Ok(Committed::Refused(refusal)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.item().unwrap()["status"], S("COMPLETED".into()));
    assert_eq!(wire.requests()[1].1["TableName"], "orders");
    assert_eq!(wire.requests()[1].1["ConsistentRead"], true);
}
