//! Tests of the module above.

use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::types::AttributeValue::S;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use serde_json::json;

use super::*;
use crate::dynamodb::guard::Guard;
use crate::dynamodb::wire::{Reply as Answered, Wire};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::key::RecordId;
use crate::protocol::record::{Completion, Owner, StoredOutcome};
use crate::store::transaction::{Write, WriteError};

fn reasons(codes: &[&str]) -> Vec<CancellationReason> {
    let reason = |code: &&str| {
        let reason = CancellationReason::builder().code(*code);
        reason.message("the service's words").build()
    };
    codes.iter().map(reason).collect()
}

fn store() -> DynamoDbStore {
    Wire::default().store()
}

#[test]
fn the_record_speaks_first() {
    let (failed, conflict) = ("ConditionalCheckFailed", "TransactionConflict");
    let judge = |codes: &[&str]| judge(&store(), true, &reasons(codes));
    assert_matches!(judge(&[failed, failed]), Ok(Committed::Fenced(None)));
    assert_matches!(judge(&[conflict, failed]), Err(StoreError::Conflict));
    assert_matches!(
        judge(&["None", conflict, failed]),
        Ok(Committed::Refused(refusal)) if refusal.index == 1
    );
    assert_matches!(judge(&["None", conflict]), Err(StoreError::Conflict));
    // A cancellation without a reason, as an emulator may give it.
    assert_matches!(judge(&["None", "None"]), Err(StoreError::Conflict));
    assert_matches!(judge(&[]), Err(StoreError::Conflict));
    let throttled = judge(&["None", "None", "ThrottlingError"]).unwrap_err();
    assert_matches!(throttled, StoreError::Throttled(_));
    let said = throttled.to_string();
    assert!(said.contains("the table of write 1 is over"), "{said}");
    assert!(said.contains("names: the service's words"), "{said}");
    assert_matches!(
        judge(&["None", "ValidationError"]),
        Err(StoreError::Rejected(_))
    );
}

#[test]
fn without_a_record_the_first_reason_is_the_first_writes() {
    let judged = judge(&store(), false, &reasons(&["ConditionalCheckFailed"]));
    assert_matches!(judged, Ok(Committed::Refused(refusal)) if refusal.index == 0);
}

#[test]
fn a_record_that_outgrows_an_item_is_told_apart() {
    let message = "Item size to update has exceeded the maximum allowed size";
    let reason = CancellationReason::builder()
        .code("ValidationError")
        .message(message);
    let judged = judge(&store(), true, &[reason.build()]);
    assert_matches!(judged, Err(StoreError::TooLarge));
}

#[test]
fn a_handlers_value_is_not_quoted() {
    for (message, said) in [
        ("a numeric value: 4111-1111", "a numeric value…"),
        (
            "Input collection [jane@x, a numeric value: ]] contains duplicates.",
            "Input collection […] contains duplicates.",
        ),
        (
            "Input collection [amFuZQ==]of type BS contains duplicates.",
            "Input collection […]of type BS contains duplicates.",
        ),
        (
            "lower bound operand: AttributeValue: {S:jane}, upper bound operand: AttributeValue: {S:jan}",
            "lower bound operand: AttributeValue: {…}",
        ),
        (
            "Value 'jane' at 'a' failed; Value 'jan' at 'transactItems' failed",
            "Value '…' at 'transactItems' failed",
        ),
        ("Type mismatch", "Type mismatch"),
    ] {
        assert_eq!(without_values(message), said);
    }
}

fn with_an_outcome_of(bytes: usize) -> Final {
    let (id, owner) = (RecordId::unkeyed("nonce"), Owner::from_stored("me"));
    let outcome = StoredOutcome::Inline("x".repeat(bytes));
    Final {
        claim: None,
        completion: Completion::new(id, owner, outcome, EpochMillis(9), EpochSeconds(10)),
    }
}

#[test]
fn an_outcome_leaves_room_in_its_item_for_what_a_record_has_besides() {
    let store = store();
    let own = |bytes| bytes_of(&of_record(&store, &with_an_outcome_of(bytes)).unwrap());
    let largest = MOST_BYTES_OF_AN_ITEM - RECORD_ROOM - own(0);
    let actions = |bytes| {
        let record = with_an_outcome_of(bytes);
        actions(&store, &Commit::new("token", Some(&record), &[]))
    };
    assert_eq!(actions(largest).unwrap().len(), 1);
    assert_matches!(actions(largest + 1), Err(StoreError::TooLarge));
}

