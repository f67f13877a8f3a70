//! Runs in which the wire or the table fails, seen through the real SDK.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Error as HandlerError;
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::{DynamoDbError, DynamoDbStore};
use lambda_idempotency::protocol::record::{NewClaim, Owner, RecordWrite};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Claim, EpochMillis, Error, Fingerprint, Idempotency, InFlight, Key, OnStoreUnavailable,
    Outcome, StoreError, Unrecorded,
};

use crate::on_each_server;
use crate::secrets::Log;
use crate::support::{Bench, Fault, Server, builder_on, number, string};

mod answered;
mod completions;
mod dropped;

const ID: &str = "faults#1";

fn in_an_hour() -> AttributeValue {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    number(i64::try_from(now.as_secs()).unwrap() + 3_600)
}

fn key() -> Key {
    Key::raw("charge", ID)
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"payload")
}

async fn run(once: &Idempotency, value: i32) -> Result<Outcome<i32>, Error<Infallible>> {
    once.run(key(), payload(), |_| async move { Ok(value) })
        .await
}

fn fails(_: Claim) -> Ready<Result<i32, HandlerError>> {
    ready(Err(HandlerError::other("down")))
}

/// Returns the error of a run on a store that takes no request.
async fn refused(store: DynamoDbStore) -> Error<Infallible> {
    let once = builder_on(store, "faults").build().unwrap();
    run(&once, 1).await.unwrap_err()
}

on_each_server!(a_completion_whose_reply_is_lost_is_recorded_once);
async fn a_completion_whose_reply_is_lost_is_recorded_once(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("UpdateItem", Fault::LoseReply);
    assert_eq!(run(&bench.once(), 1).await.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.proxy.take_counts()["UpdateItem"], 2);
    assert_eq!(bench.item(ID).await["data"], string("1"));
    assert!(run(&bench.once(), 2).await.unwrap().is_replayed());
}

on_each_server!(a_completion_whose_reply_is_lost_by_every_try_of_the_sdk_is_recorded_once);
async fn a_completion_whose_reply_is_lost_by_every_try_of_the_sdk_is_recorded_once(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("UpdateItem", Fault::LoseReply, 4);
    assert_eq!(run(&bench.once(), 1).await.unwrap(), Outcome::Executed(1));
    assert!(run(&bench.once(), 2).await.unwrap().is_replayed());
}

on_each_server!(a_release_whose_reply_is_lost_has_released);
async fn a_release_whose_reply_is_lost_has_released(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("UpdateItem", Fault::LoseReply);
    let once = bench.once();
    let failed = once.run(key(), payload(), fails).await;
    assert_matches!(failed, Err(Error::Handler(_)));
    assert_eq!(bench.item(ID).await["in_progress_expiration"], number(0));
    assert_eq!(run(&once, 1).await.unwrap(), Outcome::Executed(1));
}

on_each_server!(a_takeover_whose_reply_is_lost_is_still_mine);
async fn a_takeover_whose_reply_is_lost_is_still_mine(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    once.run(key(), payload(), fails).await.unwrap_err();
    bench.proxy.inject("UpdateItem", Fault::LoseReply);
    let attempt = once.run(key(), payload(), |claim| async move {
        Ok::<_, Infallible>(claim.attempt())
    });
    assert_eq!(attempt.await.unwrap(), Outcome::Executed(2));
}

on_each_server!(a_retry_whose_claim_has_no_reply_is_a_retry);
async fn a_retry_whose_claim_has_no_reply_is_a_retry(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let (log, _capture) = Log::capture();
    once.run(key(), payload(), fails).await.unwrap_err();
    bench.proxy.inject("UpdateItem", Fault::LoseReply);
    once.run(key(), payload(), fails).await.unwrap_err();
    assert!(!log.text().contains("taken_over"), "{}", log.text());
    // Neither attempt may have had an effect that another payload would meet.
    let other = once.run(key(), Fingerprint::bytes(b"other"), async |_| {
        Ok::<_, Infallible>(3)
    });
    assert_eq!(other.await.unwrap(), Outcome::Executed(3));
}

