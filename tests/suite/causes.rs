//! A handler's typed error keeps the texts of its causes wherever the library shows it.

use std::io;
use std::sync::{Arc, Mutex};

use lambda_idempotency::invoke::{Invocation, InvokeLayer};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::TestInvocation;
use lambda_idempotency::{Claim, Error, Idempotency, Key, SagaError, Verdict, sqs};
use tower::{Service, ServiceExt};

use crate::secrets::Log;
use crate::support::events::{batch, message};

const TEXT: &str = "the charge failed: no connection: the host has no address";

#[derive(Debug, thiserror::Error)]
#[error("the charge failed")]
struct Failed(#[source] NoConnection);

#[derive(Debug, thiserror::Error)]
#[error("no connection")]
struct NoConnection(#[source] io::Error);

fn failed() -> Failed {
    Failed(NoConnection(io::Error::other("the host has no address")))
}

fn engine() -> Idempotency {
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    once.settings(|settings| settings.log_errors = true)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_run_stores_and_logs_them() {
    let (log, _capture) = Log::capture();
    let once = engine();
    let run = async || {
        let handler = async |_| Err::<(), _>(failed());
        let fail = |_: &Result<(), Failed>| Verdict::Fail;
        once.run_with(Key::new("charge", "1"), None, handler, fail)
            .await
    };
    assert_matches!(run().await, Err(Error::Handler(_)));
    assert!(log.text().contains(TEXT), "{}", log.text());
    let Err(Error::Failed(failure)) = run().await else {
        panic!("it is final");
    };
    assert_eq!(failure.message, TEXT);
}

#[tokio::test(start_paused = true)]
async fn a_batch_shows_them_to_its_hook() {
    let (log, _capture) = Log::capture();
    let details = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&details);
    let layer = sqs::BatchLayer::new(engine()).permanent(|_: &Failed| true);
    let layer = layer.on_rejected(move |_, why| {
        noted.lock().unwrap().push(why.detail);
        async { Ok::<_, io::Error>(()) }
    });
    let mut worker = layer.handler(async |_: sqs::Message<u64>| Err::<(), _>(failed()));
    for _ in 0..2 {
        let reply = worker.call(batch([message("m-1", "7")])).await.unwrap();
        assert!(reply.batch_item_failures.is_empty());
    }
    let details = details.lock().unwrap();
    assert_eq!(details.len(), 2);
    assert!(
        details.iter().all(|detail| detail.contains(TEXT)),
        "{details:?}"
    );
    assert!(log.text().contains(TEXT), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn an_invocation_answers_a_duplicate_with_them() {
    let layer = InvokeLayer::new(engine()).operation("charge");
    let layer = layer.key(|id: &u64| *id).permanent(|_: &Failed| true);
    let function = layer.handler(async |_: Invocation<u64>| Err::<(), _>(failed()));
    let event = || TestInvocation::json(&7).unwrap().event();
    function.clone().oneshot(event()).await.unwrap_err();
    let again = function.oneshot(event()).await.unwrap_err();
    let again = again.to_string();
    assert!(again.contains(TEXT), "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_step_shows_them() {
    #[derive(Debug, thiserror::Error)]
    #[error("the charge failed")]
    struct OfStep<const N: u8>(#[source] NoConnection);
    let steps = async |claim: Claim| {
        let effect = async |_| Err::<u64, _>(OfStep::<1>(failed().0));
        claim.step("a", effect).await
    };
    let prepared = async |claim: Claim| {
        let effect = async |_| Err::<u64, _>(OfStep::<2>(failed().0).into());
        claim.prepared_step("b", effect).await
    };
    let once = engine();
    let first = once.run(Key::new("charge", "1"), None, steps).await;
    let second = once.run(Key::new("charge", "2"), None, prepared).await;
    let (first, second) = (first.unwrap_err(), second.unwrap_err());
    for told in [first.to_string(), second.to_string()] {
        assert!(told.contains(TEXT), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_saga_stores_them() {
    let once = engine();
    let place = async |claim: Claim| {
        let mut saga = claim.saga::<Failed>()?.permanent(|_| true);
        let charge = async |_| Err::<u64, _>(failed());
        saga.step("charge", charge, async |_, _| Ok(())).await?;
        saga.finish().await?;
        Ok::<_, SagaError<Failed>>(())
    };
    let run = async || once.run(Key::new("place", "1"), None, place).await;
    run().await.unwrap_err();
    let Err(Error::Failed(failure)) = run().await else {
        panic!("it is final");
    };
    assert!(failure.message.contains(TEXT), "{}", failure.message);
}
