//! No claim: one transaction with "this key has no record yet", the record and the writes.

use std::time::Duration;

use futures_util::future::join_all;
use lambda_idempotency::store::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::transaction::Write;
use lambda_idempotency::{Claim, Error, Fingerprint, Idempotency, Outcome, StoreError, Verdict};

use super::{Bench, Failed, key, number, payload, string};
use crate::on_each_server;
use crate::support::{Begun, Fault};

async fn deposit(
    bench: &Bench,
    once: &Idempotency<DynamoDbStore>,
    value: i32,
) -> Result<Outcome<i32>, Error<Failed>> {
    once.claimless()
        .run(key(), payload(), async |claim| {
            claim.write(bench.deposit(5))?;
            Ok(value)
        })
        .await
}

on_each_server! {
    async fn one_request_does_it_and_a_duplicate_replays(server: Server) {
        let bench = Bench::on(&server).await;
        assert_eq!(deposit(&bench, &bench.once(), 1).await.unwrap(), Outcome::Executed(1));
        assert_eq!(bench.proxy.take_total(), 1);
        let again = deposit(&bench, &bench.once(), 2).await.unwrap();
        assert!(again.is_replayed());
        assert_eq!(again.into_inner(), 1);
        assert_eq!(bench.proxy.take_total(), 1);
        assert_eq!(bench.balance().await, 5);
        let record = bench.record().await;
        for (attribute, value) in [("status", string("COMPLETED")), ("attempt", number(1)), ("data", string("1")), ("v", number(1))] {
            assert_eq!(record[attribute], value, "{attribute}");
        }
        assert!(!record.contains_key("in_progress_expiration"));
        assert!(record.contains_key("validation") && record.contains_key("started_at"));
    }
}

