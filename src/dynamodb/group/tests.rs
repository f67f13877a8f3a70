use aws_sdk_dynamodb::config::retry::RetryConfig;
use serde_json::{Value, json};

use super::*;
use crate::dynamodb::wire::{Reply as Answered, Wire};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::record::{Completion, NewClaim, Owner, StoredOutcome};

const RECORDS: &str = "records";

fn id(number: usize) -> RecordId {
    RecordId::unkeyed(&number.to_string())
}

fn ids(count: usize) -> Vec<RecordId> {
    (0..count).map(id).collect()
}

fn claim(number: usize) -> RecordWrite {
    let (began, lease) = (EpochMillis(6), EpochMillis(7));
    let owner = Owner::from_stored("me");
    NewClaim::new(id(number), owner, began, lease, EpochSeconds(8)).into()
}

fn completion(number: usize, outcome: usize) -> RecordWrite {
    let outcome = StoredOutcome::Inline("x".repeat(outcome));
    let owner = Owner::from_stored("me");
    Completion::new(id(number), owner, outcome, EpochMillis(9), EpochSeconds(10)).into()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[allow(clippy::unnecessary_wraps, reason = "a wire may give no reply")]
fn error(status: u16, code: &str) -> Answered {
    Some((status, json!({ "__type": code, "message": "no" })))
}

/// The reply to a group, with this answer to each statement.
#[allow(clippy::unnecessary_wraps, reason = "a wire may give no reply")]
fn statements(answers: &[Value]) -> Answered {
    Some((200, json!({ "Responses": answers })))
}

fn failed(code: &str) -> Value {
    json!({ "Error": { "Code": code, "Message": "no" } })
}

fn applied() -> Value {
    json!({ "TableName": RECORDS })
}

/// The reply to a read of many, with the items of these records.
#[allow(clippy::unnecessary_wraps, reason = "a wire may give no reply")]
fn items(ids: &[RecordId], unprocessed: &[RecordId]) -> Answered {
    let key = |id: &RecordId| json!({ "id": { "S": id.as_str() } });
    let keys: Vec<_> = unprocessed.iter().map(key).collect();
    let item = |id: &RecordId| json!({ "id": { "S": id.as_str() }, "status": { "S": "COMPLETED" }, "expiration": { "N": "9" } });
    let found: Vec<_> = ids.iter().map(item).collect();
    let unprocessed = match keys.as_slice() {
        [] => json!({}),
        keys => json!({ RECORDS: { "Keys": keys } }),
    };
    let body = json!({ "Responses": { RECORDS: found }, "UnprocessedKeys": unprocessed });
    Some((200, body))
}

/// The numbers of keys that each request has asked for.
fn asked(wire: &Wire) -> Vec<usize> {
    let keys = |(action, request): (String, Value)| {
        assert_eq!(action, "BatchGetItem");
        let wanted = &request["RequestItems"][RECORDS];
        assert_eq!(wanted["ConsistentRead"], true);
        wanted["Keys"].as_array().unwrap().len()
    };
    wire.requests().into_iter().map(keys).collect()
}

/// The sizes of the groups in which these writes leave.
fn sizes(verb: Verb, writes: &[RecordWrite]) -> Vec<usize> {
    let (_, statements) = statements_of(&Wire::default().store(), verb, writes);
    gather(statements).iter().map(Vec::len).collect()
}

#[test]
fn a_group_has_as_many_statements_as_dynamodb_takes() {
    for (count, expected) in [
        (24, vec![24]),
        (25, vec![25]),
        (26, vec![25, 1]),
        (51, vec![25, 25, 1]),
    ] {
        let writes: Vec<_> = (0..count).map(claim).collect();
        assert_eq!(sizes(Verb::Insert, &writes), expected, "{count}");
    }
}

#[test]
fn a_group_has_no_more_bytes_than_a_request_may_have() {
    let store = Wire::default().store();
    let of_size = |bytes: usize| {
        let (_, bare) = statements_of(&store, Verb::Update, &[completion(1, 0)]);
        completion(1, bytes - bare[0].size())
    };
    let (half, third) = (MOST_BYTES / 2, MOST_BYTES / 4 + 1);
    for (bytes, expected) in [
        (vec![half, half], vec![2]),
        (vec![half, half + 1], vec![1, 1]),
        (vec![third; 4], vec![3, 1]),
        (vec![half, half, half, half], vec![2, 2]),
        (vec![MOST_BYTES + 1, half, half], vec![1, 2]),
        (vec![half, MOST_BYTES, 1_000, 1_000], vec![1, 1, 2]),
        (vec![MOST_BYTES], vec![1]),
        (vec![1_000, MOST_BYTES - 1_000], vec![2]),
    ] {
        let writes: Vec<_> = bytes.iter().copied().map(of_size).collect();
        assert_eq!(sizes(Verb::Update, &writes), expected, "{bytes:?}");
    }
}

/// The caller sends it alone.
fn is_not_sent<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::NotSent))
}

