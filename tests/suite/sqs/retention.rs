//! The retention of a message's outcome.

use super::*;
use crate::support::retention::for_days;

on_each_server!(a_message_is_kept_as_long_as_the_closure_says_and_else_as_the_engine_says);
async fn a_message_is_kept_as_long_as_the_closure_says_and_else_as_the_engine_says(server: Server) {
    for is_single in [false, true] {
        let table = server.idempotency_table().await;
        let store = DynamoDbStore::new(server.client(), &table);
        let once = builder(store).retention(for_days(2)).build().unwrap();
        let layer = charge(&once).retention(|payment, message| {
            let is_large = payment.amount > 100;
            let days = if message.message_id.as_deref() == Some("m-3") {
                90
            } else {
                30
            };
            is_large.then(|| for_days(days))
        });
        let layer = if is_single {
            layer.settings(|settings| settings.single_writes = true)
        } else {
            layer
        };
        let effects = Effects::default();
        let mut worker = layer.handler(effects.handler());
        let messages = || {
            [
                payment("m-1", "p-1", 5),
                payment("m-2", "p-2", 500),
                payment("m-3", "p-3", 500),
            ]
        };
        assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
        assert_eq!(days(&server, &table).await, [2, 30, 90]);
        assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
        assert_eq!(effects.take().len(), 3);
    }
}

on_each_server!(a_layer_keeps_its_messages_as_long_as_the_engine_that_it_is_made_of);
async fn a_layer_keeps_its_messages_as_long_as_the_engine_that_it_is_made_of(server: Server) {
    let table = server.idempotency_table().await;
    let store = DynamoDbStore::new(server.client(), &table);
    let once = builder(store).retention(for_days(2)).build().unwrap();
    let effects = Effects::default();
    let mut payments = charging(&once.retention(for_days(30)), &effects);
    deliver(&mut payments, [payment("m-1", "p-1", 5)]).await;
    let mut others = charging(&once, &effects);
    deliver(&mut others, [payment("m-2", "p-2", 5)]).await;
    assert_eq!(days(&server, &table).await, [2, 30]);
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_concerns_its_message_alone() {
    let server = Server::dynoxide().await;
    for is_observing in [false, true] {
        let once = builder(server.store().await).observe(is_observing);
        let once = once.build().unwrap();
        let layer = charge(&once).retention(|payment, _| {
            assert_ne!(payment.amount, 13, "no such day");
            None
        });
        let mut worker = layer.handler(|_| async { Ok(()) });
        let messages = [payment("m-1", "p-1", 13), payment("m-2", "p-2", 5)];
        let reported = deliver(&mut worker, messages).await;
        // Where nothing is protected, the message runs without a key.
        let expected: &[&str] = if is_observing { &[] } else { &["m-1"] };
        assert_eq!(reported, expected);
    }
}
