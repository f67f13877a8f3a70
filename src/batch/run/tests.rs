use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsMessage;
use lambda_runtime::{Context, LambdaEvent};
use tokio::time::Instant;

use super::*;
use crate::OnCrash;
use crate::batch::reader::tests::message;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;
use crate::sqs::{BatchLayer, SqsEvent};
use crate::store::MemoryStore;

fn engine() -> Idempotency {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("shop");
    builder.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_message_that_failed_has_the_kind_of_its_error() {
    let once = engine();
    let mut worker = BatchLayer::new(once.clone())
        .operation("charge")
        .handler(|_: Message<SqsEvent, u32>| async { Err::<(), _>(std::fmt::Error) });
    let mut event = SqsEvent::default();
    event.records = vec![message("m-1", "7")];
    let event = LambdaEvent::new(event, Context::default());
    let reply = worker.call(event).await.unwrap();
    assert_eq!(reply.batch_item_failures.len(), 1);

    let id = once.record_id(&Key::new("charge", "m-1")).unwrap();
    let soon = Instant::now() + Duration::from_secs(1);
    let found = once.store().load(&id, soon).await.unwrap().unwrap();
    let record = found.content.unwrap();
    assert!(record.is_released());
    assert_eq!(record.last_error.as_deref(), Some("core::fmt::Error"));
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
        let mut event = SqsEvent::default();
        event.records = vec![message("m-1", "7")];
        let event = LambdaEvent::new(event, Context::default());
        let reply = worker.call(event).await.unwrap();
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
