//! No claim, and nothing to write but the outcome: a single conditional write, which has no token.

use lambda_idempotency::{Error, Outcome};

use super::Form::Alone;
use super::{Bench, Failed, key, number, payload, string};
use crate::on_each_server;
use crate::support::{Fault, Server};

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
    Alone.assert_places(&bench, &bench.once(), 1).await;
    let record = bench.record().await;
    assert_eq!(record["attempt"], number(2));
    assert!(record.contains_key("last_error"), "a takeover keeps it");
    assert!(!record.contains_key("in_progress_expiration"));
}

on_each_server!(a_conflict_and_throttling_are_tried_again);
async fn a_conflict_and_throttling_are_tried_again(server: Server) {
    let bench = Bench::on(&server).await;
    for fault in [Fault::CONFLICT, Fault::THROTTLE, Fault::INTERNAL] {
        bench.proxy.inject("PutItem", fault);
    }
    Alone.assert_places(&bench, &bench.once(), 1).await;
}

on_each_server!(an_outcome_that_no_item_takes_is_left_out);
async fn an_outcome_that_no_item_takes_is_left_out(server: Server) {
    let bench = Bench::on(&server).await;
    let once =
        bench.once_with(|once| once.settings(|settings| settings.inline_limit = 1_024 * 1_024));
    let once = once.claimless();
    let large = async |_| Ok::<_, Failed>("x".repeat(450 * 1_024));
    let executed = once.run(key(), payload(), large).await;
    assert_matches!(executed, Ok(Outcome::Executed(_)));
    assert_eq!(bench.record().await["omitted"], string("too_large"));
    let again = once.run(key(), payload(), large).await;
    assert_matches!(again, Err(Error::OutcomeOmitted { .. }));
}
