//! A claim, then one transaction with the record and the writes.

use std::time::Duration;

use aws_sdk_dynamodb::types::ConditionCheck;
use lambda_idempotency::store::transaction::{Write, WriteError};
use lambda_idempotency::store::{CachedStore, MemoryStore};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Error, Idempotency, Omission, OnMissingKey, Outcome, StoreError, Verdict,
};

use super::Form::{Claimless, Transaction};
use super::{Bench, Failed, key, met, number, payload, string};
use crate::on_each_server;
use crate::support::Server;
use crate::support::{Begun, Fault, builder_on};

on_each_server!(the_effect_and_the_outcome_stand_together);
async fn the_effect_and_the_outcome_stand_together(server: Server) {
    let bench = Bench::on(&server).await;
    bench.stock(3).await;
    let order = || bench.once();
    let run = async || {
        order()
            .run(key(), payload(), async |claim| {
                claim.write(bench.deposit(5))?;
                claim.write(bench.take(2))?;
                claim.write(bench.put("order-1"))?;
                Ok::<_, Failed>("placed".to_owned())
            })
            .await
    };
    assert_eq!(run().await.unwrap(), Outcome::Executed("placed".to_owned()));
    let again = run().await.unwrap();
    assert!(again.is_replayed());
    assert_eq!(again.into_inner(), "placed");
    assert_eq!(bench.balance().await, 5);
    assert_eq!(bench.items().await, 3);
    assert_eq!(bench.record().await["status"], string("COMPLETED"));
}

on_each_server!(a_failing_handler_writes_nothing);
async fn a_failing_handler_writes_nothing(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let failed = once
        .run(key(), payload(), async |claim| {
            claim.write(bench.deposit(5))?;
            Err::<(), _>(Failed::Broken)
        })
        .await;
    assert_matches!(failed, Err(Error::Handler(Failed::Broken)));
    let released = once
        .run_with(
            key(),
            payload(),
            async |claim| {
                claim.write(bench.deposit(5))?;
                Ok::<_, Failed>(())
            },
            |_| Verdict::Release,
        )
        .await;
    assert_matches!(released, Ok(Outcome::Executed(())));
    assert_eq!(bench.balance().await, 0);
    Transaction.assert_places(&bench, &once, 1).await;
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_condition_that_fails_comes_back_as_the_handlers_own_error_and_releases_the_claim);
async fn a_condition_that_fails_comes_back_as_the_handlers_own_error_and_releases_the_claim(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    bench.stock(1).await;
    let once = bench.once();
    let order = async || {
        once.run(key(), payload(), async |claim| {
            claim.write(bench.deposit(5))?;
            claim.write(Write::from(bench.take(2)).or_else(|refusal| {
                assert_eq!(refusal.index, 1);
                Failed::SoldOut {
                    left: met(refusal.item(), "pieces"),
                }
            }))?;
            Ok(())
        })
        .await
    };
    assert_matches!(
        order().await,
        Err(Error::Handler(Failed::SoldOut { left: 1 }))
    );
    assert_eq!(bench.balance().await, 0, "all or nothing");
    assert_eq!(bench.record().await["in_progress_expiration"], number(0));

    bench.stock(2).await;
    assert_eq!(order().await.unwrap(), Outcome::Executed(()));
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_condition_without_an_answer_comes_back_with_its_place_and_what_it_met);
async fn a_condition_without_an_answer_comes_back_with_its_place_and_what_it_met(server: Server) {
    let bench = Bench::on(&server).await;
    bench.stock(1).await;
    let refused = bench
        .once()
        .run(key(), payload(), async |claim| {
            claim.write(Write::from(bench.take(2)).or_else(|_| "an error of another type"))?;
            Ok::<_, Failed>(())
        })
        .await;
    let Err(Error::Refused(refusal)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((refusal.index, met(refusal.item(), "pieces")), (0, 1));
}

on_each_server!(a_handler_that_outlived_its_lease_writes_nothing);
async fn a_handler_that_outlived_its_lease_writes_nothing(server: Server) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let once = bench.builder().clock(clock.clone()).build().unwrap();
    let late = once
        .run(key(), payload(), async |claim| {
            claim.write(bench.deposit(100))?;
            clock.advance(Duration::from_hours(1));
            Transaction.assert_places(&bench, &once, 1).await;
            Ok::<_, Failed>(2)
        })
        .await;
    let balance = bench.balance().await;
    assert!(
        late.unwrap().is_replayed(),
        "the successor's outcome stands"
    );
    assert_eq!(balance, 5);
}

on_each_server!(a_handler_whose_successor_is_still_running_loses_its_lease);
async fn a_handler_whose_successor_is_still_running_loses_its_lease(server: Server) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let once = bench.builder().clock(clock.clone()).build().unwrap();
    let late = once
        .run(key(), payload(), async |claim| {
            claim.write(bench.deposit(100))?;
            clock.advance(Duration::from_hours(1));
            let begun = Begun::default();
            begun
                .cut_off(once.run(key(), payload(), |_| {
                    begun.then_never::<Result<i32, Failed>>()
                }))
                .await;
            Ok::<_, Failed>(2)
        })
        .await;
    let balance = bench.balance().await;
    assert_matches!(late, Err(Error::LeaseLost));
    assert_eq!(balance, 0);
}

