//! Sends without an answer: what they may still do when a later send of the same commit was refused.

use std::time::Duration;

use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::{
    Error, Fingerprint, Idempotency, OnStoreUnavailable, Outcome, StoreError,
};

use super::{Bench, Failed, key, number, payload, string};
use crate::metrics::{Counted, counts};
use crate::on_each_server;
use crate::secrets::Log;
use crate::support::{Fault, Server};

const COMMIT: &str = "TransactWriteItems";

/// Takes two pieces, if they are there.
async fn order(bench: &Bench, once: &Idempotency) -> Result<Outcome<i32>, Error<Failed>> {
    once.run(key(), payload(), async |claim| {
        claim.write(Write::from(bench.take(2)).or_else(|_| Failed::SoldOut { left: 1 }))?;
        Ok(1)
    })
    .await
}

fn is_sold_out(ordered: &Result<Outcome<i32>, Error<Failed>>) -> bool {
    matches!(ordered, Err(Error::Handler(Failed::SoldOut { left: 1 })))
}

fn is_unknown(ordered: &Result<Outcome<i32>, Error<Failed>>) -> bool {
    matches!(ordered, Err(Error::OutcomeUnknown(_)))
}

/// The first send of an order for more than there is gets no answer, and is still on its way.
async fn with_a_silent_send(server: &Server) -> Bench {
    let bench = Bench::on(server).await;
    bench.stock(1).await;
    bench.proxy.inject(COMMIT, Fault::Withhold);
    bench
}

on_each_server!(without_a_claim_a_refused_order_is_not_placed_when_the_stock_is_refilled);
async fn without_a_claim_a_refused_order_is_not_placed_when_the_stock_is_refilled(server: Server) {
    let bench = with_a_silent_send(&server).await;
    let once = bench.once().claimless();
    let refused = order(&bench, &once).await;
    assert!(is_sold_out(&refused), "{refused:?}");
    bench.stock(2).await;
    assert_eq!(bench.proxy.deliver().await, [400]);
    assert_eq!(
        bench.pieces().await,
        2,
        "it was said that nothing was written"
    );
    let record = bench.record().await;
    assert_eq!(record["status"], string("INPROGRESS"));
    assert_eq!(record["in_progress_expiration"], number(0));
    assert!(!record.contains_key("validation"), "it binds no payload");
    let counts = bench.proxy.take_counts();
    assert_eq!((counts[COMMIT], counts["PutItem"]), (2, 1), "{counts:?}");

    assert_eq!(order(&bench, &once).await.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.pieces().await, 0);
}

on_each_server!(over_a_released_record_a_refused_order_is_not_placed_later);
async fn over_a_released_record_a_refused_order_is_not_placed_later(server: Server) {
    let bench = Bench::on(&server).await;
    bench.stock(1).await;
    let once = bench.once();
    let failed = once.run(key(), payload(), async |claim| {
        claim.derive_key("gateway");
        Err::<i32, _>(Failed::Broken)
    });
    failed.await.unwrap_err();
    bench.proxy.take_total();
    // The first round meets the released record.
    bench.proxy.inject(COMMIT, Fault::Pass);
    bench.proxy.inject(COMMIT, Fault::Withhold);
    let refused = order(&bench, &bench.once().claimless()).await;
    assert!(is_sold_out(&refused), "{refused:?}");
    bench.stock(2).await;
    assert_eq!(bench.proxy.deliver().await, [400]);
    assert_eq!(bench.pieces().await, 2);
    let record = bench.record().await;
    assert_eq!(record["attempt"], number(2));
    assert!(record.contains_key("validation"), "it stays bound");
    let counts = bench.proxy.take_counts();
    assert_eq!((counts[COMMIT], counts["UpdateItem"]), (3, 1), "{counts:?}");
    let once = bench.once().claimless();
    let other = once.run(key(), Fingerprint::bytes(b"other"), async |_| {
        Ok::<_, Failed>(1)
    });
    assert_matches!(other.await, Err(Error::Mismatch));
}

on_each_server!(an_order_that_is_placed_before_its_key_is_fenced_off_has_executed);
async fn an_order_that_is_placed_before_its_key_is_fenced_off_has_executed(server: Server) {
    let bench = with_a_silent_send(&server).await;
    let pause = Duration::from_secs(2);
    bench.proxy.inject("PutItem", Fault::Delay(pause));
    let once = bench.once().claimless();
    let refill = async {
        bench.proxy.held().await;
        bench.stock(2).await;
        assert_eq!(bench.proxy.deliver().await, [200]);
    };
    let (ordered, ()) = tokio::join!(order(&bench, &once), refill);
    assert_eq!(ordered.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.pieces().await, 0);
}

on_each_server!(where_the_key_can_not_be_fenced_off_a_refused_order_is_unknown);
async fn where_the_key_can_not_be_fenced_off_a_refused_order_is_unknown(server: Server) {
    let bench = with_a_silent_send(&server).await;
    bench.proxy.repeat("PutItem", Fault::LoseRequest, 200);
    let unknown = order(&bench, &bench.lasting(2).claimless()).await;
    assert!(is_unknown(&unknown), "{unknown:?}");
    bench.stock(2).await;
    assert_eq!(bench.proxy.deliver().await, [200]);
    assert_eq!(bench.pieces().await, 0, "so it was not known");
    let again = order(&bench, &bench.once().claimless()).await;
    assert!(again.unwrap().is_replayed());
}

