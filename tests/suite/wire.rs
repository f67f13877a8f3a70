//! The cost of each path, counted at the wire in requests: DynamoDB bills them, and a duplicate waits for them.

use std::convert::Infallible;
use std::io::Error as HandlerError;
use std::sync::Arc;
use std::time::Duration;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, Outcome};
use tokio::time::Instant;

use crate::on_each_server;
use crate::support::recorder::Recorder;
use crate::support::{Begun, Fault, Proxy, Server, builder_on};

async fn engine(server: &Server) -> (Proxy, Idempotency) {
    let proxy = Proxy::before(server).await;
    let table = server.idempotency_table().await;
    let store = DynamoDbStore::new(proxy.server().client(), table);
    let once = builder_on(store, "wire").build().unwrap();
    (proxy, once)
}

fn payload(text: &str) -> Fingerprint {
    Fingerprint::bytes(text.as_bytes())
}

on_each_server!(a_first_success_takes_two_requests_and_its_replay_one);
async fn a_first_success_takes_two_requests_and_its_replay_one(server: Server) {
    let (proxy, once) = engine(&server).await;
    let run = || {
        once.run(Key::new("charge", "1"), payload("a"), |_| async {
            Ok::<_, Infallible>(7)
        })
    };

    assert_eq!(run().await.unwrap(), Outcome::Executed(7));
    assert_eq!(proxy.take_total(), 2);

    let replayed = run().await.unwrap();
    assert!(replayed.is_replayed());
    assert_eq!(proxy.take_total(), 1);
}

on_each_server!(a_mismatch_and_a_request_in_flight_take_one_request_each);
async fn a_mismatch_and_a_request_in_flight_take_one_request_each(server: Server) {
    let (proxy, once) = engine(&server).await;
    let key = || Key::new("charge", "1");
    let inner = once.clone();
    let counting = proxy.clone();
    let outcome = once.run(key(), payload("a"), |_| async move {
        counting.take_total();
        let second = inner
            .run(key(), payload("a"), |_| async { Ok::<_, Infallible>(0) })
            .await;
        assert_matches!(second, Err(Error::InFlight { .. }));
        assert_eq!(counting.take_total(), 1);
        Ok::<_, Infallible>(1)
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(1));

    proxy.take_total();
    let other = once
        .run(key(), payload("b"), |_| async { Ok::<_, Infallible>(2) })
        .await;
    assert_matches!(other, Err(Error::Mismatch));
    assert_eq!(proxy.take_total(), 1);
}

on_each_server!(a_failure_takes_two_requests_and_its_retry_three);
async fn a_failure_takes_two_requests_and_its_retry_three(server: Server) {
    let (proxy, once) = engine(&server).await;
    let key = || Key::new("charge", "1");

    let failed = once
        .run(key(), payload("a"), |_| async {
            Err::<i32, _>(HandlerError::other("down"))
        })
        .await;
    assert_matches!(failed, Err(Error::Handler(_)));
    assert_eq!(proxy.take_total(), 2);

    let retried = once.run(key(), payload("a"), |claim| async move {
        assert_eq!(claim.attempt(), 2);
        Ok::<_, Infallible>(1)
    });
    assert_eq!(retried.await.unwrap(), Outcome::Executed(1));
    assert_eq!(proxy.take_total(), 3);
}

on_each_server!(a_takeover_of_a_crashed_attempt_takes_three_requests);
async fn a_takeover_of_a_crashed_attempt_takes_three_requests(server: Server) {
    let proxy = Proxy::before(&server).await;
    let clock = ManualClock::default();
    let table = server.idempotency_table().await;
    let once = Idempotency::builder(DynamoDbStore::new(proxy.server().client(), table))
        .namespace("wire")
        .clock(clock.clone())
        .build()
        .unwrap();
    let key = || Key::new("charge", "1");
    let begun = Begun::default();
    begun
        .cut_off(once.run(key(), payload("a"), |_| {
            begun.then_never::<Result<u32, Infallible>>()
        }))
        .await;
    clock.advance(Duration::from_hours(1));

    proxy.take_total();
    let attempt = once.run(key(), payload("a"), |claim| async move {
        Ok::<_, Infallible>(claim.attempt())
    });
    assert_eq!(attempt.await.unwrap(), Outcome::Executed(2));
    assert_eq!(proxy.take_total(), 3);
}

on_each_server!(a_lost_reply_to_a_claim_ends_as_if_it_had_come);
async fn a_lost_reply_to_a_claim_ends_as_if_it_had_come(server: Server) {
    let (proxy, once) = engine(&server).await;
    proxy.inject("PutItem", Fault::LoseReply);
    let outcome = once.run(Key::new("charge", "1"), payload("a"), |claim| async move {
        assert_eq!(claim.attempt(), 1);
        Ok::<_, Infallible>(1)
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(1));
    assert_eq!(proxy.take_counts()["PutItem"], 2);
}

on_each_server!(every_read_asks_for_strong_consistency);
async fn every_read_asks_for_strong_consistency(server: Server) {
    let recorder = Arc::new(Recorder::default());
    let proxy = Proxy::meddled_with(&server, recorder.clone()).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let once = builder_on(store, "wire")
        .settings(|settings| settings.inline_limit = 10)
        .build()
        .unwrap();
    let keys = ["1", "2"].map(|token| Key::new("charge", token));
    let outcome = "kept in its own item";
    for key in &keys {
        let run = once.run(key.clone(), payload("a"), |_| async {
            Ok::<_, Infallible>(outcome.to_owned())
        });
        run.await.unwrap();
    }
    assert_eq!(recorder.of("GetItem").len(), 0);

    // The item that holds an outcome.
    let replayed = once.run(keys[0].clone(), payload("a"), |_| async {
        Ok::<_, Infallible>(String::new())
    });
    assert_eq!(replayed.await.unwrap().into_inner(), outcome);
    // A record, one by one.
    let ids = keys.map(|key| once.record_id(&key).unwrap());
    let deadline = Instant::now() + Duration::from_mins(1);
    assert!(
        once.store()
            .load(&ids[0], deadline)
            .await
            .unwrap()
            .is_some()
    );
    let single = recorder.of("GetItem");
    assert_eq!(single.len(), 2);
    for request in single {
        assert_eq!(request["ConsistentRead"], true, "{request}");
    }

    // Several records at once, and again those that the first reply left out.
    proxy.inject(
        "BatchGetItem",
        Fault::Partly {
            taken: 1,
            code: "ThrottlingError",
        },
    );
    let found = once.store().load_all(&ids, deadline).await;
    assert!(
        found.iter().all(|found| matches!(found, Ok(Some(_)))),
        "{found:?}"
    );
    let grouped = recorder.of("BatchGetItem");
    assert_eq!(grouped.len(), 2);
    for request in grouped {
        let tables = request["RequestItems"].as_object().unwrap();
        assert_eq!(tables.len(), 1);
        assert!(
            tables
                .values()
                .all(|wanted| wanted["ConsistentRead"] == true),
            "{request}"
        );
    }
}
