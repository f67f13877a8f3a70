//! A message that the engine refuses, or for which it can promise nothing, is reported: never acknowledged.

use std::num::NonZeroU32;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Fingerprint, Key, OnCrash, OnStoreUnavailable, Outcome, Unrecorded};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::support::{Begun, Fault};

use super::*;

/// The claim that a delivery of `payment("…", "p-1", 5)` would make, made by somebody else.
async fn elsewhere(once: &Idempotency, meanwhile: impl Future<Output = ()>) -> Outcome<()> {
    let fingerprint = Fingerprint::json(body("p-1", 5).as_bytes());
    once.run(Key::new("charge", "p-1"), fingerprint, |_| async {
        meanwhile.await;
        Ok::<_, PaymentError>(())
    })
    .await
    .unwrap()
}

/// Longer than a lease.
const LATER: Duration = Duration::from_hours(1);

on_each_server!(a_message_in_flight_elsewhere_is_reported_and_acknowledged_once_it_is_done);
async fn a_message_in_flight_elsewhere_is_reported_and_acknowledged_once_it_is_done(
    server: Server,
) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    let messages = || [payment("m-1", "p-1", 5), payment("m-2", "p-2", 5)];

    let other = elsewhere(&once, async {
        assert_eq!(deliver(&mut worker.clone(), messages()).await, ["m-1"]);
        assert_eq!(effects.take(), ["m-2"]);
    });
    Box::pin(other).await;

    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(a_key_that_comes_again_with_another_body_is_reported);
async fn a_key_that_comes_again_with_another_body_is_reported(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    reports(&mut worker, [payment("m-1", "p-1", 5)], &[]).await;
    reports(&mut worker, [payment("m-2", "p-1", 6)], &["m-2"]).await;
    reports(&mut worker, [payment("m-3", "p-1", 5)], &[]).await;
    assert_eq!(effects.take(), ["m-1"]);
}

on_each_server!(a_crashed_attempt_runs_again_or_is_reported_by_policy);
async fn a_crashed_attempt_runs_again_or_is_reported_by_policy(server: Server) {
    let store = server.store().await;
    let (effects, clock) = (Effects::default(), ManualClock::default());
    let timed = || builder(store.clone()).clock(clock.clone());
    let first = timed().build().unwrap();
    let begun = Begun::default();
    begun.cut_off(elsewhere(&first, begun.then_never())).await;
    clock.advance(LATER);

    let interrupted = timed().on_crash(OnCrash::Interrupt);
    let exhausted = timed().max_attempts(NonZeroU32::MIN);
    for policy in [interrupted, exhausted] {
        let mut worker = charging(&policy.build().unwrap(), &effects);
        reports(&mut worker, [payment("m-1", "p-1", 5)], &["m-1"]).await;
        assert_eq!(effects.take(), NOTHING);
    }

    let mut worker = charging(&first, &effects);
    reports(&mut worker, [payment("m-1", "p-1", 5)], &[]).await;
    assert_eq!(effects.take(), ["m-1"]);
}

on_each_server!(a_handler_that_outlives_its_lease_is_reported);
async fn a_handler_that_outlives_its_lease_is_reported(server: Server) {
    let clock = ManualClock::default();
    let timed = builder(server.store().await).clock(clock.clone());
    let once = timed.build().unwrap();
    let [begun, taken_over, ended] = [(); 3].map(|()| Arc::new(Notify::new()));
    let (runs, successor_started) = (Arc::clone(&begun), Arc::clone(&taken_over));
    let mut worker = charge(&once).handler(move |_| {
        let (runs, successor_started) = (Arc::clone(&runs), Arc::clone(&successor_started));
        async move {
            runs.notify_one();
            successor_started.notified().await;
            Ok(())
        }
    });
    let slow = async {
        let reported = deliver(&mut worker, [payment("m-1", "p-1", 5)]).await;
        ended.notify_one();
        reported
    };
    let successor = async {
        begun.notified().await;
        clock.advance(LATER);
        let run = elsewhere(&once, async {
            taken_over.notify_one();
            ended.notified().await;
        });
        Box::pin(run).await
    };
    let (reported, outcome) = tokio::join!(slow, successor);
    assert_eq!(reported, ["m-1"]);
    assert_eq!(
        outcome,
        Outcome::Executed(()),
        "the successor's outcome stands"
    );
}

