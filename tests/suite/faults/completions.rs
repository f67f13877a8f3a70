//! A function that may claim and may not complete doesn't repeat its effect with every delivery.

use std::time::Duration;

use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Error, Key, Outcome, StoreError};

use super::{Bench, payload};
use crate::on_each_server;
use crate::support::{Fault, Server};

on_each_server!(after_a_completion_without_permission_one_claim_a_minute_is_made);
async fn after_a_completion_without_permission_one_claim_a_minute_is_made(server: Server) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let once = bench.builder().clock(clock.clone()).build().unwrap();
    let charge = async |order: &str| {
        let handler = |_| async { Ok::<_, std::convert::Infallible>(1) };
        once.run(Key::new("charge", order), payload(), handler)
            .await
    };
    bench.proxy.repeat("UpdateItem", Fault::DENY, 2);
    assert_eq!(charge("1").await.unwrap(), Outcome::Unrecorded(1));
    bench.proxy.take_counts();
    let in_flight = charge("1").await;
    assert_matches!(in_flight, Err(Error::InFlight { .. }));
    let refused = charge("2").await;
    assert_matches!(refused, Err(Error::Store(StoreError::Denied(_))));
    let counts = bench.proxy.take_counts();
    assert_eq!(
        counts.into_iter().collect::<Vec<_>>(),
        [("GetItem".to_owned(), 2)],
        "it only read"
    );

    // A trial, whose completion is refused again.
    clock.advance(Duration::from_mins(1));
    let trial = async |_| {
        assert!(charge("4").await.is_err(), "no other one while it runs");
        Ok::<_, std::convert::Infallible>(1)
    };
    let trial = once.run(Key::new("charge", "3"), payload(), trial).await;
    assert_eq!(trial.unwrap(), Outcome::Unrecorded(1));
    assert!(charge("4").await.is_err());

    // The permission is there by the next one.
    clock.advance(Duration::from_mins(1));
    for order in ["5", "6"] {
        assert_eq!(charge(order).await.unwrap(), Outcome::Executed(1));
    }
}

on_each_server!(what_needs_no_claim_is_answered_while_no_claim_is_made_and_uses_up_no_trial);
async fn what_needs_no_claim_is_answered_while_no_claim_is_made_and_uses_up_no_trial(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let once = bench.builder().clock(clock.clone()).build().unwrap();
    let charge = async |order: &str| {
        let handler = |_| async { Ok::<_, std::convert::Infallible>(1) };
        once.run(Key::new("charge", order), payload(), handler)
            .await
    };
    charge("done").await.unwrap();
    bench.proxy.inject("UpdateItem", Fault::DENY);
    assert_eq!(charge("1").await.unwrap(), Outcome::Unrecorded(1));
    assert!(charge("done").await.unwrap().is_replayed());

    clock.advance(Duration::from_mins(1));
    assert!(charge("done").await.unwrap().is_replayed());
    assert_matches!(charge("1").await, Err(Error::InFlight { .. }));
    // A claim that meets a record only as it is written; its read was lost.
    bench.proxy.repeat("GetItem", Fault::DENY, 10);
    assert!(charge("done").await.unwrap().is_replayed());
    assert_eq!(charge("2").await.unwrap(), Outcome::Executed(1));
}