on_each_server!(a_completion_is_tried_for_as_long_as_there_is_time);
async fn a_completion_is_tried_for_as_long_as_there_is_time(server: Server) {
    let bench = Bench::on(&server).await;
    for fault in [
        Fault::INTERNAL,
        Fault::THROTTLE,
        Fault::LoseRequest,
        Fault::INTERNAL,
        Fault::CONFLICT,
    ] {
        bench.proxy.inject("UpdateItem", fault);
    }
    assert_eq!(run(&bench.once(), 1).await.unwrap(), Outcome::Executed(1));
}

on_each_server!(a_success_that_cannot_be_recorded_is_returned_and_never_released);
async fn a_success_that_cannot_be_recorded_is_returned_and_never_released(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("UpdateItem", Fault::DENY);
    assert_eq!(run(&bench.once(), 1).await.unwrap(), Outcome::Unrecorded(1));
    let item = bench.item(ID).await;
    assert_eq!(item["status"], string("INPROGRESS"));
    assert_ne!(item["in_progress_expiration"], number(0));
    assert_matches!(run(&bench.once(), 2).await, Err(Error::InFlight { .. }));
}

on_each_server!(a_success_that_cannot_be_recorded_is_an_error_where_the_setting_asks);
async fn a_success_that_cannot_be_recorded_is_an_error_where_the_setting_asks(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("UpdateItem", Fault::DENY);
    let once =
        bench.once_with(|once| once.settings(|settings| settings.unrecorded = Unrecorded::Fail));
    let Err(Error::Unrecorded(error)) = run(&once, 1).await else {
        panic!("reported")
    };
    assert!(error.to_string().contains("dynamodb:UpdateItem"), "{error}");
}

on_each_server!(a_claim_that_comes_back_after_its_own_lease_is_released_and_not_run);
async fn a_claim_that_comes_back_after_its_own_lease_is_released_and_not_run(server: Server) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let once = bench.builder().clock(clock.clone()).build().unwrap();
    bench
        .proxy
        .inject("PutItem", Fault::Delay(Duration::from_secs(1)));
    let meanwhile = async {
        bench.proxy.held().await;
        clock.advance(Duration::from_hours(1));
    };
    let (late, ()) = tokio::join!(run(&once, 1), meanwhile);
    assert_matches!(late, Err(Error::TooLate));
    assert_eq!(bench.item(ID).await["in_progress_expiration"], number(0));
    assert_eq!(run(&bench.once(), 1).await.unwrap(), Outcome::Executed(1));
}

on_each_server!(conflicts_and_throttles_on_a_claim_are_retried);
async fn conflicts_and_throttles_on_a_claim_are_retried(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("PutItem", Fault::CONFLICT, 2);
    bench.proxy.repeat("PutItem", Fault::THROTTLE, 3);
    assert_eq!(run(&bench.once(), 1).await.unwrap(), Outcome::Executed(1));
}

on_each_server!(a_table_that_throttles_to_the_end_is_reported_as_such);
async fn a_table_that_throttles_to_the_end_is_reported_as_such(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("PutItem", Fault::THROTTLE, 200);
    let once = bench.once_with(|once| {
        once.settings(|settings| settings.store_timeout = Duration::from_millis(600))
    });
    let error = run(&once, 1).await.unwrap_err();
    assert_matches!(
        error,
        Error::Store(StoreError::Throttled(_) | StoreError::Timeout)
    );
}

on_each_server!(a_function_without_permission_is_told_which_action_it_lacks);
async fn a_function_without_permission_is_told_which_action_it_lacks(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("PutItem", Fault::DENY);
    let once = bench.once_with(|once| once.on_store_unavailable(OnStoreUnavailable::FailOpen));
    let error = run(&once, 1).await.unwrap_err();
    let Error::Store(StoreError::Denied(reason)) = error else {
        panic!("{error}")
    };
    assert_matches!(
        reason.downcast_ref(),
        Some(DynamoDbError::AccessDenied {
            action: "dynamodb:PutItem",
            ..
        })
    );
}