type Reply = Result<(), SdkError<GetItemError, HttpResponse>>;

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_is_not_made() {
    let (store, id) = (store(), RecordId::unkeyed("nonce"));
    let late = crate::store::Store::load(&store, &id, Instant::now()).await;
    assert_matches!(late, Err(StoreError::NotSent));

    let sent = || Box::pin(async { Reply::Ok(()) });
    let call = |deadline| store.call("dynamodb:GetItem", deadline, sent());
    assert_matches!(call(Instant::now()).await, Err(StoreError::NotSent));
    let soon = Instant::now() + Duration::from_millis(1);
    assert_matches!(call(soon).await, Ok(Ok(())));
}

#[test]
fn what_is_wrong_with_a_write_is_no_reason_to_send_it_again() {
    let incomplete = [Write::new("no write of DynamoDB's")];
    let refused = actions(&store(), &Commit::new("token", None, &incomplete));
    assert_matches!(refused, Err(StoreError::Rejected(_)));
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

/// Commits a record without business writes in a transaction, which the wire answers so.
async fn answered_by(reply: Answered) -> Result<Committed, StoreError> {
    let wire = Wire::answering([reply]);
    let (store, record) = (wire.store(), with_an_outcome_of(1));
    let answer = send(&store, Commit::new("token", Some(&record), &[]), soon()).await;
    let [(action, request)] = &wire.requests()[..] else {
        panic!("{:?}", wire.actions())
    };
    assert_eq!(action, "TransactWriteItems");
    assert_eq!(request["ClientRequestToken"], "token");
    assert_eq!(request["TransactItems"].as_array().unwrap().len(), 1);
    answer
}

#[allow(clippy::unnecessary_wraps, reason = "a wire may give no reply")]
fn error(status: u16, code: &str, message: &str) -> Answered {
    Some((status, json!({ "__type": code, "message": message })))
}

#[tokio::test(start_paused = true)]
async fn a_transaction_without_an_answer_has_timed_out() {
    let began = Instant::now();
    let answer = answered_by(None).await;
    assert_matches!(answer, Err(StoreError::Timeout));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    let applied = answered_by(Some((200, json!({})))).await;
    assert_matches!(applied, Ok(Committed::Applied));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_a_5xx_answers_may_have_applied() {
    for code in ["InternalServerError", "ThrottlingException"] {
        let error = answered_by(error(503, code, "no")).await.unwrap_err();
        assert!(error.may_have_applied(), "{error:?}");
    }
}

/// It may have kept the answer of DynamoDB back.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_the_page_of_a_proxy_answers_may_have_applied() {
    for status in [200, 302, 403, 413] {
        let page = Some((status, json!("<html>blocked</html>")));
        let error = answered_by(page).await.unwrap_err();
        assert!(error.may_have_applied(), "{status}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_earlier_send_is_at_work_has_no_answer_yet() {
    let answer = answered_by(error(400, "TransactionInProgressException", "at work")).await;
    assert_matches!(answer, Err(StoreError::Unavailable(_)));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_transaction_is_refused_in_dynamodbs_words_without_a_value() {
    let words = "cannot be converted to a numeric value: 4111-1111";
    let answer = answered_by(error(400, "ValidationException", words)).await;
    let Err(StoreError::Rejected(reason)) = &answer else {
        panic!("{answer:?}")
    };
    let said = "cannot be converted to a numeric value…";
    assert_eq!(reason.to_string(), said);
    let denied = answered_by(error(400, "AccessDeniedException", "no")).await;
    assert_matches!(denied, Err(StoreError::Denied(_)));
}

#[tokio::test(start_paused = true)]
async fn each_table_is_named_where_one_of_them_is_missing_or_may_not_be_written() {
    let writes = ["transfers", "ledger", "transfers"].map(|table| put(table, "1"));
    for (code, words) in [
        ("ResourceNotFoundException", "or ledger` does not exist"),
        ("AccessDeniedException", "access denied to table"),
    ] {
        let wire = Wire::answering([error(400, code, "no")]);
        let (store, record) = (wire.store(), with_an_outcome_of(1));
        let commit = Commit::new("token", Some(&record), &writes);
        let said = send(&store, commit, soon()).await.unwrap_err().to_string();
        let tables = format!("table `{} or transfers or ledger`", store.table);
        assert!(said.contains(&tables) && said.contains(words), "{said}");
    }
}

#[test]
fn a_business_write_on_the_record_itself_is_refused_whatever_it_writes() {
    let store = store();
    let record = with_an_outcome_of(1);
    let (id, other) = (record.completion.id.as_str(), "another");
    for (writes, is_refused) in [
        (vec![put("records", id)], true),
        (vec![delete("records", id)], true),
        (vec![put("orders", other), put("records", id)], true),
        (vec![put("orders", id), put("records", other)], false),
        (vec![delete("records", other)], false),
    ] {
        let commit = Commit::new("token", Some(&record), &writes);
        let made = actions(&store, &commit);
        let refused = matches!(&made, Err(StoreError::Rejected(reason)) if reason.to_string().contains("record itself"));
        assert_eq!(refused, is_refused, "{made:?}");
        assert_eq!(made.is_ok(), !is_refused);
    }
}

#[test]
fn a_transaction_has_no_more_bytes_than_dynamodb_takes_the_record_among_them() {
    let (store, record) = (store(), with_an_outcome_of(1));
    let own = bytes_of(&of_record(&store, &record).unwrap());
    let of_size =
        |number: usize, bytes: usize| padded(&format!("{number:02}"), bytes - "idpadding00".len());
    let rest = MOST_BYTES - own - 10 * MOST_BYTES_OF_AN_ITEM;
    for (last, fits) in [(rest, true), (rest + 1, false)] {
        let mut writes: Vec<_> = (0..10).map(|n| of_size(n, MOST_BYTES_OF_AN_ITEM)).collect();
        writes.push(of_size(10, last));
        let made = actions(&store, &Commit::new("token", Some(&record), &writes));
        assert_eq!(made.is_ok(), fits);
        assert_eq!(matches!(made, Err(StoreError::TooLarge)), !fits);
    }
}

fn put(table: &str, id: &str) -> Write {
    Put::builder()
        .table_name(table)
        .item("id", S(id.into()))
        .into()
}

fn check(table: &str, id: &str) -> Write {
    ConditionCheck::builder()
        .table_name(table)
        .key("id", S(id.into()))
        .condition_expression("attribute_exists(id)")
        .into()
}

fn delete(table: &str, id: &str) -> Write {
    let delete = Delete::builder().table_name(table);
    delete.key("id", S(id.into())).into()
}

fn padded(id: &str, bytes: usize) -> Write {
    let put = Put::builder().table_name("t").item("id", S(id.into()));
    put.item("padding", S("x".repeat(bytes))).into()
}

#[test]
fn ninety_nine_writes_fit_beside_the_record() {
    let mut writes: Vec<_> = (0..98).map(|id| put("t", &id.to_string())).collect();
    let last = put("t", "98");
    assert_eq!(admit(&writes, &last), Ok(()));
    writes.push(last);
    assert_eq!(
        admit(&writes, &put("t", "99")),
        Err(WriteError::TooMany { max: 99 })
    );
}

#[test]
fn the_same_item_twice_is_refused() {
    let writes = [put("other", "1"), put("t", "1")];
    for again in [put("t", "1"), check("t", "1")] {
        assert_eq!(
            admit(&writes, &again),
            Err(WriteError::SameTarget { first: 1 })
        );
    }
    let by_arn = check("arn:aws:dynamodb:eu-central-1:123456789012:table/t", "1");
    assert_eq!(
        admit(&writes, &by_arn),
        Err(WriteError::SameTarget { first: 1 })
    );
    for another in [put("t", "2"), check("t", "2"), check("third", "1")] {
        assert_eq!(admit(&writes, &another), Ok(()));
    }
}

#[test]
fn two_puts_are_compared_by_their_key_where_another_write_tells_it() {
    let writes = [check("t", "7"), padded("1", 1)];
    assert_eq!(
        admit(&writes, &padded("1", 2)),
        Err(WriteError::SameTarget { first: 1 })
    );
}

#[test]
fn an_item_and_a_transaction_have_their_largest_size() {
    assert_matches!(
        admit(&[], &padded("1", 410_000)),
        Err(WriteError::TooLarge { max: 409_600, .. })
    );
    let writes: Vec<_> = (0..10).map(|id| padded(&id.to_string(), 400_000)).collect();
    assert_eq!(admit(&writes, &padded("10", 100_000)), Ok(()));
    assert_matches!(
        admit(&writes, &padded("10", 200_000)),
        Err(WriteError::TooLarge { max: 4_186_112, .. })
    );
}

#[test]
fn what_is_no_complete_write_is_refused() {
    let no_table = Write::from(Put::builder().item("id", S("1".into())));
    assert_matches!(admit(&[], &no_table), Err(WriteError::Incomplete(_)));
    let nothing = Write::from(TransactWriteItem::builder().build());
    assert_matches!(admit(&[], &nothing), Err(WriteError::Incomplete(_)));
    assert_eq!(
        admit(&[], &Write::new("SELECT 1")),
        Err(WriteError::NotSupported)
    );
}

#[test]
fn each_kind_of_write_asks_for_what_a_failing_condition_meets() {
    let key = HashMap::from([("id".to_owned(), S("1".into()))]);
    let update = Update::builder().table_name("t").key("id", S("1".into()));
    let update = update.update_expression("SET a = b");
    for write in [
        put("t", "1"),
        update.into(),
        delete("t", "1"),
        check("t", "1"),
    ] {
        let item = action(&write).unwrap();
        let wish = "return_values_on_condition_check_failure: Some(AllOld)";
        assert!(format!("{item:?}").contains(wish), "{item:?}");
        let target = Target::of(item).unwrap();
        assert_eq!((target.table, target.item), ("t", &key));
        assert_eq!(target.is_key, item.put.is_none());
    }
}

#[test]
fn a_write_that_sends_no_item_counts_no_bytes() {
    let sent = |write: &Write| bytes_of(action(write).unwrap());
    assert_eq!(sent(&delete("orders", "17")), 0);
    assert_eq!(sent(&check("orders", "17")), 0);
    assert_eq!(sent(&put("orders", "17")), "id17".len());
}

/// A store that reaches nothing: what it answers, it answers by itself.
async fn committed(writes: &[Write], deadline: Instant) -> Result<Committed, StoreError> {
    commit(&store(), Commit::new("token", None, writes), deadline).await
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
    assert_matches!(committed(&[], soon()).await, Ok(Committed::Applied));
    assert_matches!(
        committed(&[], Instant::now()).await,
        Err(StoreError::NotSent)
    );
}

/// A proxy or an emulator may leave the item out of a failed condition.
#[tokio::test(start_paused = true)]
async fn what_a_cancelled_transaction_does_not_show_is_read() {
    let paid = Guard::transition("orders", [("order_id", S("1".into()))], ["pending"], "paid");
    let (record, writes) = (with_an_outcome_of(1), [Write::from(paid)]);
    let cancelled = |record: &str, write: &str| {
        let reasons = json!([{ "Code": record }, { "Code": write }]);
        let cancelled =
            json!({ "__type": "TransactionCanceledException", "CancellationReasons": reasons });
        let item =
            json!({ "Item": { "status": { "S": "COMPLETED" }, "expiration": { "N": "9" } } });
        Wire::answering([Some((400, cancelled)), Some((200, item))])
    };
    let all = || Commit::new("token", Some(&record), &writes);
    let failed = "ConditionalCheckFailed";
    let wire = cancelled(failed, "None");
    let fenced = commit(&wire.store(), all(), soon()).await;
    assert_matches!(fenced, Ok(Committed::Fenced(Some(_))));
    let wire = cancelled("None", failed);
    let refused = commit(&wire.store(), all(), soon()).await;
    let Ok(Committed::Refused(refusal)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.item().unwrap()["status"], S("COMPLETED".into()));
    assert_eq!(wire.requests()[1].1["TableName"], "orders");
    assert_eq!(wire.requests()[1].1["ConsistentRead"], true);
}
