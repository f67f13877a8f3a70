//! No claim: one transaction with "this key has no record yet", the record and the writes.

use std::time::Duration;

use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    AtDeadline, Claim, Clock, Error, Fingerprint, Outcome, StoreError, Verdict,
};

use super::Form::Claimless;
use super::{Bench, Failed, key, number, payload, string};
use crate::on_each_server;
use crate::support::{Begun, Fault, Server, VirtualClock};

on_each_server!(a_success_that_is_not_final_is_handed_out_and_writes_nothing);
async fn a_success_that_is_not_final_is_handed_out_and_writes_nothing(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once().claimless();
    let handler = async |claim: Claim| {
        claim.write(bench.deposit(5))?;
        Ok::<_, Failed>(503)
    };
    let busy = once
        .run_with(key(), payload(), handler, |_| Verdict::Release)
        .await;
    assert_eq!(busy.unwrap(), Outcome::Executed(503));
    assert_eq!(bench.balance().await, 0);
    Claimless.assert_places(&bench, &bench.once(), 200).await;
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(both_forms_understand_each_others_records);
async fn both_forms_understand_each_others_records(server: Server) {
    let bench = Bench::on(&server).await;
    Claimless.place(&bench, &bench.once(), 1).await.unwrap();
    let claimed = bench
        .once()
        .run(key(), payload(), async |_| Ok::<_, Failed>(2))
        .await
        .unwrap();
    assert!(claimed.is_replayed());
    assert_eq!(claimed.into_inner(), 1);
    let other = bench
        .once()
        .claimless()
        .run(key(), Fingerprint::bytes(b"other"), async |_| {
            Ok::<_, Failed>(2)
        })
        .await;
    assert_matches!(other, Err(Error::Mismatch));
}

on_each_server!(a_claim_in_progress_is_in_flight);
async fn a_claim_in_progress_is_in_flight(server: Server) {
    let bench = Bench::on(&server).await;
    let claimed = bench.once();
    let outer = claimed.run(key(), payload(), async |_| {
        let inner = Claimless.place(&bench, &bench.once(), 1).await;
        assert_matches!(inner, Err(Error::InFlight { .. }));
        Ok::<_, Failed>(7)
    });
    assert_eq!(outer.await.unwrap(), Outcome::Executed(7));
    assert_eq!(bench.balance().await, 0);
}

on_each_server!(a_released_record_is_taken_on_its_version);
async fn a_released_record_is_taken_on_its_version(server: Server) {
    let bench = Bench::on(&server).await;
    let failed = bench
        .once()
        .run(key(), payload(), async |_| Err::<i32, _>(Failed::Broken))
        .await;
    failed.unwrap_err();
    bench.proxy.take_total();
    Claimless.assert_places(&bench, &bench.once(), 1).await;
    assert_eq!(bench.proxy.take_counts()["TransactWriteItems"], 2);
    let record = bench.record().await;
    assert_eq!(record["attempt"], number(2));
    assert!(record.contains_key("last_error"), "a takeover keeps it");
    assert!(!record.contains_key("in_progress_expiration"));
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_run_that_began_longer_ago_than_its_retention_commits_nothing);
async fn a_run_that_began_longer_ago_than_its_retention_commits_nothing(server: Server) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let builder = bench.builder().clock(clock.clone());
    let once = builder.retention(Duration::from_hours(1)).build().unwrap();
    let handler = async |claim: Claim| {
        clock.advance(Duration::from_hours(1));
        claim.write(bench.deposit(5))?;
        Ok::<_, Failed>(1)
    };
    let late = once.claimless().run(key(), payload(), handler).await;
    assert_matches!(late, Err(Error::NotCommitted(StoreError::NotSent)));
    assert_eq!(bench.balance().await, 0);
}

