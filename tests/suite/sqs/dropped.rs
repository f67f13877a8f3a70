//! Batches that are dropped while their process lives on, by a timeout of the caller's say.

use std::sync::Arc;

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore};

use super::*;
use crate::support::Begun;
use crate::support::crash::drop_when;

on_each_server!(the_messages_of_a_batch_that_is_dropped_run_at_once_in_the_next_one);
async fn the_messages_of_a_batch_that_is_dropped_run_at_once_in_the_next_one(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let messages = || (10..22).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n));
    let begun = Arc::new(Begun::default());
    let handler = Arc::clone(&begun);
    let mut stuck = charge(&once).handler(move |_| {
        let begun = Arc::clone(&handler);
        async move { begun.then_never::<Result<(), PaymentError>>().await }
    });
    begun.hang_up(stuck.call(batch(messages()))).await;

    let mut worker = charging(&once, &effects);
    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn as_many_messages_end_without_their_places_as_run_side_by_side_and_a_hundred_at_least() {
    for (concurrency, expected) in [(1, 101), (120, 240)] {
        let store = FaultyStore::new(MemoryStore::new());
        let once = builder_on(store.clone(), "sqs").build().unwrap();
        let effects = Effects::default();
        let layer = BatchLayer::new(once).settings(|settings| {
            settings.concurrency = concurrency;
            settings.single_writes = true;
        });
        let mut worker = layer.handler(effects.handler::<u64>());
        for _ in 0..300 {
            store.inject(Call::Complete, Fault::Delayed(Duration::from_hours(1)));
        }
        let messages = (0..300).map(|n| message(&format!("m-{n}"), n.to_string()));
        let slow = worker.call(batch(messages));
        drop_when(tokio::time::sleep(Duration::from_secs(1)), slow).await;
        assert_eq!(effects.take().len(), expected, "{concurrency}");
    }
}

/// More messages than may end at once without their places.
#[tokio::test(start_paused = true)]
async fn each_message_that_succeeded_is_done_though_its_batch_is_dropped_behind_a_slow_store() {
    let store = FaultyStore::new(MemoryStore::new());
    let once = builder_on(store.clone(), "sqs").build().unwrap();
    let effects = Effects::default();
    let layer = BatchLayer::new(once).settings(|settings| {
        settings.concurrency = 100;
        settings.single_writes = true;
    });
    let mut worker = layer.handler(effects.handler::<u64>());
    let messages = || (0..200).map(|n| message(&format!("m-{n}"), n.to_string()));
    for _ in 0..200 {
        store.inject(Call::Complete, Fault::Delayed(Duration::from_hours(1)));
    }
    let slow = worker.call(batch(messages()));
    drop_when(tokio::time::sleep(Duration::from_secs(1)), slow).await;
    store.calm();
    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take().len(), 200);
}
