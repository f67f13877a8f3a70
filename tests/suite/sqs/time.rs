//! The end of an invocation: no message starts in the reserve, and none is cut off half-way by the layer.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::secrets::Log;
use crate::support::Fault;

/// Of an invocation.
const TIME: Duration = Duration::from_secs(8);
const RESERVE: Duration = Duration::from_secs(4);

/// What the log says of a message that did not start.
const OUT_OF_TIME: &str = r#"reason="out_of_time""#;

/// A batch in an invocation that has this much time.
fn within(time: Duration, messages: impl IntoIterator<Item = Value>) -> LambdaEvent<SqsEvent> {
    let mut event = batch(messages);
    event.context.deadline = VirtualClock::deadline(time);
    event
}

fn payments(count: u64) -> Vec<Value> {
    (1..=count)
        .map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n))
        .collect()
}

on_each_server!(no_message_starts_in_the_reserve_and_their_claims_are_released);
async fn no_message_starts_in_the_reserve_and_their_claims_are_released(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let done = effects.clone();
    let mut slow = charge(&once)
        .settings(|settings| {
            settings.concurrency = 1;
            settings.reserve = Some(RESERVE);
        })
        .handler(move |message| {
            done.of(&message);
            async move {
                message.cancelled().await;
                Ok(())
            }
        });
    let reply = slow.call(within(TIME, payments(3))).await.unwrap();
    let ran = effects.take();
    let reported: Vec<_> = reply
        .batch_item_failures
        .into_iter()
        .map(|failure| failure.item_identifier)
        .collect();
    assert_eq!(ran, ["m-1"], "it started in time, and was not cut off");
    assert_eq!(reported, ["m-2", "m-3"]);

    let mut quick = charging(&once, &effects);
    assert_eq!(deliver(&mut quick, payments(3)).await, NOTHING);
    assert_eq!(effects.take(), ["m-2", "m-3"], "their claims were released");
}

on_each_server!(a_running_handler_sees_the_reserve_begin);
async fn a_running_handler_sees_the_reserve_begin(server: Server) {
    let (once, seen) = (engine(&server).await, Arc::new(AtomicBool::new(false)));
    let saw = Arc::clone(&seen);
    let mut worker = charge(&once)
        .settings(|settings| settings.reserve = Some(RESERVE))
        .handler(move |message| {
            let saw = Arc::clone(&saw);
            async move {
                assert!(!message.is_cancelled());
                message.cancelled().await;
                assert!(message.is_cancelled());
                saw.store(true, Ordering::SeqCst);
                Err::<(), _>(PaymentError::Unreachable)
            }
        });
    let reply = worker.call(within(TIME, payments(1))).await.unwrap();
    assert!(seen.load(Ordering::SeqCst));
    assert_eq!(reply.batch_item_failures.len(), 1);
}

on_each_server!(with_no_time_left_nothing_is_decoded_or_claimed_and_everything_is_reported);
async fn with_no_time_left_nothing_is_decoded_or_claimed_and_everything_is_reported(
    server: Server,
) {
    let (log, _capture) = Log::capture();
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let (effects, decoded) = (Effects::default(), Arc::new(AtomicBool::new(false)));
    let taken = Arc::clone(&decoded);
    let mut worker = charge(&once)
        .key(move |payment: &Payment| {
            taken.store(true, Ordering::SeqCst);
            payment.payment_id.clone()
        })
        .handler(effects.handler());
    proxy.take_total();
    let reply = worker
        .call(within(Duration::ZERO, payments(5)))
        .await
        .unwrap();
    assert_eq!(reply.batch_item_failures.len(), 5);
    assert_eq!(log.text().matches(OUT_OF_TIME).count(), 5);
    assert_eq!(effects.take(), NOTHING);
    assert!(!decoded.load(Ordering::SeqCst));
    assert_eq!(proxy.take_total(), 0);
}

on_each_server!(a_message_whose_claim_was_slow_does_not_start_inside_the_reserve);
async fn a_message_whose_claim_was_slow_does_not_start_inside_the_reserve(server: Server) {
    let (log, _capture) = Log::capture();
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let effects = Effects::default();
    let mut worker = charge(&once)
        .settings(|settings| settings.reserve = Some(RESERVE))
        .handler(effects.handler());
    // The claims, which apply, are known a second after the reserve has begun.
    proxy.inject(
        "BatchExecuteStatement",
        Fault::SlowReply(Duration::from_secs(5)),
    );
    let reply = worker.call(within(TIME, payments(3))).await.unwrap();
    assert_eq!(reply.batch_item_failures.len(), 3);
    assert_eq!(log.text().matches(OUT_OF_TIME).count(), 3);
    assert_eq!(effects.take(), NOTHING);

    let mut next = charging(&once, &effects);
    assert_eq!(deliver(&mut next, payments(3)).await, NOTHING);
    assert_eq!(
        effects.take(),
        ["m-1", "m-2", "m-3"],
        "their claims were released"
    );
}

on_each_server!(a_deadline_earlier_than_the_engine_cuts_neither_messages_nor_the_hook_short);
async fn a_deadline_earlier_than_the_engine_cuts_neither_messages_nor_the_hook_short(
    server: Server,
) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let done = effects.clone();
    let mut worker = charge(&once)
        .settings(|settings| settings.reserve = Some(Duration::from_secs(5)))
        .on_rejected(|_, _| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, PaymentError>(())
        })
        .handler(move |message| {
            assert!(!message.is_cancelled());
            let left = message.claim.remaining().unwrap();
            assert!(left > Duration::from_mins(14), "{left:?}");
            done.of(&message);
            async { Ok(()) }
        });
    let mut event = batch([
        payment("m-1", "p-1", 5),
        payment("m-2", "p-2", 6),
        payment("m-3", "p-1", 5),
        message("m-4", "not JSON"),
    ]);
    // As `cargo lambda watch` sends it.
    event.context.deadline = 600_000;
    let reply = worker.call(event).await.unwrap();
    assert_eq!(
        reply.batch_item_failures.len(),
        0,
        "{:?}",
        reply.batch_item_failures
    );
    assert_eq!(effects.take(), ["m-1", "m-2"]);
}