/// The write was refused, and the record that it met is not shown.
fn is_refused(answer: &Result<Answer, StoreError>) -> bool {
    matches!(answer, Ok(Answer::Refused(None)))
}

/// The caller sends it alone, and hears that it may have applied.
fn is_uncertain<T>(answer: &Result<T, StoreError>) -> bool {
    let is_left = |error: &StoreError| error.is_left_to_caller() && error.is_uncertain();
    answer.as_ref().is_err_and(is_left)
}

#[tokio::test(start_paused = true)]
async fn two_writes_of_a_kind_leave_in_one_request_and_one_alone_by_itself() {
    let wire = Wire::answering([statements(&[applied(), applied()])]);
    let answers = write_all(&wire.store(), &[claim(1), claim(2)], soon()).await;
    for answer in answers {
        assert_matches!(answer, Ok(Answer::Applied(None)));
    }
    assert_eq!(wire.actions(), ["BatchExecuteStatement"]);

    let wire = Wire::answering([]);
    let answers = write_all(&wire.store(), &[claim(1), completion(2, 1)], soon()).await;
    assert!(answers.iter().all(is_not_sent), "{answers:?}");
    assert_eq!(wire.actions(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn each_write_gets_the_answer_to_its_own_statement() {
    let met = json!({ "status": { "S": "COMPLETED" }, "expiration": { "N": "9" } });
    let refused =
        json!({ "Error": { "Code": "ConditionalCheckFailed", "Message": "no", "Item": met } });
    let wire = Wire::answering([statements(&[applied(), refused, applied()])]);
    let writes: Vec<_> = (0..3).map(|number| completion(number, 1)).collect();
    let answers = write_all(&wire.store(), &writes, soon()).await;
    assert_matches!(
        answers.as_slice(),
        [
            Ok(Answer::Applied(_)),
            Ok(Answer::Refused(Some(_))),
            Ok(Answer::Applied(_))
        ]
    );
    assert_eq!(wire.actions(), ["BatchExecuteStatement"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_left_to_its_caller_and_takes_none_of_the_next_groups() {
    let short = vec![applied(); MOST_STATEMENTS - 1];
    let wire = Wire::answering([statements(&short), statements(&[applied(), applied()])]);
    let writes: Vec<_> = (0..MOST_STATEMENTS + 2).map(claim).collect();
    let answers = write_all(&wire.store(), &writes, soon()).await;
    for (position, answer) in answers.iter().enumerate() {
        if position == MOST_STATEMENTS - 1 {
            assert!(is_uncertain(answer), "{answer:?}");
        } else {
            assert_matches!(answer, Ok(Answer::Applied(None)), "{position}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn claims_that_met_a_record_are_read_together() {
    let duplicate = failed("DuplicateItem");
    let group = statements(&[duplicate.clone(), applied(), duplicate]);
    let wire = Wire::answering([group, items(&[id(0), id(2)], &[])]);
    let answers = write_all(&wire.store(), &[claim(0), claim(1), claim(2)], soon()).await;
    assert_matches!(
        answers.as_slice(),
        [
            Ok(Answer::Refused(Some(_))),
            Ok(Answer::Applied(_)),
            Ok(Answer::Refused(Some(_)))
        ]
    );
    assert_eq!(wire.actions(), ["BatchExecuteStatement", "BatchGetItem"]);
}

/// A proxy or an emulator may leave the item out of a failed condition.
#[tokio::test(start_paused = true)]
async fn a_record_that_a_refusal_does_not_show_is_read() {
    let hidden = failed("ConditionalCheckFailed");
    let empty =
        json!({ "Error": { "Code": "ConditionalCheckFailed", "Message": "no", "Item": {} } });
    let group = statements(&[hidden, empty]);
    let wire = Wire::answering([group, items(&[id(0), id(1)], &[])]);
    let writes = [completion(0, 1), completion(1, 1)];
    let answers = write_all(&wire.store(), &writes, soon()).await;
    let is_shown = |answer: &Result<Answer, _>| matches!(answer, Ok(Answer::Refused(Some(_))));
    assert!(answers.iter().all(is_shown), "{answers:?}");
    assert_eq!(wire.actions(), ["BatchExecuteStatement", "BatchGetItem"]);

    // Alone.
    let record = json!({ "status": { "S": "COMPLETED" }, "expiration": { "N": "9" } });
    for item in [json!(null), json!({})] {
        for write in [claim(0), completion(0, 1)] {
            let refused = json!({ "__type": "ConditionalCheckFailedException", "Item": item });
            let read = Some((200, json!({ "Item": record })));
            let wire = Wire::answering([Some((400, refused)), read]);
            let answer = wire.store().write(&write, soon()).await;
            assert!(is_shown(&answer), "{answer:?}");
            let requests = wire.requests();
            assert_eq!(requests[1].0, "GetItem");
            assert_eq!(requests[1].1["ConsistentRead"], true);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_stands_where_the_record_can_not_be_read() {
    let wire = Wire::answering([error(400, "ConditionalCheckFailedException"), None]);
    let answer = wire.store().write(&claim(0), soon()).await;
    assert_matches!(answer, Ok(Answer::Refused(None)));
    let wire = Wire::answering([statements(&[failed("DuplicateItem"), applied()]), None]);
    let deadline = Instant::now() + PATIENCE / 2;
    let answers = write_all(&wire.store(), &[claim(0), claim(1)], deadline).await;
    assert_matches!(answers[0], Ok(Answer::Refused(None)), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_record_is_read_in_vain_is_refused_and_holds_up_no_other() {
    for refused in [1, 2] {
        let mut replies = vec![failed("DuplicateItem"); refused];
        replies.push(applied());
        let wire = Wire::answering([statements(&replies), None]);
        let writes: Vec<_> = (0..=refused).map(claim).collect();
        let began = Instant::now();
        let answers = write_all(&wire.store(), &writes, soon()).await;
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
        assert!(answers[..refused].iter().all(is_refused), "{answers:?}");
        assert!(answers[refused].is_ok(), "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_holds_up_none_of_the_others() {
    let wire = Wire::answering([statements(&[applied(), applied()]), None]);
    let large = |number| completion(number, MOST_BYTES / 3);
    let writes: Vec<_> = (0..4).map(large).collect();
    assert_eq!(sizes(Verb::Update, &writes), [2, 2]);
    let began = Instant::now();
    let answers = write_all(&wire.store(), &writes, soon()).await;
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    assert!(answers[..2].iter().all(Result::is_ok), "{answers:?}");
    assert!(answers[2..].iter().all(is_uncertain), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_group_takes_no_time_from_the_groups() {
    let wire = Wire::answering([None]);
    let mut writes: Vec<_> = (0..2).map(|number| completion(number, 1)).collect();
    writes.push(completion(2, MOST_BYTES));
    assert_eq!(sizes(Verb::Update, &writes), [2, 1]);
    let answers = write_all(&wire.store(), &writes, soon()).await;
    let is_late = |answer: &Result<_, _>| matches!(answer, Err(StoreError::Timeout));
    assert!(answers[..2].iter().all(is_late), "{answers:?}");
    assert!(is_not_sent(&answers[2]), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_that_shows_no_journal_is_unreadable() {
    let seen = crate::protocol::record::Version::default();
    let RecordWrite::Create(claim) = claim(0) else {
        panic!("no claim")
    };
    let mode = crate::protocol::record::Takeover::Resume;
    let write = RecordWrite::TakeOver { seen, mode, claim };
    let wire = Wire::answering([Some((200, json!({})))]);
    let answer = wire.store().write(&write, soon()).await;
    let Ok(Answer::Applied(Some(found))) = answer else {
        panic!("{answer:?}")
    };
    assert!(found.content.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_the_table_refuses_for_now_is_answered_so() {
    for (code, is_conflict) in [
        ("ThrottlingError", false),
        ("ProvisionedThroughputExceeded", false),
        ("TransactionConflict", true),
    ] {
        let wire = Wire::answering([statements(&[applied(), failed(code)])]);
        let answers = write_all(&wire.store(), &[claim(1), claim(2)], soon()).await;
        assert!(answers[0].is_ok(), "{answers:?}");
        let is_said = match &answers[1] {
            Err(StoreError::Conflict) => is_conflict,
            Err(StoreError::Throttled(reason)) => {
                let said = reason.to_string();
                !is_conflict && said.contains(RECORDS) && said.ends_with("names: no")
            }
            _ => false,
        };
        assert!(is_said, "{answers:?}");
        assert_eq!(wire.actions(), ["BatchExecuteStatement"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_may_have_applied_is_left_to_its_caller() {
    for answers in [
        vec![applied(), failed("InternalServerError")],
        vec![applied()],
    ] {
        let wire = Wire::answering([statements(&answers)]);
        let answered = write_all(&wire.store(), &[claim(1), claim(2)], soon()).await;
        assert!(answered[0].is_ok(), "{answered:?}");
        assert!(is_uncertain(&answered[1]), "{answered:?}");
        assert_eq!(wire.actions(), ["BatchExecuteStatement"]);
    }
    // One that was refused for certain gets the reason by itself.
    let wire = Wire::answering([statements(&[applied(), failed("ValidationError")])]);
    let answered = write_all(&wire.store(), &[claim(1), claim(2)], soon()).await;
    assert!(is_not_sent(&answered[1]), "{answered:?}");
}

/// The table throttles the partition of a record that a claim met.
#[tokio::test(start_paused = true)]
async fn a_claim_is_refused_where_the_table_leaves_out_the_record_that_it_met() {
    // The record may be its own where an earlier send of the group had no answer.
    for is_silent in [false, true] {
        let silent = is_silent.then(|| error(500, "InternalServerError"));
        let group = statements(&[failed("DuplicateItem"), failed("DuplicateItem")]);
        let left = items(&[id(0)], &[id(1)]);
        let wire = Wire::answering(silent.into_iter().chain([group, left]));
        let store = wire.retrying(RetryConfig::standard().with_max_attempts(2));
        let answers = write_all(&store, &[claim(0), claim(1)], soon()).await;
        let is_shown = matches!(answers[0], Ok(Answer::Refused(Some(_))));
        assert!(is_shown && is_refused(&answers[1]), "{answers:?}");
        assert_eq!(wire.actions().last().unwrap(), "BatchGetItem");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_never_arrives_is_not_sent_again_one_by_one() {
    for reply in [None, error(500, "InternalServerError")] {
        let wire = Wire::answering([reply.clone()]);
        for answer in write_all(&wire.store(), &[claim(1), claim(2)], soon()).await {
            match reply {
                None => assert_matches!(answer, Err(StoreError::Timeout)),
                Some(_) => assert_matches!(answer, Err(StoreError::Unavailable(_))),
            }
        }
        assert_eq!(wire.actions().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_refused_after_a_send_without_an_answer_may_have_applied() {
    let each = |code| statements(&[failed(code), failed(code)]);
    for (refusal, is_throttled) in [
        (error(400, "ThrottlingException"), true),
        (error(400, "TransactionConflictException"), false),
        (error(400, "AccessDeniedException"), false),
        (each("ThrottlingError"), true),
        (each("AccessDenied"), false),
    ] {
        let wire = Wire::answering([error(500, "InternalServerError"), refusal]);
        let store = wire.retrying(RetryConfig::standard().with_max_attempts(2));
        let answers = write_all(&store, &[claim(1), claim(2)], soon()).await;
        assert_eq!(wire.actions(), ["BatchExecuteStatement"; 2]);
        for answer in answers {
            assert_eq!(is_uncertain(&answer), !is_throttled, "{answer:?}");
            let error = answer.unwrap_err();
            assert!(error.is_uncertain(), "{error:?}");
            assert_eq!(matches!(error, StoreError::Throttled(_)), is_throttled);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_lacking_is_asked_for_once() {
    let denied = error(400, "AccessDeniedException");
    let by_statement = statements(&[failed("AccessDenied"), failed("AccessDenied")]);
    for refusal in [denied, by_statement] {
        let wire = Wire::answering([refusal, Some((200, json!({})))]);
        let store = wire.store();
        for _ in 0..2 {
            let answers = write_all(&store, &[claim(1), claim(2)], soon()).await;
            assert!(answers.iter().all(is_not_sent), "{answers:?}");
        }
        assert_eq!(wire.actions(), ["BatchExecuteStatement"]);
        assert!(store.denied.has(Action::Insert));
        assert!(!store.denied.has(Action::Update) && !store.denied.has(Action::Get));
    }

    let denied = error(400, "AccessDeniedException");
    let wire = Wire::answering([denied, Some((200, json!({})))]);
    let store = wire.store();
    for _ in 0..2 {
        let found = load_all(&store, &ids(2), soon()).await;
        assert!(found.iter().all(is_not_sent), "{found:?}");
    }
    assert_eq!(wire.actions(), ["BatchGetItem"]);
    assert!(store.denied.has(Action::Get) && !store.denied.has(Action::Insert));
}

#[tokio::test(start_paused = true)]
async fn records_are_read_together_up_to_as_many_as_dynamodb_takes() {
    for (count, expected) in [(2, vec![2]), (100, vec![100]), (102, vec![100, 2])] {
        let ids = ids(count);
        let wire = Wire::answering([items(&[], &[])]);
        let found = load_all(&wire.store(), &ids, soon()).await;
        assert_eq!(found.len(), count);
        assert_eq!(asked(&wire), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_is_found_under_its_own_id() {
    let wire = Wire::answering([items(&[id(2), id(0)], &[])]);
    let found = load_all(&wire.store(), &ids(3), soon()).await;
    assert_matches!(&found[..], [Ok(Some(_)), Ok(None), Ok(Some(_))]);
}

#[tokio::test(start_paused = true)]
async fn one_record_is_read_by_itself_and_one_that_is_asked_for_twice_is_not() {
    let wire = Wire::answering([Some((200, json!({})))]);
    let found = load_all(&wire.store(), &[id(1)], soon()).await;
    assert_matches!(&found[..], [Ok(None)]);
    assert_eq!(wire.actions(), ["GetItem"]);
    let found = load_all(&wire.store(), &[id(1), id(1)], soon()).await;
    assert!(found.iter().all(is_not_sent), "{found:?}");
    assert_eq!(wire.actions(), ["GetItem"]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_were_left_out_are_asked_for_again_after_pauses_that_double() {
    let all = ids(3);
    let left = |ids: &[RecordId]| items(&[], ids);
    let wire = Wire::answering([
        left(&all),
        items(&all[..1], &all[1..]),
        items(&all[1..2], &all[2..]),
        items(&all[2..], &[]),
    ]);
    let began = Instant::now();
    let found = load_all(&wire.store(), &all, soon()).await;
    assert_matches!(&found[..], [Ok(Some(_)), Ok(Some(_)), Ok(Some(_))]);
    assert_eq!(began.elapsed(), Duration::from_millis(10 + 20 + 40));
    assert_eq!(asked(&wire), [3, 3, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_left_out_for_too_long_are_throttled() {
    // The third pause would end at the deadline.
    let wire = Wire::answering([items(&[], &ids(2))]);
    let began = Instant::now();
    let deadline = began + Duration::from_millis(10 + 20 + 40);
    let found = load_all(&wire.store(), &ids(2), deadline).await;
    let words = "DynamoDB names: none (a read of several left the key out)";
    let is_throttled = |found: &Result<_, _>| match found {
        Err(StoreError::Throttled(reason)) => reason.to_string().ends_with(words),
        _ => false,
    };
    assert!(found.iter().all(is_throttled), "{found:?}");
    assert_eq!(began.elapsed(), Duration::from_millis(10 + 20));
    assert_eq!(wire.actions(), ["BatchGetItem"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_left_out_again_and_again_holds_up_no_other() {
    let all = ids(3);
    let wire = Wire::answering([items(&all[..2], &all[2..]), items(&[], &all[2..])]);
    let began = Instant::now();
    let found = load_all(&wire.store(), &all, soon()).await;
    assert_matches!(
        &found[..],
        [Ok(Some(_)), Ok(Some(_)), Err(StoreError::Throttled(_))]
    );
    assert_eq!(began.elapsed(), Duration::from_millis(10 + 20 + 40));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_asked_for_again_in_vain_holds_up_no_other() {
    let all = ids(2);
    let wire = Wire::answering([items(&all[..1], &all[1..]), None]);
    let began = Instant::now();
    let found = load_all(&wire.store(), &all, soon()).await;
    assert_matches!(&found[..], [Ok(Some(_)), Err(StoreError::Throttled(_))]);
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
}