on_each_server!(under_a_claim_that_can_not_be_released_a_refused_order_is_unknown);
async fn under_a_claim_that_can_not_be_released_a_refused_order_is_unknown(server: Server) {
    let bench = with_a_silent_send(&server).await;
    bench.proxy.repeat("UpdateItem", Fault::LoseRequest, 200);
    let unknown = order(&bench, &bench.lasting(2)).await;
    assert!(is_unknown(&unknown), "{unknown:?}");
    bench.stock(2).await;
    assert_eq!(bench.proxy.deliver().await, [200]);
    assert_eq!(bench.pieces().await, 0);
}

on_each_server!(under_a_claim_a_release_is_sent_until_it_holds_off_the_silent_send);
async fn under_a_claim_a_release_is_sent_until_it_holds_off_the_silent_send(server: Server) {
    let bench = with_a_silent_send(&server).await;
    // The SDK's three tries, and one of the engine's.
    bench.proxy.repeat("UpdateItem", Fault::LoseRequest, 4);
    let refused = order(&bench, &bench.once()).await;
    assert!(is_sold_out(&refused), "{refused:?}");
    bench.stock(2).await;
    assert_eq!(bench.proxy.deliver().await, [400]);
    assert_eq!(bench.pieces().await, 2);
}

on_each_server!(a_run_that_nothing_protects_does_not_deny_what_may_still_arrive);
async fn a_run_that_nothing_protects_does_not_deny_what_may_still_arrive(server: Server) {
    let (log, _capture) = Log::capture();
    let counted = Counted::new();
    let bench = with_a_silent_send(&server).await;
    let off = bench.builder().disabled(true).build().unwrap();
    let unknown = order(&bench, &off).await;
    assert!(is_unknown(&unknown), "{unknown:?}");
    bench.stock(2).await;
    assert_eq!(bench.proxy.deliver().await, [200]);
    assert_eq!(bench.pieces().await, 0);

    bench.stock(2).await;
    bench.proxy.inject(COMMIT, Fault::LoseReply);
    bench.proxy.inject(COMMIT, Fault::DENY);
    let unknown = order(&bench, &off).await;
    assert!(is_unknown(&unknown), "{unknown:?}");
    assert_eq!(bench.pieces().await, 0);
    let seen = counted.take();
    assert_eq!(seen, counts([("outcomes_unknown", 2), ("unprotected", 2)]));

    // Each send is answered.
    bench.stock(1).await;
    bench.proxy.inject(COMMIT, Fault::DENY);
    let denied = order(&bench, &off).await;
    assert_matches!(denied, Err(Error::NotCommitted(StoreError::Denied(_))));
    let refused = order(&bench, &off).await;
    assert!(is_sold_out(&refused), "{refused:?}");
    let seen = counted.take();
    assert_eq!(seen, counts([("store_errors", 1), ("unprotected", 2)]));
    let key = bench.once().record_id(&key()).unwrap();
    let log = log.text();
    for (event, times) in [
        ("outcome_unknown", 2),
        ("not_committed", 1),
        ("condition_failed", 1),
    ] {
        let line = format!(r#"event="{event}" operation="deposit" key={key} attempt=1"#);
        assert_eq!(log.matches(&line).count(), times, "{event}: {log}");
    }
}

on_each_server!(a_denial_after_a_lost_reply_does_not_deny_what_was_written);
async fn a_denial_after_a_lost_reply_does_not_deny_what_was_written(server: Server) {
    let bench = Bench::on(&server).await;
    bench.stock(2).await;
    bench.proxy.inject(COMMIT, Fault::LoseReply);
    bench.proxy.inject(COMMIT, Fault::DENY);
    let once = bench.once().claimless();
    assert_eq!(order(&bench, &once).await.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.pieces().await, 0);

    // The same without a write.
    let bench = Bench::on(&server).await;
    bench.proxy.inject("PutItem", Fault::LoseReply);
    bench.proxy.inject("PutItem", Fault::DENY);
    let once = bench.once().claimless();
    let run = once.run(key(), payload(), async |_| Ok::<_, Failed>(7));
    assert_eq!(run.await.unwrap(), Outcome::Executed(7));
}

on_each_server!(a_denial_after_a_lost_request_is_not_committed_and_never_will_be);
async fn a_denial_after_a_lost_request_is_not_committed_and_never_will_be(server: Server) {
    let bench = Bench::on(&server).await;
    bench.stock(2).await;
    bench.proxy.inject(COMMIT, Fault::Withhold);
    bench.proxy.inject(COMMIT, Fault::DENY);
    let denied = order(&bench, &bench.once().claimless()).await;
    assert_matches!(denied, Err(Error::NotCommitted(StoreError::Denied(_))));
    assert_eq!(bench.proxy.deliver().await, [400]);
    assert_eq!(bench.pieces().await, 2);
}

on_each_server!(a_claim_that_is_refused_after_a_lost_reply_does_not_hold_its_key);
async fn a_claim_that_is_refused_after_a_lost_reply_does_not_hold_its_key(server: Server) {
    let expired = Fault::Answer {
        status: 400,
        code: "ExpiredTokenException",
    };
    for refusal in [Fault::DENY, expired] {
        let bench = Bench::on(&server).await;
        bench.proxy.inject("PutItem", Fault::LoseReply);
        bench.proxy.inject("PutItem", refusal);
        // The store has answered.
        let once = bench.once_with(|once| once.on_store_unavailable(OnStoreUnavailable::FailOpen));
        let run = || once.run(key(), payload(), async |_| Ok::<_, Failed>(7));
        let refused = run().await;
        assert_matches!(
            refused,
            Err(Error::Store(
                StoreError::Denied(_) | StoreError::Unauthenticated(_)
            ))
        );
        assert_eq!(run().await.unwrap(), Outcome::Executed(7));
    }
}
