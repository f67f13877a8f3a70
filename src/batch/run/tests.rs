use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsMessage;
use lambda_runtime::{Context, LambdaEvent};
use tokio::time::Instant;

use super::*;
use crate::batch::hooks::Deferral;
use crate::batch::reader::tests::message;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;
use crate::sqs::{BatchLayer, SqsEvent};
use crate::store::MemoryStore;
use crate::{OnCrash, SagaError};

fn engine() -> Idempotency {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("shop");
    builder.build().unwrap()
}

/// A batch of messages with these ids.
fn event(ids: &[&str]) -> LambdaEvent<SqsEvent> {
    let mut event = SqsEvent::default();
    event.records = ids.iter().map(|id| message(id, "7")).collect();
    LambdaEvent::new(event, Context::default())
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_message_that_failed_has_the_kind_of_its_error() {
    for (panics, expected) in [(false, "core::fmt::Error"), (true, "panic")] {
        let once = engine();
        let mut worker = BatchLayer::new(once.clone()).operation("charge").handler(
            move |_: Message<SqsEvent, u32>| async move {
                assert!(!panics, "on purpose");
                Err::<(), _>(std::fmt::Error)
            },
        );
        let reply = worker.call(event(&["m-1"])).await.unwrap();
        assert_eq!(reply.batch_item_failures.len(), 1);

        let id = once.record_id(&Key::new("charge", "m-1")).unwrap();
        let soon = Instant::now() + Duration::from_secs(1);
        let found = once.store().load(&id, soon).await.unwrap().unwrap();
        let record = found.content.unwrap();
        assert!(record.is_released());
        assert_eq!(record.last_error.as_deref(), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_saga_still_compensates_is_not_rejected() {
    let mut worker = BatchLayer::new(engine())
        .permanent(|_: &SagaError<std::fmt::Error>| true)
        .on_rejected(|_, _| async { Ok::<_, std::fmt::Error>(()) })
        .handler(|message: Message<SqsEvent, u32>| async move {
            let mut saga = message.claim.saga::<std::fmt::Error>()?;
            let reserve = |_| async { Ok(7_u32) };
            let free = |_, _| async { Err(std::fmt::Error) };
            saga.step("reserve", reserve, free).await?;
            Err::<(), SagaError<std::fmt::Error>>(saga.abort(&std::fmt::Error).await)
        });
    let reply = worker.call(event(&["m-1"])).await.unwrap();
    assert_eq!(reply.batch_item_failures.len(), 1);
}

fn for_a_second(_: &SqsMessage) -> Deferral {
    Box::new(|_, _| Box::pin(async { tokio::time::sleep(Duration::from_secs(1)).await }))
}

#[tokio::test(start_paused = true)]
async fn as_many_messages_are_hidden_side_by_side_as_may_run() {
    let ids = ["m-1", "m-2", "m-3"];
    for (concurrency, seconds) in [(0, 3), (1, 3), (2, 2), (3, 1)] {
        let (once, mut elsewhere) = (engine(), Vec::new());
        for id in ids {
            let claimed = once.begin(Key::new("charge", id), None).await;
            let Ok(Begun::Run(run)) = claimed else {
                panic!("{claimed:?}")
            };
            elsewhere.push(run);
        }
        let mut worker = BatchLayer::new(once)
            .operation("charge")
            .settings(|settings| settings.concurrency = concurrency)
            .deferring(Arc::new(for_a_second))
            .handler(|_: Message<SqsEvent, u32>| async { Ok::<_, std::fmt::Error>(()) });
        let began = Instant::now();
        let reply = worker.call(event(&ids)).await.unwrap();
        assert_eq!(reply.batch_item_failures.len(), elsewhere.len());
        let took = began.elapsed();
        assert_eq!(took, Duration::from_secs(seconds), "{concurrency}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_closure_that_judges_an_error_is_no_crash_of_the_handler() {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let once = builder.on_crash(OnCrash::Interrupt).build().unwrap();
    let has_failed = Arc::new(AtomicBool::new(false));
    let mut worker = BatchLayer::new(once)
        .permanent(|_: &std::fmt::Error| -> bool { panic!("on purpose") })
        .handler(move |_: Message<SqsEvent, u32>| {
            let has_failed = has_failed.swap(true, Ordering::Relaxed);
            async move { has_failed.then_some(()).ok_or(std::fmt::Error) }
        });
    for failures in [1, 0] {
        let reply = worker.call(event(&["m-1"])).await.unwrap();
        assert_eq!(reply.batch_item_failures.len(), failures);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_cancelled_when_the_reserve_begins() {
    let fingerprint = Fingerprint::bytes(b"7");
    let claimed = engine().begin(Key::new("charge", "m-1"), fingerprint).await;
    let Ok(Begun::Run(run)) = claimed else {
        panic!("{claimed:?}")
    };
    let until = |stop_at| Message::<SqsEvent, ()> {
        body: (),
        claim: run.claim().clone(),
        metadata: SqsMessage::default(),
        stop_at,
    };
    let began = Instant::now();
    let message = until(Some(began + Duration::from_secs(1)));
    assert!(!message.is_cancelled());
    message.cancelled().await;
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    assert!(until(Some(Instant::now())).is_cancelled());

    let endless = until(None);
    assert!(!endless.is_cancelled());
    let never = tokio::time::timeout(Duration::from_hours(1), endless.cancelled());
    assert!(never.await.is_err());
}
