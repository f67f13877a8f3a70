//! Runs that are dropped while their process lives on, through the real SDK.

use lambda_idempotency::OnCrash;

use super::*;
use crate::support::Begun;
use crate::support::crash::drop_when;

on_each_server!(a_run_that_is_dropped_in_its_handler_is_released_by_the_next_call);
async fn a_run_that_is_dropped_in_its_handler_is_released_by_the_next_call(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let begun = Begun::default();
    let held = once.run(key(), payload(), |_| {
        begun.then_never::<Result<i32, Infallible>>()
    });
    begun.hang_up(held).await;
    assert_eq!(bench.item(ID).await["status"], string("INPROGRESS"));
    bench.proxy.take_total();
    let next = once.run(key(), payload(), |claim| async move {
        Ok::<_, Infallible>(claim.attempt())
    });
    assert_eq!(next.await.unwrap(), Outcome::Executed(2));
    // The release; then a claim that is refused, a takeover and a completion, as after any release.
    assert_eq!(bench.proxy.take_total(), 4);
}

on_each_server!(an_outcome_whose_completion_is_dropped_is_stored_by_the_next_call);
async fn an_outcome_whose_completion_is_dropped_is_stored_by_the_next_call(server: Server) {
    for applies in [true, false] {
        for policy in [OnCrash::RunAgain, OnCrash::Interrupt] {
            let bench = Bench::on(&server).await;
            let once = bench.builder().on_crash(policy).build().unwrap();
            bench.proxy.inject("UpdateItem", Fault::Park { applies });
            drop_when(bench.proxy.parked(), run(&once, 1)).await;
            let next = run(&once, 2).await.unwrap();
            assert!(next.is_replayed(), "{applies} {policy:?}");
            assert_eq!(next.into_inner(), 1);
        }
    }
}