on_each_server!(a_crash_before_the_transaction_leaves_nothing_to_wait_for);
async fn a_crash_before_the_transaction_leaves_nothing_to_wait_for(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once().claimless();
    let begun = Begun::default();
    begun
        .cut_off(once.run(key(), payload(), |_| {
            begun.then_never::<Result<i32, Failed>>()
        }))
        .await;
    assert!(bench.record().await.is_empty());
    Claimless.assert_places(&bench, &bench.once(), 1).await;
}

on_each_server!(a_condition_that_fails_leaves_no_record);
async fn a_condition_that_fails_leaves_no_record(server: Server) {
    let bench = Bench::on(&server).await;
    bench.stock(1).await;
    let order = async || {
        bench
            .once()
            .claimless()
            .run(key(), payload(), async |claim| {
                claim.write(Write::from(bench.take(2)).or_else(|_| Failed::SoldOut { left: 1 }))?;
                Ok(())
            })
            .await
    };
    assert_matches!(
        order().await,
        Err(Error::Handler(Failed::SoldOut { left: 1 }))
    );
    assert_eq!(bench.proxy.take_total(), 1, "it was answered at once");
    assert!(bench.record().await.is_empty());
    bench.stock(2).await;
    assert_eq!(order().await.unwrap(), Outcome::Executed(()));
    // Now the condition fails as well, but the record speaks first.
    assert!(order().await.unwrap().is_replayed());
}

on_each_server!(a_duplicate_that_fails_because_the_original_succeeded_gets_its_outcome);
async fn a_duplicate_that_fails_because_the_original_succeeded_gets_its_outcome(server: Server) {
    let bench = Bench::on(&server).await;
    Claimless.place(&bench, &bench.once(), 1).await.unwrap();
    let again = bench
        .once()
        .claimless()
        .run(key(), payload(), async |_| Err::<i32, _>(Failed::Broken))
        .await
        .unwrap();
    assert!(again.is_replayed());
    let failed = bench
        .once()
        .claimless()
        .run(
            lambda_idempotency::Key::new("deposit", "2"),
            payload(),
            async |_| Err::<i32, _>(Failed::Broken),
        )
        .await;
    assert_matches!(failed, Err(Error::Handler(Failed::Broken)));
}

on_each_server!(a_failure_behind_a_journal_is_kept_as_long_as_an_outcome);
async fn a_failure_behind_a_journal_is_kept_as_long_as_an_outcome(server: Server) {
    for has_new_keys in [true, false] {
        let bench = Bench::on(&server).await;
        let (clock, day) = (ManualClock::default(), Duration::from_hours(24));
        let builder = bench.builder().clock(clock.clone());
        let once = builder.retention(day).build().unwrap();
        if has_new_keys {
            Claimless.assert_places(&bench, &once, 1).await;
            bench.rerun_with_new_keys().await;
        } else {
            let handler = async |claim: Claim| {
                let mailed = claim.step("mail", |_| async { Ok::<_, Failed>(1) });
                mailed.await.unwrap();
                Err::<i32, _>(Failed::Broken)
            };
            once.run(key(), payload(), handler).await.unwrap_err();
        }
        let claimless = once.claimless();
        let handler = async |_| Err::<i32, _>(Failed::Broken);
        let failed = claimless.run_with(key(), payload(), handler, |_| Verdict::Fail);
        failed.await.unwrap_err();
        let record = bench.record().await;
        assert_eq!(record["status"], string("FAILED"));
        let kept = (clock.now() + day).ceil_seconds();
        assert_eq!(record["expiration"], number(kept.0), "{has_new_keys}");
    }
}

