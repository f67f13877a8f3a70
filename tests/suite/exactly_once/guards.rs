//! Writes that refuse a second application by themselves.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::guard::{GuardError, Guarded, Once, Transition};
use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::{Error, Outcome};

use super::{Bench, Failed, key, met, payload, string};
use crate::on_each_server;
use crate::support::{Fault, Server};

fn item_key(id: &str) -> [(&'static str, AttributeValue); 1] {
    [("id", string(id))]
}

fn paid(bench: &Bench, by: &str) -> Transition {
    Transition::new(&bench.business, item_key("order"))
        .from("pending")
        .from("failed")
        .to("paid")
        .mark("paid_by", string(by))
}

async fn order_in(bench: &Bench, status: &str) {
    let request = bench.direct.client().put_item().table_name(&bench.business);
    let request = request
        .item("id", string("order"))
        .item("status", string(status));
    request.send().await.unwrap();
}

on_each_server!(a_transition_applies_once_and_tells_its_own_from_anothers);
async fn a_transition_applies_once_and_tells_its_own_from_anothers(server: Server) {
    let bench = Bench::on(&server).await;
    let client = server.client();
    let missing = paid(&bench, "payment-1").apply(&client).await.unwrap();
    assert_eq!(missing, Guarded::Refused { found: None });
    for from in ["pending", "failed"] {
        order_in(&bench, from).await;
        assert_eq!(
            paid(&bench, "payment-1").apply(&client).await.unwrap(),
            Guarded::Applied
        );
    }
    assert_eq!(
        paid(&bench, "payment-1").apply(&client).await.unwrap(),
        Guarded::AlreadyApplied
    );
    assert!(matches!(
        paid(&bench, "payment-2").apply(&client).await.unwrap(),
        Guarded::Refused { found: Some(_) }
    ));
    order_in(&bench, "cancelled").await;
    let Guarded::Refused { found: Some(found) } =
        paid(&bench, "payment-1").apply(&client).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(found["status"], string("cancelled"));
}

on_each_server!(an_addition_applies_once_for_each_event_until_the_item_is_full);
async fn an_addition_applies_once_for_each_event_until_the_item_is_full(server: Server) {
    let bench = Bench::on(&server).await;
    let client = server.client();
    let add = |event: &str| {
        Once::new(&bench.business, item_key("account"), event)
            .add("balance", 5)
            .add("count", 1)
            .at_most(2)
    };
    for (event, expected) in [
        ("e-1", Guarded::Applied),
        ("e-1", Guarded::AlreadyApplied),
        ("e-2", Guarded::Applied),
        ("e-1", Guarded::AlreadyApplied),
    ] {
        assert_eq!(add(event).apply(&client).await.unwrap(), expected);
    }
    assert!(matches!(
        add("e-3").apply(&client).await.unwrap(),
        Guarded::Refused { found: Some(_) }
    ));
    assert_eq!(bench.balance().await, 10);
}

on_each_server!(a_guard_in_a_transaction_holds_long_after_the_record_has_expired);
async fn a_guard_in_a_transaction_holds_long_after_the_record_has_expired(server: Server) {
    let bench = Bench::on(&server).await;
    let pay =
        async || {
            let judge = paid(&bench, "payment-1");
            // Another key each time: as if no record were left.
            let key = lambda_idempotency::Key::new("pay", crate::support::server::unique("event"));
            bench
                .once()
                .run(key, payload(), async |claim| {
                    claim.write(bench.deposit(5))?;
                    claim.write(Write::from(paid(&bench, "payment-1")).or_else(
                        move |refusal| match judge.judge(refusal.item()) {
                            Guarded::AlreadyApplied => Failed::Broken,
                            _ => Failed::SoldOut { left: 0 },
                        },
                    ))?;
                    Ok(())
                })
                .await
        };
    order_in(&bench, "pending").await;
    assert_eq!(pay().await.unwrap(), Outcome::Executed(()));
    assert!(matches!(pay().await, Err(Error::Handler(Failed::Broken))));
    order_in(&bench, "cancelled").await;
    assert!(matches!(
        pay().await,
        Err(Error::Handler(Failed::SoldOut { .. }))
    ));
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(an_addition_in_a_transaction_is_refused_with_the_item);
async fn an_addition_in_a_transaction_is_refused_with_the_item(server: Server) {
    let bench = Bench::on(&server).await;
    let add = || Once::new(&bench.business, item_key("account"), "e-1").add("balance", 5);
    add().apply(&server.client()).await.unwrap();
    let again = bench
        .once()
        .run(key(), payload(), async |claim| {
            claim.write(Write::from(add()).or_else(|refusal| Failed::SoldOut {
                left: met(refusal.item(), "balance"),
            }))?;
            Ok(())
        })
        .await;
    assert!(
        matches!(again, Err(Error::Handler(Failed::SoldOut { left: 5 }))),
        "{again:?}"
    );
}

const UPDATE: &str = "UpdateItem";

on_each_server!(a_transition_whose_reply_was_lost_is_recognised_as_applied);
async fn a_transition_whose_reply_was_lost_is_recognised_as_applied(server: Server) {
    let bench = Bench::on(&server).await;
    let client = bench.proxy.server().client();
    order_in(&bench, "pending").await;
    bench.proxy.inject(UPDATE, Fault::LoseReply);
    let applied = paid(&bench, "payment-1").apply(&client).await.unwrap();
    assert_eq!(applied, Guarded::AlreadyApplied);
    assert_eq!(bench.proxy.count(UPDATE), 2);
}

on_each_server!(a_refusal_after_a_send_without_an_answer_is_an_unknown_outcome);
async fn a_refusal_after_a_send_without_an_answer_is_an_unknown_outcome(server: Server) {
    let bench = Bench::on(&server).await;
    let client = bench.proxy.server().client();
    for silent in [Fault::Withhold, Fault::INTERNAL] {
        order_in(&bench, "cancelled").await;
        bench.proxy.inject(UPDATE, silent);
        let refused = paid(&bench, "payment-1").apply(&client).await;
        assert!(
            matches!(refused, Err(GuardError::Unknown(_))),
            "{refused:?}"
        );
    }
    order_in(&bench, "pending").await;
    assert_eq!(bench.proxy.deliver().await, [200], "it applies after all");
    let order = bench.item(&bench.business, "order").await;
    assert_eq!(order["status"], string("paid"));
}

on_each_server!(a_refusal_after_a_throttled_send_is_certain);
async fn a_refusal_after_a_throttled_send_is_certain(server: Server) {
    let bench = Bench::on(&server).await;
    let client = bench.proxy.server().client();
    order_in(&bench, "cancelled").await;
    bench.proxy.inject(UPDATE, Fault::THROTTLE);
    let refused = paid(&bench, "payment-1").apply(&client).await.unwrap();
    assert!(matches!(refused, Guarded::Refused { found: Some(_) }));
    assert_eq!(bench.proxy.count(UPDATE), 2);
}

on_each_server!(a_write_that_fails_after_a_send_without_an_answer_has_an_unknown_outcome);
async fn a_write_that_fails_after_a_send_without_an_answer_has_an_unknown_outcome(server: Server) {
    let bench = Bench::on(&server).await;
    let client = bench.proxy.server().client();
    let add = Once::new(&bench.business, item_key("account"), "e-1").add("balance", 5);
    bench.proxy.inject(UPDATE, Fault::LoseRequest);
    bench.proxy.inject(UPDATE, Fault::DENY);
    let denied = add.apply(&client).await;
    assert!(matches!(denied, Err(GuardError::Unknown(_))), "{denied:?}");
    for _ in 0..10 {
        bench.proxy.inject(UPDATE, Fault::LoseRequest);
    }
    let lost = add.apply(&client).await;
    assert!(matches!(lost, Err(GuardError::Unknown(_))), "{lost:?}");
}

on_each_server!(a_table_that_is_not_there_is_an_error_and_nothing_was_written);
async fn a_table_that_is_not_there_is_an_error_and_nothing_was_written(server: Server) {
    let nowhere = Once::new("no-such-table", item_key("1"), "e-1").add("balance", 1);
    let failed = nowhere.apply(&server.client()).await;
    assert!(matches!(failed, Err(GuardError::Failed(_))), "{failed:?}");
}
