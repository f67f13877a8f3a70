//! No claim, and nothing to write but the outcome: a single conditional write, which has no token.

use std::time::Duration;

use futures_util::future::join_all;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Error, Idempotency, Outcome, StoreError, Verdict};

use super::{
    Bench, Failed, assert_completed_at_once, assert_one_ran, denied_action, key, number, payload,
    string,
};
use crate::on_each_server;
use crate::support::{Fault, Server};

async fn answer<T>(once: &Idempotency, value: T) -> Result<Outcome<T>, Error<Failed>>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    once.claimless()
        .run(key(), payload(), async |_| Ok(value))
        .await
}

async fn assert_answers(once: &Idempotency, value: i32) {
    let done = answer(once, value).await.unwrap();
    assert_eq!(done, Outcome::Executed(value));
}

on_each_server!(it_is_one_write_and_no_transaction);
async fn it_is_one_write_and_no_transaction(server: Server) {
    let bench = Bench::on(&server).await;
    assert_answers(&bench.once(), 1).await;
    let again = answer(&bench.once(), 2).await.unwrap();
    assert!(again.is_replayed());
    assert_eq!(again.into_inner(), 1);
    let counts = bench.proxy.take_counts();
    assert_eq!(counts["PutItem"], 2);
    assert_eq!(counts.len(), 1, "{counts:?}");
    assert_completed_at_once(&bench.record().await);
}

on_each_server!(of_many_at_once_one_applies);
async fn of_many_at_once_one_applies(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let results = join_all((0..8).map(|value| answer(&once, value))).await;
    assert_one_ran(results);
}

on_each_server!(a_copy_that_meets_its_own_record_has_executed);
async fn a_copy_that_meets_its_own_record_has_executed(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("PutItem", Fault::LoseReply, 4);
    assert_answers(&bench.once(), 1).await;
    assert!(bench.proxy.take_counts()["PutItem"] >= 2);
    assert!(answer(&bench.once(), 2).await.unwrap().is_replayed());
}

on_each_server!(a_copy_meets_its_own_takeover_too);
async fn a_copy_meets_its_own_takeover_too(server: Server) {
    let bench = Bench::on(&server).await;
    bench
        .once()
        .run(key(), payload(), async |_| Err::<i32, _>(Failed::Broken))
        .await
        .unwrap_err();
    bench.proxy.take_total();
    bench.proxy.repeat("UpdateItem", Fault::LoseReply, 4);
    assert_answers(&bench.once(), 1).await;
    let record = bench.record().await;
    assert_eq!(record["attempt"], number(2));
    assert!(record.contains_key("last_error"), "a takeover keeps it");
    assert!(!record.contains_key("in_progress_expiration"));
}

on_each_server!(a_reply_that_is_lost_to_the_end_is_settled_by_a_read);
async fn a_reply_that_is_lost_to_the_end_is_settled_by_a_read(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("PutItem", Fault::LoseReply, 200);
    let once = bench.lasting(2);
    assert_answers(&once, 1).await;
}

on_each_server!(a_request_that_is_lost_to_the_end_is_unknown_and_a_retry_runs);
async fn a_request_that_is_lost_to_the_end_is_unknown_and_a_retry_runs(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("PutItem", Fault::LoseRequest, 200);
    let once = bench.lasting(2);
    let unknown = answer(&once, 1).await;
    assert!(
        matches!(unknown, Err(Error::OutcomeUnknown(_))),
        "{unknown:?}"
    );
    bench.proxy.forget();
    assert_answers(&bench.once(), 2).await;
}

on_each_server!(a_conflict_and_throttling_are_tried_again);
async fn a_conflict_and_throttling_are_tried_again(server: Server) {
    let bench = Bench::on(&server).await;
    for fault in [Fault::CONFLICT, Fault::THROTTLE, Fault::INTERNAL] {
        bench.proxy.inject("PutItem", fault);
    }
    assert_answers(&bench.once(), 1).await;
}

on_each_server!(an_expired_record_is_replaced);
async fn an_expired_record_is_replaced(server: Server) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let once = bench
        .builder()
        .clock(clock.clone())
        .retention(Duration::from_hours(1))
        .build()
        .unwrap();
    assert_answers(&once, 1).await;
    clock.advance(Duration::from_hours(2));
    assert_answers(&once, 2).await;
    assert_eq!(bench.record().await["attempt"], number(1));
}

on_each_server!(a_permanent_failure_is_one_write_too);
async fn a_permanent_failure_is_one_write_too(server: Server) {
    let bench = Bench::on(&server).await;
    let run = async || {
        bench
            .once()
            .claimless()
            .run_with(
                key(),
                payload(),
                async |_| Err::<i32, _>(Failed::Broken),
                |_| Verdict::Fail,
            )
            .await
    };
    assert!(matches!(run().await, Err(Error::Handler(Failed::Broken))));
    assert_eq!(bench.proxy.take_counts()["PutItem"], 1);
    assert!(matches!(run().await, Err(Error::Failed(_))));
}

on_each_server!(an_outcome_that_no_item_takes_is_left_out);
async fn an_outcome_that_no_item_takes_is_left_out(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench
        .builder()
        .settings(|settings| settings.inline_limit = 1_024 * 1_024)
        .build()
        .unwrap();
    let large = "x".repeat(450 * 1_024);
    assert!(matches!(
        answer(&once, large.clone()).await,
        Ok(Outcome::Executed(_))
    ));
    assert_eq!(bench.record().await["omitted"], string("too_large"));
    assert!(matches!(
        answer(&once, large).await,
        Err(Error::OutcomeOmitted { .. })
    ));
}

on_each_server!(a_missing_permission_is_named_and_nothing_was_written);
async fn a_missing_permission_is_named_and_nothing_was_written(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("PutItem", Fault::DENY);
    let denied = answer(&bench.once(), 1).await;
    let Err(Error::NotCommitted(StoreError::Denied(reason))) = denied else {
        panic!("{denied:?}")
    };
    assert_eq!(denied_action(reason.as_ref()), Some("dynamodb:PutItem"));
}

on_each_server!(it_works_in_a_table_with_a_composite_key);
async fn it_works_in_a_table_with_a_composite_key(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.composite().await;
    bench.proxy.inject("UpdateItem", Fault::LoseReply);
    assert_answers(&once, 1).await;
    assert!(answer(&once, 2).await.unwrap().is_replayed());
}
