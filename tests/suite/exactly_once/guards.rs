//! Writes that refuse a second application by themselves.

use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::guard::{Guard, GuardError, Guarded, Version};
use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::{Error, Outcome};

use super::{Bench, Failed, key, met, number, payload, string};
use crate::on_each_server;
use crate::support::{Fault, Server};

fn item_key(id: &str) -> [(&'static str, AttributeValue); 1] {
    [("id", string(id))]
}

fn paid(bench: &Bench, by: &str) -> Guard {
    let from = ["pending", "failed"];
    Guard::transition(&bench.business, item_key("order"), from, "paid").set("paid_by", string(by))
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
    assert_matches!(
        paid(&bench, "payment-2").apply(&client).await.unwrap(),
        Guarded::Refused { found: Some(_) }
    );
    order_in(&bench, "cancelled").await;
    let Guarded::Refused { found: Some(found) } =
        paid(&bench, "payment-1").apply(&client).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(found["status"], string("cancelled"));
}

on_each_server!(a_payment_whose_order_has_moved_on_is_told_from_anothers);
async fn a_payment_whose_order_has_moved_on_is_told_from_anothers(server: Server) {
    let bench = Bench::on(&server).await;
    let client = server.client();
    // The function of `docs/recipes/guards.md`.
    let pay = async |payment: &str| {
        let by = string(payment);
        match paid(&bench, payment).apply(&client).await.unwrap() {
            Guarded::Applied | Guarded::AlreadyApplied => true,
            Guarded::Refused { found } => {
                found.is_some_and(|order| order.get("paid_by") == Some(&by))
            }
        }
    };
    let page = include_str!("../../../docs/recipes/guards.md");
    assert!(page.contains(r#"Ok(found.is_some_and(|order| order.get("paid_by") == Some(&by)))"#));
    order_in(&bench, "pending").await;
    assert!(pay("payment-1").await);
    let moved = Guard::transition(&bench.business, item_key("order"), ["paid"], "shipped");
    assert_eq!(moved.apply(&client).await.unwrap(), Guarded::Applied);
    assert!(pay("payment-1").await);
    assert!(!pay("payment-2").await);
    order_in(&bench, "cancelled").await;
    assert!(!pay("payment-1").await);
}

on_each_server!(a_payment_that_a_full_order_refuses_is_not_taken_for_done);
async fn a_payment_that_a_full_order_refuses_is_not_taken_for_done(server: Server) {
    let bench = Bench::on(&server).await;
    let client = server.client();
    // As the example of `Guard::once` takes it.
    let take = async |payment: &str| {
        let once = Guard::once(&bench.business, item_key("account"), payment).at_most(1);
        match once.add("balance", 5).apply(&client).await.unwrap() {
            Guarded::Applied | Guarded::AlreadyApplied => Ok(()),
            Guarded::Refused { .. } => Err(Failed::Broken),
        }
    };
    assert_eq!(take("payment-1").await, Ok(()));
    assert_eq!(take("payment-1").await, Ok(()));
    assert_eq!(take("payment-2").await, Err(Failed::Broken));
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(an_addition_applies_once_for_each_event_until_the_item_is_full);
async fn an_addition_applies_once_for_each_event_until_the_item_is_full(server: Server) {
    let bench = Bench::on(&server).await;
    let client = server.client();
    let add = |event: &str| {
        Guard::once(&bench.business, item_key("account"), event)
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
    assert_matches!(
        add("e-3").apply(&client).await.unwrap(),
        Guarded::Refused { found: Some(_) }
    );
    assert_eq!(bench.balance().await, 10);
}

on_each_server!(a_guard_of_each_kind_sets_removes_and_adds);
async fn a_guard_of_each_kind_sets_removes_and_adds(server: Server) {
    let bench = Bench::on(&server).await;
    let client = server.client();
    for guard in [
        Guard::transition(&bench.business, item_key("order"), ["pending"], "paid"),
        Guard::once(&bench.business, item_key("order"), "e-1"),
        Guard::latest(&bench.business, item_key("order"), 7),
    ] {
        let put = client.put_item().table_name(&bench.business);
        let put = put.item("id", string("order")).item("by", string("1"));
        put.item("status", string("pending")).send().await.unwrap();
        let guard = guard.set("to", string("2")).remove("by").add("count", -5);
        assert_eq!(guard.apply(&client).await.unwrap(), Guarded::Applied);
        let again = guard.apply(&client).await.unwrap();
        assert_eq!(again, Guarded::AlreadyApplied);
        let order = bench.item(&bench.business, "order").await;
        assert_eq!([&order["to"], &order["count"]], [&string("2"), &number(-5)]);
        assert!(!order.contains_key("by"));
    }
}

on_each_server!(a_bound_on_another_kind_than_once_fails);
async fn a_bound_on_another_kind_than_once_fails(server: Server) {
    let bench = Bench::on(&server).await;
    order_in(&bench, "pending").await;
    let bounded = paid(&bench, "payment-1").at_most(2);
    let failed = bounded.apply(&server.client()).await.unwrap_err();
    assert_matches!(failed, GuardError::Failed(_));
    let text = DisplayErrorContext(&failed).to_string();
    assert!(text.contains(":at_most"), "{text}");
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
    assert_matches!(pay().await, Err(Error::Handler(Failed::Broken)));
    order_in(&bench, "cancelled").await;
    assert_matches!(pay().await, Err(Error::Handler(Failed::SoldOut { .. })));
    assert_eq!(bench.balance().await, 5);
}

on_each_server!(an_addition_in_a_transaction_is_refused_with_the_item);
async fn an_addition_in_a_transaction_is_refused_with_the_item(server: Server) {
    let bench = Bench::on(&server).await;
    let add = || Guard::once(&bench.business, item_key("account"), "e-1").add("balance", 5);
    let applied = add().apply(&server.client()).await.unwrap();
    assert_eq!(applied, Guarded::Applied);
    let again = bench
        .once()
        .run(key(), payload(), async |claim| {
            claim.write(Write::from(add()).or_else(|refusal| Failed::SoldOut {
                left: met(refusal.item(), "balance"),
            }))?;
            Ok(())
        })
        .await;
    assert_matches!(again, Err(Error::Handler(Failed::SoldOut { left: 5 })));
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
        assert_matches!(refused, Err(GuardError::Unknown(_)));
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
    assert_matches!(refused, Guarded::Refused { found: Some(_) });
    assert_eq!(bench.proxy.count(UPDATE), 2);
}

on_each_server!(a_write_that_fails_after_a_send_without_an_answer_has_an_unknown_outcome);
async fn a_write_that_fails_after_a_send_without_an_answer_has_an_unknown_outcome(server: Server) {
    let bench = Bench::on(&server).await;
    let client = bench.proxy.server().client();
    let add = Guard::once(&bench.business, item_key("account"), "e-1").add("balance", 5);
    bench.proxy.inject(UPDATE, Fault::LoseRequest);
    bench.proxy.inject(UPDATE, Fault::DENY);
    let denied = add.apply(&client).await;
    assert_matches!(denied, Err(GuardError::Unknown(_)));
    bench.proxy.repeat(UPDATE, Fault::LoseRequest, 10);
    let lost = add.apply(&client).await;
    assert_matches!(lost, Err(GuardError::Unknown(_)));
}

on_each_server!(a_table_that_is_not_there_is_an_error_and_nothing_was_written);
async fn a_table_that_is_not_there_is_an_error_and_nothing_was_written(server: Server) {
    let nowhere = Guard::once("no-such-table", item_key("1"), "e-1").add("balance", 1);
    let failed = nowhere.apply(&server.client()).await;
    assert_matches!(failed, Err(GuardError::Failed(_)));
}

/// Three versions of each kind, the oldest first.
fn versions() -> Vec<[Version; 3]> {
    let sequence = |digits| Version::sequence(digits).unwrap();
    let sequencer = |digits| Version::sequencer(digits).unwrap();
    let at = |millis, tie| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        Version::timestamp(time, tie).unwrap()
    };
    vec![
        [-10, 9, 10].map(Version::from),
        [
            "9",
            "10",
            "49590338271490256608559692538361571095921575989136588898",
        ]
        .map(sequence),
        ["0055AED6", "0055AED6DCD90281E5", "0055AED7"].map(sequencer),
        [at(999, "b"), at(1_000, "a"), at(1_000, "b")],
    ]
}

/// Applies words of up to four events, or of as many as `GUARD_EVENTS` says, of which some are the
/// same; each `step`th of all.
async fn apply_in_every_order(server: &Server, kind: usize, step: usize) {
    let bench = Bench::on(server).await;
    let client = server.client();
    let versions = &versions()[kind];
    let events = std::env::var("GUARD_EVENTS").map_or(4, |text| text.parse().unwrap());
    let mut words = vec![Vec::new()];
    for _ in 0..events {
        let longer = words.iter().flat_map(|word: &Vec<usize>| {
            (0..3).map(move |event| [word.as_slice(), &[event]].concat())
        });
        words = std::iter::once(Vec::new()).chain(longer).collect();
    }
    assert_eq!(words.len(), (3_usize.pow(events + 1) - 1) / 2);
    for word in words.iter().skip(1).step_by(step) {
        let id = format!("{word:?}");
        let attributes = |event: usize| [["x", "y"], ["y", "x"]][event % 2];
        let mut newest = None;
        for &event in word {
            let [set, removed] = attributes(event);
            let latest = Guard::latest(&bench.business, item_key(&id), versions[event].clone());
            let latest = latest.set(set, string(&event.to_string())).remove(removed);
            let expected = if newest < Some(event) {
                Guarded::Applied
            } else {
                Guarded::AlreadyApplied
            };
            assert_eq!(latest.apply(&client).await.unwrap(), expected, "{id}");
            newest = newest.max(Some(event));
        }
        let found = bench.item(&bench.business, &id).await;
        let newest = newest.unwrap();
        let [set, removed] = attributes(newest);
        assert_eq!(found[set], string(&newest.to_string()), "{id}");
        assert!(!found.contains_key(removed), "{id}");
    }
}

on_each_server!(the_newest_version_stays_in_whatever_order_and_however_often_each_comes);
async fn the_newest_version_stays_in_whatever_order_and_however_often_each_comes(server: Server) {
    for kind in 0..4 {
        apply_in_every_order(&server, kind, 11).await;
    }
}

#[tokio::test]
async fn the_newest_number_stays_in_every_order() {
    apply_in_every_order(&Server::dynoxide().await, 0, 1).await;
}

on_each_server!(versions_of_two_kinds_are_never_compared);
async fn versions_of_two_kinds_are_never_compared(server: Server) {
    let bench = Bench::on(&server).await;
    let client = server.client();
    for (kind, [_, _, met]) in versions().into_iter().enumerate() {
        let key = || item_key(["a", "b", "c", "d"][kind]);
        let write = |version| Guard::latest(&bench.business, key(), version);
        assert_eq!(write(met).apply(&client).await.unwrap(), Guarded::Applied);
        for (other, [oldest, _, newest]) in versions().into_iter().enumerate() {
            for version in [oldest, newest] {
                match write(version).apply(&client).await {
                    Ok(guarded) => assert_eq!((guarded, other), (Guarded::AlreadyApplied, kind)),
                    Err(refused) => {
                        assert_matches!(refused, GuardError::Failed(_));
                        assert!(
                            refused.to_string().contains("can't be compared"),
                            "{refused}"
                        );
                        assert_ne!(other, kind);
                    }
                }
            }
        }
    }
}

on_each_server!(a_stale_version_refuses_its_transaction);
async fn a_stale_version_refuses_its_transaction(server: Server) {
    let bench = Bench::on(&server).await;
    let project = async |version: i64| {
        let latest = Guard::latest(&bench.business, item_key("projection"), version);
        let judge = latest.clone();
        let key = lambda_idempotency::Key::new("project", crate::support::server::unique("event"));
        let project = async |claim: lambda_idempotency::Claim| {
            claim.write(bench.deposit(5))?;
            claim.write(Write::from(latest).or_else(move |refusal| {
                match judge.judge(refusal.item()) {
                    Guarded::AlreadyApplied => Failed::Broken,
                    _ => Failed::SoldOut { left: 0 },
                }
            }))?;
            Ok(())
        };
        bench.once().run(key, payload(), project).await
    };
    assert_eq!(project(2).await.unwrap(), Outcome::Executed(()));
    for stale in [1, 2] {
        let refused = project(stale).await;
        assert_matches!(refused, Err(Error::Handler(Failed::Broken)));
    }
    assert_eq!(project(3).await.unwrap(), Outcome::Executed(()));
    assert_eq!(bench.balance().await, 10);
}