on_each_server!(a_denial_after_sends_without_an_answer_is_unknown_and_a_retry_finds_out);
async fn a_denial_after_sends_without_an_answer_is_unknown_and_a_retry_finds_out(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("TransactWriteItems", Fault::LoseReply);
    bench.proxy.inject("TransactWriteItems", Fault::DENY);
    // Nor can the key be fenced off, or read.
    for operation in ["PutItem", "GetItem"] {
        bench.proxy.repeat(operation, Fault::LoseRequest, 200);
    }
    let once = bench.lasting(2);
    let unknown = Claimless.place(&bench, &once, 1).await;
    assert_matches!(unknown, Err(Error::OutcomeUnknown(_)));
    let again = Claimless.place(&bench, &bench.once(), 2).await;
    assert!(again.unwrap().is_replayed());
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_retention_under_an_hour_is_refused_before_the_handler_runs);
async fn a_retention_under_an_hour_is_refused_before_the_handler_runs(server: Server) {
    let bench = Bench::on(&server).await;
    let short = Duration::from_secs(3_599);
    for builder in [
        bench.builder().retention(short),
        bench
            .builder()
            .settings(|settings| settings.failure_retention = short),
    ] {
        let refused = Claimless.place(&bench, &builder.build().unwrap(), 1).await;
        assert_eq!(refused.unwrap_err().code(), "retention_too_short");
        assert_eq!(bench.proxy.take_total(), 0);
    }
}

on_each_server!(a_handler_that_outlives_its_deadline_is_ended_or_commits_late_and_once);
async fn a_handler_that_outlives_its_deadline_is_ended_or_commits_late_and_once(server: Server) {
    for (policy, balance) in [(AtDeadline::End, 0), (AtDeadline::GoOn, 5)] {
        let bench = Bench::on(&server).await;
        let once = bench.once_with(|once| once.settings(|settings| settings.at_deadline = policy));
        let run = || {
            let deadline = VirtualClock.now() + Duration::from_secs(2);
            let once = once.deadline(deadline.into()).claimless();
            let bench = &bench;
            async move {
                let handler = async |claim: Claim| {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    claim.write(bench.deposit(5))?;
                    Ok::<_, Failed>(1)
                };
                once.run(key(), payload(), handler).await
            }
        };
        bench.proxy.repeat("TransactWriteItems", Fault::THROTTLE, 6);
        for _ in 0..2 {
            let done = run().await;
            let is_ended = matches!(done, Err(Error::TimedOut));
            assert_eq!(is_ended, policy == AtDeadline::End, "{done:?}");
            assert_eq!(bench.balance().await, balance, "{policy:?}");
        }
    }
}

on_each_server!(a_handler_that_outlives_its_deadline_commits_late_where_nothing_protects_it);
async fn a_handler_that_outlives_its_deadline_commits_late_where_nothing_protects_it(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let once = bench.once_with(|once| {
        once.settings(|settings| settings.at_deadline = AtDeadline::GoOn)
            .disabled(true)
    });
    bench.proxy.repeat("TransactWriteItems", Fault::THROTTLE, 6);
    let deadline = VirtualClock.now() + Duration::from_secs(2);
    let handler = async |claim: Claim| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        claim.write(bench.deposit(5))?;
        Ok::<_, Failed>(1)
    };
    let once = once.deadline(deadline.into());
    let done = once.run(key(), payload(), handler).await;
    assert_matches!(done, Ok(Outcome::Unprotected(1)));
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_run_that_derived_keys_and_was_dropped_costs_the_next_one_no_request);
async fn a_run_that_derived_keys_and_was_dropped_costs_the_next_one_no_request(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let begun = Begun::default();
    let claimless = once.claimless();
    let work = claimless.run(key(), payload(), async |claim: Claim| {
        claim.derive_key("gateway");
        begun.then_never::<Result<i32, Failed>>().await
    });
    begun.hang_up(work).await;
    Claimless.place(&bench, &once, 1).await.unwrap();
    assert_eq!(bench.proxy.take_total(), 1);
}

on_each_server!(a_handler_without_a_deadline_that_outlives_its_lease_commits_late);
async fn a_handler_without_a_deadline_that_outlives_its_lease_commits_late(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.repeat("TransactWriteItems", Fault::THROTTLE, 6);
    let handler = async |claim: Claim| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        claim.write(bench.deposit(5))?;
        Ok::<_, Failed>(1)
    };
    let once = bench.lasting(2).claimless();
    let done = once.run(key(), payload(), handler).await;
    assert_eq!(done.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.balance().await, 5);
}
