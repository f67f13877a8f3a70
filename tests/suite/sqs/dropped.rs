//! Batches that are dropped while their process lives on, by a timeout of the caller's say.

use std::sync::Arc;

use super::*;
use crate::support::Begun;

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