on_each_server! {
    async fn a_success_that_is_not_final_is_handed_out_and_writes_nothing(server: Server) {
        let bench = Bench::on(&server).await;
        let once = bench.once().claimless();
        let handler = async |claim: Claim| {
            claim.write(bench.deposit(5))?;
            Ok::<_, Failed>(503)
        };
        let busy = once.run_with(key(), payload(), handler, |_| Verdict::Release).await;
        assert_eq!(busy.unwrap(), Outcome::Executed(503));
        assert_eq!(bench.balance().await, 0);
        assert_eq!(deposit(&bench, &bench.once(), 200).await.unwrap(), Outcome::Executed(200));
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server! {
    async fn both_forms_understand_each_others_records(server: Server) {
        let bench = Bench::on(&server).await;
        deposit(&bench, &bench.once(), 1).await.unwrap();
        let claimed = bench.once().run(key(), payload(), async |_| Ok::<_, Failed>(2)).await.unwrap();
        assert!(claimed.is_replayed());
        assert_eq!(claimed.into_inner(), 1);
        let other = bench.once().claimless().run(key(), Fingerprint::bytes(b"other"), async |_| Ok::<_, Failed>(2)).await;
        assert!(matches!(other, Err(Error::Mismatch)));
    }
}

on_each_server! {
    async fn of_many_at_once_one_applies(server: Server) {
        let bench = Bench::on(&server).await;
        let once = bench.once();
        let results = join_all((0..8).map(|value| deposit(&bench, &once, value))).await;
        let outcomes: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        assert_eq!(outcomes.iter().filter(|outcome| !outcome.is_replayed()).count(), 1);
        let first = outcomes[0].get();
        assert!(outcomes.iter().all(|outcome| outcome.get() == first));
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server! {
    async fn a_claim_in_progress_is_in_flight(server: Server) {
        let bench = Bench::on(&server).await;
        let claimed = bench.once();
        let outer = claimed.run(key(), payload(), async |_| {
            let inner = deposit(&bench, &bench.once(), 1).await;
            assert!(matches!(inner, Err(Error::InFlight { .. })), "{inner:?}");
            Ok::<_, Failed>(7)
        });
        assert_eq!(outer.await.unwrap(), Outcome::Executed(7));
        assert_eq!(bench.balance().await, 0);
    }
}

on_each_server! {
    async fn a_released_record_is_taken_on_its_version(server: Server) {
        let bench = Bench::on(&server).await;
        let failed = bench.once().run(key(), payload(), async |_| Err::<i32, _>(Failed::Broken)).await;
        failed.unwrap_err();
        bench.proxy.take_total();
        assert_eq!(deposit(&bench, &bench.once(), 1).await.unwrap(), Outcome::Executed(1));
        assert_eq!(bench.proxy.take_counts()["TransactWriteItems"], 2);
        let record = bench.record().await;
        assert_eq!(record["attempt"], number(2));
        assert!(record.contains_key("last_error"), "a takeover keeps it");
        assert!(!record.contains_key("in_progress_expiration"));
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server! {
    async fn an_expired_record_is_replaced(server: Server) {
        let bench = Bench::on(&server).await;
        let clock = ManualClock::default();
        let once = bench.builder().clock(clock.clone()).retention(Duration::from_mins(1)).build().unwrap();
        assert_eq!(deposit(&bench, &once, 1).await.unwrap(), Outcome::Executed(1));
        clock.advance(Duration::from_mins(2));
        assert_eq!(deposit(&bench, &once, 2).await.unwrap(), Outcome::Executed(2));
        assert_eq!(bench.balance().await, 10);
        assert_eq!(bench.record().await["attempt"], number(1));
    }
}

on_each_server! {
    async fn a_crash_before_the_transaction_leaves_nothing_to_wait_for(server: Server) {
        let bench = Bench::on(&server).await;
        let once = bench.once().claimless();
        let begun = Begun::default();
        begun.cut_off(once.run(key(), payload(), |_| begun.then_never::<Result<i32, Failed>>())).await;
        assert!(bench.record().await.is_empty());
        assert_eq!(deposit(&bench, &bench.once(), 1).await.unwrap(), Outcome::Executed(1));
    }
}

on_each_server! {
    async fn a_condition_that_fails_leaves_no_record(server: Server) {
        let bench = Bench::on(&server).await;
        bench.stock(1).await;
        let order = async || bench.once().claimless().run(key(), payload(), async |claim| {
            claim.write(Write::from(bench.take(2)).or_else(|_| Failed::SoldOut { left: 1 }))?;
            Ok(())
        }).await;
        assert!(matches!(order().await, Err(Error::Handler(Failed::SoldOut { left: 1 }))));
        assert!(bench.record().await.is_empty());
        bench.stock(2).await;
        assert_eq!(order().await.unwrap(), Outcome::Executed(()));
        // Now the condition fails as well, but the record speaks first.
        assert!(order().await.unwrap().is_replayed());
    }
}

on_each_server! {
    async fn a_duplicate_that_fails_because_the_original_succeeded_gets_its_outcome(server: Server) {
        let bench = Bench::on(&server).await;
        deposit(&bench, &bench.once(), 1).await.unwrap();
        let again = bench.once().claimless().run(key(), payload(), async |_| Err::<i32, _>(Failed::Broken)).await.unwrap();
        assert!(again.is_replayed());
        let failed = bench.once().claimless().run(lambda_idempotency::Key::new("deposit", "2"), payload(), async |_| Err::<i32, _>(Failed::Broken)).await;
        assert!(matches!(failed, Err(Error::Handler(Failed::Broken))));
    }
}

on_each_server! {
    async fn a_permanent_failure_is_stored_and_replayed(server: Server) {
        let bench = Bench::on(&server).await;
        let run = async || bench.once().claimless().run_with(key(), payload(), async |claim| {
            claim.write(bench.deposit(5))?;
            Err::<i32, _>(Failed::Broken)
        }, |_| Verdict::Fail).await;
        assert!(matches!(run().await, Err(Error::Handler(Failed::Broken))));
        assert!(matches!(run().await, Err(Error::Failed(_))));
        assert_eq!(bench.balance().await, 0);
    }
}

on_each_server! {
    async fn a_reply_that_is_lost_changes_nothing(server: Server) {
        let bench = Bench::on(&server).await;
        for _ in 0..4 {
            bench.proxy.inject("TransactWriteItems", Fault::LoseReply);
        }
        assert_eq!(deposit(&bench, &bench.once(), 1).await.unwrap(), Outcome::Executed(1));
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server! {
    async fn a_reply_that_is_lost_to_the_end_is_settled_by_a_read(server: Server) {
        let bench = Bench::on(&server).await;
        for _ in 0..200 {
            bench.proxy.inject("TransactWriteItems", Fault::LoseReply);
        }
        let once = bench.builder().lease(Duration::from_secs(2)).build().unwrap();
        assert_eq!(deposit(&bench, &once, 1).await.unwrap(), Outcome::Executed(1));
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server! {
    async fn a_request_that_is_lost_to_the_end_is_unknown_and_a_retry_is_safe(server: Server) {
        let bench = Bench::on(&server).await;
        for _ in 0..200 {
            bench.proxy.inject("TransactWriteItems", Fault::LoseRequest);
        }
        let once = bench.builder().lease(Duration::from_secs(2)).build().unwrap();
        let unknown = deposit(&bench, &once, 1).await;
        assert!(matches!(unknown, Err(Error::OutcomeUnknown(_))), "{unknown:?}");
        let bench = Bench { proxy: crate::support::Proxy::before(&server).await, ..bench };
        assert_eq!(deposit(&bench, &bench.once(), 2).await.unwrap(), Outcome::Executed(2));
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server! {
    async fn a_missing_permission_is_named_and_nothing_was_written(server: Server) {
        let bench = Bench::on(&server).await;
        bench.proxy.inject("TransactWriteItems", Fault::DENY);
        let denied = deposit(&bench, &bench.once(), 1).await;
        let Err(Error::NotCommitted(StoreError::AccessDenied { action, .. })) = denied else { panic!("{denied:?}") };
        assert!(action.contains("ConditionCheckItem"));
    }
}

on_each_server! {
    async fn a_denial_after_sends_without_an_answer_is_unknown_and_a_retry_finds_out(server: Server) {
        let bench = Bench::on(&server).await;
        // The SDK's three tries, then one of the engine's, and the three tries of the read.
        for fault in [Fault::LoseReply, Fault::LoseReply, Fault::LoseReply, Fault::DENY] {
            bench.proxy.inject("TransactWriteItems", fault);
        }
        for _ in 0..3 {
            bench.proxy.inject("GetItem", Fault::LoseRequest);
        }
        let unknown = deposit(&bench, &bench.once(), 1).await;
        assert!(matches!(unknown, Err(Error::OutcomeUnknown(_))), "{unknown:?}");
        assert!(deposit(&bench, &bench.once(), 2).await.unwrap().is_replayed());
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server! {
    async fn it_works_in_a_table_with_a_composite_key(server: Server) {
        let bench = Bench::on(&server).await;
        let once = bench.composite().await;
        assert_eq!(deposit(&bench, &once, 1).await.unwrap(), Outcome::Executed(1));
        assert!(deposit(&bench, &once, 2).await.unwrap().is_replayed());
        assert_eq!(bench.balance().await, 5);
    }
}