on_each_server!(a_table_that_does_not_exist_is_named);
async fn a_table_that_does_not_exist_is_named(server: Server) {
    let error = refused(DynamoDbStore::new(server.client(), "no-such-table")).await;
    assert!(error.to_string().contains("no-such-table"), "{error}");
    let Error::Store(StoreError::Misconfigured(reason)) = error else {
        panic!("{error}")
    };
    assert_matches!(
        reason.downcast_ref(),
        Some(DynamoDbError::TableNotFound { .. })
    );
}

on_each_server!(a_table_with_another_key_schema_is_explained);
async fn a_table_with_another_key_schema_is_explained(server: Server) {
    let other = server.table_with_key("other-key", "pk").await;
    let error = refused(DynamoDbStore::new(server.client(), &other)).await;
    assert!(error.to_string().contains("partition key `id`"), "{error}");
    let Error::Store(StoreError::Misconfigured(reason)) = error else {
        panic!("{error}")
    };
    assert_matches!(reason.downcast_ref(), Some(DynamoDbError::Schema { .. }));

    let simple = server.idempotency_table().await;
    let store = DynamoDbStore::new(server.client(), simple)
        .layout(|layout| layout.composite_key("id", "all", "sk"));
    let error = refused(store).await;
    assert!(error.to_string().contains("sort key `sk`"), "{error}");
}