on_each_server!(a_claim_that_comes_too_late_does_not_run);
async fn a_claim_that_comes_too_late_does_not_run(server: Server) {
    let proxy = Proxy::before(&server).await;
    let (effects, clock) = (Effects::default(), ManualClock::default());
    let once = builder(proxy.server().store().await)
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut worker = charging(&once, &effects);
    proxy.inject("PutItem", Fault::Delay(Duration::from_secs(1)));
    let meanwhile = async {
        proxy.held().await;
        clock.advance(LATER);
    };
    let (reported, ()) = tokio::join!(deliver(&mut worker, [payment("m-1", "p-1", 5)]), meanwhile);
    assert_eq!(reported, ["m-1"]);
    assert_eq!(effects.take(), NOTHING);
    reports(&mut worker, [payment("m-1", "p-1", 5)], &[]).await;
    assert_eq!(effects.take(), ["m-1"]);
}

on_each_server!(a_record_that_cannot_be_read_is_reported_and_left_alone);
async fn a_record_that_cannot_be_read_is_reported_and_left_alone(server: Server) {
    let (client, table) = (server.client(), server.idempotency_table().await);
    let once = builder(DynamoDbStore::new(client.clone(), &table))
        .build()
        .unwrap();
    let effects = Effects::default();
    let mut worker = charging(&once, &effects);
    deliver(&mut worker, [payment("m-1", "p-1", 5)]).await;
    effects.take();

    let scan = || client.scan().table_name(&table).send();
    let mut item = scan().await.unwrap().items.unwrap().remove(0);
    item.insert("status".to_owned(), AttributeValue::S("PAUSED".to_owned()));
    let put = client
        .put_item()
        .table_name(&table)
        .set_item(Some(item.clone()));
    put.send().await.unwrap();

    reports(&mut worker, [payment("m-1", "p-1", 5)], &["m-1"]).await;
    assert_eq!(effects.take(), NOTHING);
    assert_eq!(scan().await.unwrap().items.unwrap(), [item]);
}

/// A server whose port is closed.
async fn nowhere() -> Server {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    Server::behind(format!("http://{}", listener.local_addr().unwrap()))
}

#[tokio::test(start_paused = true)]
async fn with_the_store_down_every_message_is_reported_and_none_runs() {
    let store = DynamoDbStore::new(nowhere().await.client(), "idempotency");
    let (once, effects) = (builder(store).build().unwrap(), Effects::default());
    let mut worker = charging(&once, &effects);
    let messages = (1..=10).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n));
    assert_eq!(deliver(&mut worker, messages).await.len(), 10);
    assert_eq!(effects.take(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn with_the_store_down_and_a_policy_that_fails_open_every_message_runs() {
    let store = DynamoDbStore::new(nowhere().await.client(), "idempotency");
    let once = builder(store)
        .on_store_unavailable(OnStoreUnavailable::FailOpen)
        .build()
        .unwrap();
    let effects = Effects::default();
    let mut worker = charging(&once, &effects);
    let messages = [payment("m-1", "p-1", 1), payment("m-2", "p-2", 2)];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
    assert_eq!(effects.take().len(), 2);
}

on_each_server!(what_a_group_answered_keeps_the_door_closed_when_nothing_else_is_answered);
async fn what_a_group_answered_keeps_the_door_closed_when_nothing_else_is_answered(server: Server) {
    let for_now = r#"{"Responses": [
        {"Error": {"Code": "ThrottlingError", "Message": "injected"}},
        {"Error": {"Code": "TransactionConflict", "Message": "injected"}}
    ]}"#;
    // Duplicates that meet their outcomes, and claims that the table doesn't take now.
    for answer in [Fault::Pass, Fault::Reply(for_now)] {
        let proxy = Proxy::before(&server).await;
        let builder = builder(proxy.server().store().await);
        let open = builder.on_store_unavailable(OnStoreUnavailable::FailOpen);
        let (open, effects) = (open.build().unwrap(), Effects::default());
        let mut worker = charging(&open, &effects);
        let messages = || [payment("m-1", "p-1", 1), payment("m-2", "p-2", 2)];
        assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
        assert_eq!(effects.take().len(), 2);
        proxy.inject("BatchExecuteStatement", answer);
        let lost = [
            "BatchExecuteStatement",
            "BatchGetItem",
            "GetItem",
            "PutItem",
        ];
        for operation in lost.into_iter().cycle().take(400) {
            proxy.inject(operation, Fault::LoseRequest);
        }
        assert_eq!(deliver(&mut worker, messages()).await.len(), 2);
        assert_eq!(effects.take(), NOTHING);
    }
}

