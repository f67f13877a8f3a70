use aws_sdk_dynamodb::config::BehaviorVersion;

use super::*;

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
