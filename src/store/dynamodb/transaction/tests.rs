use aws_sdk_dynamodb::config::BehaviorVersion;

use super::*;
use crate::clock::{EpochMillis, EpochSeconds};
use crate::key::RecordId;
use crate::record::{Completion, Owner, Status, StoredOutcome};
use crate::transaction::Basis;

fn reasons(codes: &[&str]) -> Vec<CancellationReason> {
    let reason = |code: &&str| CancellationReason::builder().code(*code).build();
    codes.iter().map(reason).collect()
}

fn store() -> DynamoDbStore {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .build();
    DynamoDbStore::new(aws_sdk_dynamodb::Client::from_conf(config), "records")
}

#[test]
fn the_record_speaks_first() {
    let (failed, conflict) = ("ConditionalCheckFailed", "TransactionConflict");
    let judge = |codes: &[&str]| judge(&store(), true, &reasons(codes));
    assert!(matches!(
        judge(&[failed, failed]),
        Ok(Committed::Fenced(None))
    ));
    assert!(matches!(
        judge(&[conflict, failed]),
        Err(StoreError::Conflict)
    ));
    assert!(matches!(
        judge(&["None", conflict, failed]),
        Ok(Committed::Refused(refusal)) if refusal.index() == 1
    ));
    assert!(matches!(
        judge(&["None", conflict]),
        Err(StoreError::Conflict)
    ));
    assert!(matches!(
        judge(&["None", "ThrottlingError"]),
        Err(StoreError::Throttled)
    ));
    assert!(matches!(
        judge(&["None", "ValidationError"]),
        Err(StoreError::Rejected(_))
    ));
}

#[test]
fn without_a_record_the_first_reason_is_the_first_writes() {
    let judged = judge(&store(), false, &reasons(&["ConditionalCheckFailed"]));
    assert!(matches!(judged, Ok(Committed::Refused(refusal)) if refusal.index() == 0));
}

#[test]
fn a_record_that_outgrows_an_item_is_told_apart() {
    let message = "Item size to update has exceeded the maximum allowed size";
    let reason = CancellationReason::builder()
        .code("ValidationError")
        .message(message);
    let judged = judge(&store(), true, &[reason.build()]);
    assert!(matches!(judged, Err(StoreError::TooLarge)));
}

#[test]
fn a_handlers_value_is_not_quoted() {
    let message = "The parameter cannot be converted to a numeric value: 4111-1111";
    assert_eq!(
        without_values(message),
        "The parameter cannot be converted to a numeric value"
    );
    assert_eq!(without_values("Type mismatch"), "Type mismatch");
}

fn with_an_outcome_of(bytes: usize) -> Final {
    Final {
        basis: Basis::Claimed,
        completion: Completion {
            id: RecordId::unkeyed("nonce"),
            owner: Owner::from_stored("me"),
            status: Status::Completed,
            outcome: StoredOutcome::Inline("x".repeat(bytes)),
            completed_at: EpochMillis(9),
            expiration: EpochSeconds(10),
        },
    }
}

#[test]
fn an_outcome_leaves_room_in_its_item_for_what_a_record_has_besides() {
    let store = store();
    let own = |bytes| bytes_of(&of_record(&store, &with_an_outcome_of(bytes)).unwrap());
    let largest = MOST_BYTES_OF_AN_ITEM - RECORD_ROOM - own(0);
    let actions = |bytes| {
        let record = with_an_outcome_of(bytes);
        let commit = Commit {
            record: Some(&record),
            writes: &[],
            token: "token",
        };
        actions(&store, &commit)
    };
    assert_eq!(actions(largest).unwrap().len(), 1);
    assert!(matches!(actions(largest + 1), Err(StoreError::TooLarge)));
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_not_made() {
    let (store, id) = (store(), RecordId::unkeyed("nonce"));
    let late = crate::store::Store::load(&store, &id, Instant::now()).await;
    assert!(matches!(late, Err(StoreError::Timeout)));
}