on_each_server!(a_store_that_stumbles_is_waited_for_while_there_is_time);
async fn a_store_that_stumbles_is_waited_for_while_there_is_time(server: Server) {
    let proxy = Proxy::before(&server).await;
    let (once, effects) = (engine(proxy.server()).await, Effects::default());
    let mut worker = charging(&once, &effects);
    for (fault, times) in [
        // More often than the SDK tries.
        (Fault::THROTTLE, 5),
        (Fault::CONFLICT, 2),
        (Fault::INTERNAL, 2),
        (Fault::LoseRequest, 2),
        (Fault::LoseReply, 2),
    ] {
        proxy.repeat("PutItem", fault.clone(), times);
        let id = format!("{fault:?}");
        assert_eq!(deliver(&mut worker, [payment(&id, &id, 5)]).await, NOTHING);
        assert_eq!(effects.take(), [id]);
    }
}

on_each_server!(a_message_is_reported_when_its_claim_stays_throttled_or_is_refused);
async fn a_message_is_reported_when_its_claim_stays_throttled_or_is_refused(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = proxy.server().store().await;
    let once = builder(store)
        .settings(|settings| settings.store_timeout = Duration::from_millis(300))
        .build()
        .unwrap();
    let effects = Effects::default();
    let mut worker = charging(&once, &effects);
    for fault in [Fault::THROTTLE, Fault::DENY] {
        proxy.repeat("PutItem", fault, 200);
        reports(&mut worker, [payment("m-1", "p-1", 5)], &["m-1"]).await;
        assert_eq!(effects.take(), NOTHING);
    }
}

on_each_server!(
    a_success_that_could_not_be_recorded_is_acknowledged_unless_the_policy_says_otherwise
);
async fn a_success_that_could_not_be_recorded_is_acknowledged_unless_the_policy_says_otherwise(
    server: Server,
) {
    for policy in [Unrecorded::Return, Unrecorded::Fail] {
        let proxy = Proxy::before(&server).await;
        let store = proxy.server().store().await;
        let once = builder(store)
            .settings(|settings| settings.unrecorded = policy)
            .build()
            .unwrap();
        let effects = Effects::default();
        let mut worker = charging(&once, &effects);
        proxy.inject("UpdateItem", Fault::DENY);
        let reply = worker.call(batch([payment("m-1", "p-1", 5)])).await;
        match (policy, &reply) {
            (Unrecorded::Return, Ok(reply)) => assert!(reply.batch_item_failures.is_empty()),
            // A permission is missing.
            (Unrecorded::Fail, Err(BatchError::Misconfigured { .. })) => {}
            _ => panic!("{policy:?}: {reply:?}"),
        }
        assert_eq!(effects.take(), ["m-1"]);
    }
}