on_each_server!(where_nothing_proves_it_the_outcome_is_unknown_and_a_retry_finds_out);
async fn where_nothing_proves_it_the_outcome_is_unknown_and_a_retry_finds_out(server: Server) {
    let bench = Bench::on(&server).await;
    let faults = [
        ("TransactWriteItems", Fault::LoseReply),
        ("UpdateItem", Fault::LoseRequest),
    ];
    for (operation, fault) in faults {
        bench.proxy.repeat(operation, fault, 200);
    }
    let unknown = Transaction.place(&bench, &bench.lasting(3), 1).await;
    assert_matches!(unknown, Err(Error::OutcomeUnknown(_)));
    assert!(
        Transaction
            .place(&bench, &bench.once(), 1)
            .await
            .unwrap()
            .is_replayed()
    );
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_conflict_with_another_transaction_is_tried_again);
async fn a_conflict_with_another_transaction_is_tried_again(server: Server) {
    let bench = Bench::on(&server).await;
    for reasons in [
        ["TransactionConflict", "None"],
        ["None", "TransactionConflict"],
        ["None", "ThrottlingError"],
    ] {
        bench.proxy.inject(
            "TransactWriteItems",
            Fault::Cancel(Box::leak(Box::new(reasons))),
        );
    }
    bench.proxy.inject("TransactWriteItems", Fault::INTERNAL);
    Transaction.assert_places(&bench, &bench.once(), 1).await;
    assert_eq!(bench.proxy.take_counts()["TransactWriteItems"], 5);
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(conflicts_to_the_end_release_the_claim);
async fn conflicts_to_the_end_release_the_claim(server: Server) {
    let bench = Bench::on(&server).await;
    let conflict = Fault::Cancel(&["None", "TransactionConflict"]);
    bench.proxy.repeat("TransactWriteItems", conflict, 500);
    let conflict = Transaction.place(&bench, &bench.lasting(2), 1).await;
    assert_eq!(bench.record().await["in_progress_expiration"], number(0));
    assert_matches!(conflict, Err(Error::NotCommitted(StoreError::Conflict)));
}

on_each_server!(a_send_that_meets_an_earlier_one_at_work_is_tried_again);
async fn a_send_that_meets_an_earlier_one_at_work_is_tried_again(server: Server) {
    let bench = Bench::on(&server).await;
    let at_work = Fault::Answer {
        status: 400,
        code: "TransactionInProgressException",
    };
    bench.proxy.repeat("TransactWriteItems", at_work, 4);
    let deposited = Transaction.place(&bench, &bench.once(), 1).await;
    assert_matches!(deposited, Ok(Outcome::Executed(_)));
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_release_whose_reply_is_lost_proves_that_nothing_was_committed);
async fn a_release_whose_reply_is_lost_proves_that_nothing_was_committed(server: Server) {
    let bench = Bench::on(&server).await;
    bench.proxy.inject("TransactWriteItems", Fault::DENY);
    bench.proxy.inject("UpdateItem", Fault::LoseReply);
    let denied = Transaction.place(&bench, &bench.once(), 1).await;
    assert_matches!(denied, Err(Error::NotCommitted(StoreError::Denied(_))));
    assert_eq!(
        bench.proxy.take_counts()["UpdateItem"],
        2,
        "the second meets the first one's tombstone"
    );
    assert_eq!(bench.record().await["in_progress_expiration"], number(0));
    assert_eq!(bench.balance().await, 0);
}

on_each_server!(a_transaction_that_dynamodb_refuses_as_invalid_writes_nothing_and_says_why);
async fn a_transaction_that_dynamodb_refuses_as_invalid_writes_nothing_and_says_why(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let refused = bench
        .once()
        .run(key(), payload(), async |claim| {
            claim.write(bench.deposit(5))?;
            claim.write(bench.put("other").condition_expression("no such syntax"))?;
            Ok::<_, Failed>(())
        })
        .await;
    let Err(Error::NotCommitted(StoreError::Rejected(reason))) = refused else {
        panic!("{refused:?}")
    };
    assert!(!reason.to_string().is_empty());
    assert_eq!(bench.balance().await, 0);
    assert_eq!(bench.record().await["in_progress_expiration"], number(0));
}

on_each_server!(a_write_on_the_record_itself_is_refused_before_anything_is_sent);
async fn a_write_on_the_record_itself_is_refused_before_anything_is_sent(server: Server) {
    let bench = Bench::on(&server).await;
    let id = bench.once().record_id(&key()).unwrap();
    bench.proxy.take_total();
    let refused = bench
        .once()
        .run(key(), payload(), async |claim| {
            let check = ConditionCheck::builder()
                .table_name(&bench.records)
                .key("id", string(id.as_str()));
            claim.write(check.condition_expression("attribute_exists(id)"))?;
            Ok::<_, Failed>(())
        })
        .await;
    assert_matches!(refused, Err(Error::NotCommitted(_)));
    assert_eq!(bench.proxy.take_counts().get("TransactWriteItems"), None);
}

on_each_server!(an_outcome_over_the_limit_replays_whole_in_both_forms);
async fn an_outcome_over_the_limit_replays_whole_in_both_forms(server: Server) {
    for is_claimless in [false, true] {
        let bench = Bench::on(&server).await;
        let once = bench.once_with(|once| once.settings(|settings| settings.inline_limit = 10));
        let once = if is_claimless { once.claimless() } else { once };
        let run = async || {
            once.run(key(), payload(), async |claim| {
                claim.write(bench.deposit(5))?;
                Ok::<_, Failed>("x".repeat(20))
            })
            .await
        };
        assert_matches!(run().await, Ok(Outcome::Executed(_)));
        let again = run().await.unwrap();
        assert!(again.is_replayed());
        assert_eq!(again.into_inner(), "x".repeat(20));
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server!(an_outcome_too_large_for_an_item_commits_with_a_marker);
async fn an_outcome_too_large_for_an_item_commits_with_a_marker(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once_with(|once| once.settings(|settings| settings.inline_limit = 1_000_000));
    let run = async || {
        once.run(key(), payload(), async |claim| {
            claim.write(bench.deposit(5))?;
            Ok::<_, Failed>("x".repeat(420_000))
        })
        .await
    };
    let first = run().await;
    assert_matches!(first, Ok(Outcome::Executed(_)));
    assert_matches!(
        run().await,
        Err(Error::OutcomeOmitted {
            reason: Omission::TooLarge,
            ..
        })
    );
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(a_run_that_nothing_protects_still_writes_all_or_nothing);
async fn a_run_that_nothing_protects_still_writes_all_or_nothing(server: Server) {
    let bench = Bench::on(&server).await;
    let off = bench.builder().disabled(true).build().unwrap();
    assert_matches!(
        Transaction.place(&bench, &off, 1).await,
        Ok(Outcome::Unprotected(_))
    );
    let keyless = bench.once_with(|once| once.on_missing_key(OnMissingKey::RunUnprotected));
    let handler =
        async |claim: lambda_idempotency::Claim| Ok::<_, Failed>(claim.write(bench.deposit(5))?);
    assert_matches!(
        keyless.run(None, None, handler).await,
        Ok(Outcome::Unprotected(()))
    );
    assert_eq!(bench.balance().await, 10);

    bench.stock(1).await;
    let refused = off
        .run(key(), None, async |claim| {
            claim.write(bench.deposit(5))?;
            claim.write(Write::from(bench.take(2)).or_else(|_| Failed::Broken))?;
            Ok(())
        })
        .await;
    assert_matches!(refused, Err(Error::Handler(Failed::Broken)));
    let released = off
        .run_with(
            key(),
            None,
            async |claim| Ok::<_, Failed>(claim.write(bench.deposit(5))?),
            |_| Verdict::Release,
        )
        .await;
    assert!(released.is_ok());
    assert_eq!(bench.balance().await, 10);
}

on_each_server!(a_cached_store_commits_and_remembers);
async fn a_cached_store_commits_and_remembers(server: Server) {
    let bench = Bench::on(&server).await;
    let store = CachedStore::new(bench.store());
    let once = builder_on(store, "exactly-once").build().unwrap();
    Transaction.assert_places(&bench, &once, 1).await;
    bench.proxy.take_total();
    assert!(
        Transaction
            .place(&bench, &once, 1)
            .await
            .unwrap()
            .is_replayed()
    );
    let again = Claimless.place(&bench, &once, 2).await;
    assert!(again.unwrap().is_replayed());
    assert_eq!(bench.proxy.take_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_records_only_refuses_a_write_at_once() {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("exactly-once")
        .build()
        .unwrap();
    let bench = Bench::on(&crate::support::Server::dynoxide().await).await;
    let refused = Transaction.place(&bench, &once, 1).await;
    assert_matches!(
        refused,
        Err(Error::Handler(Failed::Write(WriteError::NotSupported)))
    );
    let claimless = Claimless.place(&bench, &once, 1).await;
    assert_matches!(claimless, Err(Error::Write(WriteError::NotSupported)));
}

#[tokio::test(start_paused = true)]
async fn a_write_after_the_handler_has_returned_is_refused() {
    for fails in [false, true] {
        let bench = Bench::on(&crate::support::Server::dynoxide().await).await;
        let kept = std::sync::Mutex::new(None);
        let once = bench.once();
        let run = once.run(key(), payload(), async |claim| {
            claim.write(bench.deposit(5))?;
            *kept.lock().unwrap() = Some(claim);
            if fails { Err(Failed::Broken) } else { Ok(()) }
        });
        assert_eq!(run.await.is_err(), fails);
        let claim = kept.into_inner().unwrap().unwrap();
        assert_eq!(claim.write(bench.deposit(5)), Err(WriteError::Closed));
    }
}