on_each_server!(records_that_cannot_be_read_are_left_alone);
async fn records_that_cannot_be_read_are_left_alone(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let ours = [
        ("v", number(1)),
        ("owner", string("x")),
        ("attempt", number(1)),
        ("expiration", in_an_hour()),
    ];
    let with = |more: &[(&'static str, AttributeValue)]| [&ours, more].concat();
    let items = [
        vec![],
        vec![("status", string("COMPLETED")), ("data", string("1"))],
        vec![("expiration", in_an_hour())],
        vec![("status", number(1)), ("expiration", in_an_hour())],
        vec![
            ("status", string("COMPLETED")),
            ("expiration", string("soon")),
        ],
        vec![
            ("status", string("COMPLETED")),
            ("expiration", in_an_hour()),
        ],
        vec![("status", string("PAUSED")), ("expiration", in_an_hour())],
        with(&[
            ("status", string("COMPLETED")),
            ("data", AttributeValue::Bool(true)),
        ]),
        with(&[
            ("status", string("COMPLETED")),
            ("omitted", string("because")),
        ]),
        with(&[("status", string("INPROGRESS"))]),
        with(&[
            ("status", string("INPROGRESS")),
            ("in_progress_expiration", string("x")),
        ]),
        with(&[
            ("status", string("COMPLETED")),
            ("data", string("1")),
            ("v", number(2)),
        ]),
        with(&[
            ("status", string("COMPLETED")),
            ("data", string("1")),
            ("attempt", number(-1)),
        ]),
        with(&[
            ("status", string("COMPLETED")),
            ("data", string("1")),
            ("owner", number(1)),
        ]),
    ];
    for item in items {
        bench.put(ID, item.clone()).await;
        let before = bench.item(ID).await;
        let error = run(&once, 1).await.expect_err(&format!("{item:?}"));
        assert_matches!(error, Error::Unreadable(_), "{item:?}");
        assert_eq!(bench.item(ID).await, before);
    }
}

on_each_server!(a_record_of_another_library_is_honoured);
async fn a_record_of_another_library_is_honoured(server: Server) {
    let bench = Bench::on(&server).await;
    let completed = [
        ("status", string("COMPLETED")),
        ("expiration", in_an_hour()),
        ("data", string("41")),
    ];
    bench.put(ID, completed).await;
    let Outcome::Replayed(41, replay) = run(&bench.once(), 1).await.unwrap() else {
        panic!("a replay")
    };
    assert_eq!(replay.processed_at, None);

    let in_progress = [
        ("status", string("INPROGRESS")),
        ("expiration", in_an_hour()),
    ];
    bench.put(ID, in_progress).await;
    assert_matches!(run(&bench.once(), 1).await, Err(Error::InFlight { .. }));

    let over = [
        ("status", string("INPROGRESS")),
        ("expiration", in_an_hour()),
        ("in_progress_expiration", number(1)),
    ];
    bench.put(ID, over).await;
    assert_eq!(run(&bench.once(), 2).await.unwrap(), Outcome::Executed(2));
    let item = bench.item(ID).await;
    assert_eq!([&item["v"], &item["attempt"]], [&number(1), &number(2)]);
}

on_each_server!(a_claim_whose_replies_are_all_lost_does_not_hold_the_key);
async fn a_claim_whose_replies_are_all_lost_does_not_hold_the_key(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("PutItem", Fault::LoseReply, 3);
    let error = run(&bench.once(), 1).await.unwrap_err();
    assert_matches!(error, Error::Store(StoreError::Unavailable(_)));
    assert_eq!(run(&bench.once(), 2).await.unwrap(), Outcome::Executed(2));
}

on_each_server!(throttling_never_opens_the_door);
async fn throttling_never_opens_the_door(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("PutItem", Fault::THROTTLE, 200);
    let open = bench.once_with(|once| {
        once.on_store_unavailable(OnStoreUnavailable::FailOpen)
            .settings(|settings| settings.store_timeout = Duration::from_secs(2))
    });
    let refused = run(&open, 1).await;
    assert_matches!(refused, Err(Error::Store(StoreError::Throttled(_))));
}

on_each_server!(a_read_that_fails_while_waiting_never_opens_the_door);
async fn a_read_that_fails_while_waiting_never_opens_the_door(server: Server) {
    let bench = Bench::on(&server).await;
    let waiting = bench.once_with(|once| {
        once.on_store_unavailable(OnStoreUnavailable::FailOpen)
            .in_flight(InFlight::WaitUpTo(Duration::from_millis(100)))
    });
    bench.proxy.repeat("GetItem", Fault::LoseRequest, 100);
    let first = bench.once();
    let outcome = first.run(key(), payload(), |_| async {
        let second = run(&waiting, 2).await;
        assert_matches!(second, Err(Error::InFlight { .. }));
        Ok::<_, Infallible>(1)
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_fails_closed_unless_told_otherwise() {
    let nowhere = || DynamoDbStore::new(Server::behind("http://127.0.0.1:1".into()).client(), "t");
    let error = refused(nowhere()).await;
    assert_matches!(error, Error::Store(StoreError::Unavailable(_)));

    let open = builder_on(nowhere(), "faults").on_store_unavailable(OnStoreUnavailable::FailOpen);
    let open = open.build().unwrap();
    assert_eq!(run(&open, 1).await.unwrap(), Outcome::Unprotected(1));
}

on_each_server!(a_group_that_failed_tells_each_of_its_members_once);
async fn a_group_that_failed_tells_each_of_its_members_once(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let now = EpochMillis::from(SystemTime::now());
    let claims = [1, 2, 3].map(|number| {
        let id = once.record_id(&Key::new("op", number.to_string())).unwrap();
        let owner = Owner::random().unwrap();
        let expiration = (now + Duration::from_hours(1)).ceil_seconds();
        let lease = now + Duration::from_mins(1);
        RecordWrite::from(NewClaim::new(id, owner, now, lease, expiration))
    });
    bench
        .proxy
        .repeat("BatchExecuteStatement", Fault::INTERNAL, 3);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    for answer in once.store().write_all(&claims, deadline).await {
        let told = answer.unwrap_err().to_string();
        assert_eq!(told.matches("could not be reached").count(), 1, "{told}");
    }
}
