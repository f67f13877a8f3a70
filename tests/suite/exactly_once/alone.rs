//! No claim, and nothing to write but the outcome: a single conditional write, which has no token.

use std::time::Duration;

use futures_util::future::join_all;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Error, Idempotency, Outcome, StoreError, Verdict};

use super::{Bench, Failed, denied_action, key, number, payload, string};
use crate::on_each_server;
use crate::support::Server;
use crate::support::{Fault, Proxy};

async fn answer<T>(once: &Idempotency, value: T) -> Result<Outcome<T>, Error<Failed>>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    once.claimless()
        .run(key(), payload(), async |_| Ok(value))
        .await
}

on_each_server!(it_is_one_write_and_no_transaction);
async fn it_is_one_write_and_no_transaction(server: Server) {
    let bench = Bench::on(&server).await;
    assert_eq!(
        answer(&bench.once(), 1).await.unwrap(),
        Outcome::Executed(1)
    );
    let again = answer(&bench.once(), 2).await.unwrap();
    assert!(again.is_replayed());
    assert_eq!(again.into_inner(), 1);
    let counts = bench.proxy.take_counts();
    assert_eq!(counts["PutItem"], 2);
    assert_eq!(counts.len(), 1, "{counts:?}");
    let record = bench.record().await;
    for (attribute, value) in [
        ("status", string("COMPLETED")),
        ("attempt", number(1)),
        ("data", string("1")),
        ("v", number(1)),
    ] {
        assert_eq!(record[attribute], value, "{attribute}");
    }
    assert!(!record.contains_key("in_progress_expiration"));
}

on_each_server!(of_many_at_once_one_applies);
async fn of_many_at_once_one_applies(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let results = join_all((0..8).map(|value| answer(&once, value))).await;
    let outcomes: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| !outcome.is_replayed())
            .count(),
        1
    );
    let first = outcomes[0].get();
    assert!(outcomes.iter().all(|outcome| outcome.get() == first));
}

on_each_server!(a_copy_that_meets_its_own_record_has_executed);
async fn a_copy_that_meets_its_own_record_has_executed(server: Server) {
    let bench = Bench::on(&server).await;
    for _ in 0..4 {
        bench.proxy.inject("PutItem", Fault::LoseReply);
    }
    assert_eq!(
        answer(&bench.once(), 1).await.unwrap(),
        Outcome::Executed(1)
    );
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
    for _ in 0..4 {
        bench.proxy.inject("UpdateItem", Fault::LoseReply);
    }
    assert_eq!(
        answer(&bench.once(), 1).await.unwrap(),
        Outcome::Executed(1)
    );
    let record = bench.record().await;
    assert_eq!(record["attempt"], number(2));
    assert!(record.contains_key("last_error"), "a takeover keeps it");
    assert!(!record.contains_key("in_progress_expiration"));
}

on_each_server!(a_reply_that_is_lost_to_the_end_is_settled_by_a_read);
async fn a_reply_that_is_lost_to_the_end_is_settled_by_a_read(server: Server) {
    let bench = Bench::on(&server).await;
    for _ in 0..200 {
        bench.proxy.inject("PutItem", Fault::LoseReply);
    }
    let once = bench
        .builder()
        .lease(Duration::from_secs(2))
        .build()
        .unwrap();
    assert_eq!(answer(&once, 1).await.unwrap(), Outcome::Executed(1));
}

on_each_server!(a_request_that_is_lost_to_the_end_is_unknown_and_a_retry_runs);
async fn a_request_that_is_lost_to_the_end_is_unknown_and_a_retry_runs(server: Server) {
    let bench = Bench::on(&server).await;
    for _ in 0..200 {
        bench.proxy.inject("PutItem", Fault::LoseRequest);
    }
    let once = bench
        .builder()
        .lease(Duration::from_secs(2))
        .build()
        .unwrap();
    let unknown = answer(&once, 1).await;
    assert!(
        matches!(unknown, Err(Error::OutcomeUnknown(_))),
        "{unknown:?}"
    );
    let bench = Bench {
        proxy: Proxy::before(&server).await,
        ..bench
    };
    assert_eq!(
        answer(&bench.once(), 2).await.unwrap(),
        Outcome::Executed(2)
    );
}

on_each_server!(a_conflict_and_throttling_are_tried_again);
async fn a_conflict_and_throttling_are_tried_again(server: Server) {
    let bench = Bench::on(&server).await;
    for fault in [Fault::CONFLICT, Fault::THROTTLE, Fault::INTERNAL] {
        bench.proxy.inject("PutItem", fault);
    }
    assert_eq!(
        answer(&bench.once(), 1).await.unwrap(),
        Outcome::Executed(1)
    );
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
    assert_eq!(answer(&once, 1).await.unwrap(), Outcome::Executed(1));
    clock.advance(Duration::from_hours(2));
    assert_eq!(answer(&once, 2).await.unwrap(), Outcome::Executed(2));
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
    assert_eq!(answer(&once, 1).await.unwrap(), Outcome::Executed(1));
    assert!(answer(&once, 2).await.unwrap().is_replayed());
}
