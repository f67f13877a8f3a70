//! `FailOpen` is for a store that can't be reached: one that has answered the request keeps it closed.

use std::convert::Infallible;
use std::time::Duration;

use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Error, Idempotency, OnStoreUnavailable, Outcome, StoreError};

use super::{Bench, key, payload, run};
use crate::on_each_server;
use crate::support::{Begun, Fault, Server};

fn open(bench: &Bench, clock: &ManualClock) -> Idempotency {
    bench.once_with(|once| {
        once.clock(clock.clone())
            .on_store_unavailable(OnStoreUnavailable::FailOpen)
    })
}

on_each_server!(a_record_that_was_met_keeps_the_door_closed_when_the_takeover_gets_no_answer);
async fn a_record_that_was_met_keeps_the_door_closed_when_the_takeover_gets_no_answer(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let open = open(&bench, &clock);
    let begun = Begun::default();
    // A step of it may have had its effect, and its journal would say so.
    let crashed = open.run(key(), payload(), |_| {
        begun.then_never::<Result<i32, Infallible>>()
    });
    begun.cut_off(crashed).await;
    clock.advance(Duration::from_hours(1));
    bench.proxy.repeat("UpdateItem", Fault::LoseRequest, 20);
    let refused = run(&open, 1).await;
    assert_matches!(refused, Err(Error::Store(StoreError::Unavailable(_))));
}

on_each_server!(a_store_that_throttled_keeps_the_door_closed_when_the_next_try_gets_no_answer);
async fn a_store_that_throttled_keeps_the_door_closed_when_the_next_try_gets_no_answer(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let open = open(&bench, &ManualClock::default());
    // As often as the SDK tries; then as often again, without an answer.
    for fault in [Fault::THROTTLE, Fault::LoseRequest] {
        bench.proxy.repeat("PutItem", fault, 3);
    }
    let refused = run(&open, 1).await;
    assert_matches!(refused, Err(Error::Store(StoreError::Unavailable(_))));
    bench.proxy.repeat("PutItem", Fault::LoseRequest, 3);
    assert_eq!(run(&open, 2).await.unwrap(), Outcome::Unprotected(2));
}

on_each_server!(a_record_that_only_the_release_meets_keeps_the_door_closed);
async fn a_record_that_only_the_release_meets_keeps_the_door_closed(server: Server) {
    let bench = Bench::on(&server).await;
    let open = open(&bench, &ManualClock::default());
    assert_eq!(run(&open, 1).await.unwrap(), Outcome::Executed(1));
    // The claim gets no answer. Its release does: it meets the outcome.
    bench.proxy.repeat("PutItem", Fault::LoseRequest, 3);
    let refused = run(&open, 2).await;
    assert_matches!(refused, Err(Error::Store(StoreError::Unavailable(_))));
    assert!(run(&open, 3).await.unwrap().is_replayed());
}

on_each_server!(work_whose_completion_was_not_answered_keeps_the_door_closed);
async fn work_whose_completion_was_not_answered_keeps_the_door_closed(server: Server) {
    let bench = Bench::on(&server).await;
    let open = open(&bench, &ManualClock::default());
    bench
        .proxy
        .inject("UpdateItem", Fault::Park { applies: false });
    tokio::select! {
        ended = run(&open, 1) => panic!("{ended:?}"),
        () = bench.proxy.parked() => {}
    }
    for operation in ["UpdateItem", "PutItem"] {
        bench.proxy.repeat(operation, Fault::LoseRequest, 20);
    }
    let refused = run(&open, 2).await;
    assert_matches!(refused, Err(Error::Store(StoreError::Unavailable(_))));
    bench.proxy.forget();
    assert_eq!(run(&open, 3).await.unwrap().into_inner(), 1);
}
