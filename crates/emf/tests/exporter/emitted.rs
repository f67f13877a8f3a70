//! The documents that each situation emits, as `tests/alarms` has them, which judges the alarms by them.

use std::collections::BTreeMap;
use std::future::pending;
use std::io::Error as IoError;
use std::pin::pin;
use std::time::Duration;

use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::testing::{Call, Fault, FaultyStore, ManualClock};
use lambda_idempotency::{
    Builder, Claim, Error, Fingerprint, Idempotency, Key, OnCrash, Outcome, StoreError,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::Written;

const RECORDED: &str = include_str!("../../../../tests/alarms/emitted.json");

fn engine() -> Builder {
    on(MemoryStore::new())
}

fn on<S: Store>(store: S) -> Builder {
    Idempotency::builder(store)
        .namespace("shop")
        .lease(Duration::from_secs(10))
}

async fn done(_: Claim) -> Result<u32, IoError> {
    Ok(7)
}

async fn fails(_: Claim) -> Result<u32, IoError> {
    Err(IoError::other("no"))
}

async fn run<Fut: Future<Output = Result<u32, IoError>>>(
    once: &Idempotency,
    payload: &str,
    handler: impl FnOnce(Claim) -> Fut,
) -> Result<Outcome<u32>, Error<IoError>> {
    let fingerprint = Fingerprint::bytes(payload.as_bytes());
    once.run(Key::new("charge", "order-17"), fingerprint, handler)
        .await
}

/// The documents of each situation, by its name.
struct Emitted {
    written: Written,
    documents: BTreeMap<&'static str, Value>,
}

impl Emitted {
    /// Returns the new documents. Times and sizes are left out: they differ from run to run.
    fn take(&self) -> Value {
        let documents = self.written.flushed().into_iter().map(|mut document| {
            document["_aws"]["Timestamp"] = json!(0);
            let values = document.as_object_mut().unwrap().values_mut();
            for histogram in values.filter_map(Value::as_array_mut) {
                histogram.fill(json!(0));
            }
            document
        });
        documents.collect()
    }

    /// Drops the documents until now: they only led to the next situation.
    fn drop(&self) {
        self.take();
    }

    fn keep(&mut self, situation: &'static str) {
        self.documents.insert(situation, self.take());
    }
}

async fn on_a_good_day(emitted: &mut Emitted) {
    let once = engine().build().unwrap();
    run(&once, "a", fails).await.unwrap_err();
    emitted.keep("failure");
    let retried = run(&once, "a", async |_| {
        emitted.drop();
        let duplicate = run(&once, "a", done).await.unwrap_err();
        assert!(matches!(duplicate, Error::InFlight { .. }));
        emitted.keep("in flight");
        Ok(7)
    });
    retried.await.unwrap();
    assert!(run(&once, "a", done).await.unwrap().is_replayed());
    emitted.drop();
    run(&once, "a", done).await.unwrap();
    emitted.keep("replay");

    run(&engine().build().unwrap(), "a", done).await.unwrap();
    emitted.keep("execution");

    let once = engine().build().unwrap();
    let known = run(&once, "a", async |claim| {
        emitted.drop();
        claim.duplicate_at_provider("transfer");
        emitted.keep("side effect duplicate");
        Ok(7)
    });
    known.await.unwrap();
}

async fn mismatch_and_unreadable(emitted: &mut Emitted) {
    let once = engine().build().unwrap();
    run(&once, "a", done).await.unwrap();
    emitted.drop();
    let refused = run(&once, "b", done).await.unwrap_err();
    assert!(matches!(refused, Error::Mismatch));
    emitted.keep("mismatch");

    let text = |_| async { Ok::<_, IoError>("seven".to_owned()) };
    let unreadable = once.run(
        Key::new("charge", "order-17"),
        Fingerprint::bytes(b"a"),
        text,
    );
    assert!(matches!(unreadable.await, Err(Error::Unreadable(_))));
    emitted.keep("unreadable");
}

async fn crashes(emitted: &mut Emitted) {
    for (policy, situation) in [
        (OnCrash::RunAgain, "takeover"),
        (OnCrash::Interrupt, "interrupted"),
    ] {
        let clock = ManualClock::default();
        let once = engine().clock(clock.clone()).on_crash(policy);
        let once = once.build().unwrap();
        // Leaked, as by a process that dies: a future that is dropped leaves its release behind.
        let mut crash = Box::pin(run(&once, "a", async |_| pending().await));
        timeout(Duration::ZERO, &mut crash).await.unwrap_err();
        std::mem::forget(crash);
        clock.advance(Duration::from_hours(1));
        emitted.drop();
        let next = run(&once, "a", done).await;
        assert_eq!(next.is_ok(), policy == OnCrash::RunAgain);
        emitted.keep(situation);
    }

    let clock = ManualClock::default();
    let once = engine().clock(clock.clone()).build().unwrap();
    let mut successor = pin!(run(&once, "a", async |_| pending().await));
    let late = run(&once, "a", async |_| {
        emitted.drop();
        clock.advance(Duration::from_hours(1));
        let started = timeout(Duration::ZERO, successor.as_mut()).await;
        started.unwrap_err();
        Ok(7)
    });
    assert!(matches!(late.await, Err(Error::LeaseLost)));
    emitted.keep("lease lost");
}

async fn without_the_store(emitted: &mut Emitted) {
    // The successor above was dropped.
    emitted.drop();
    let store = FaultyStore::new(MemoryStore::new());
    let once = on(store.clone()).build().unwrap();
    let lose_all = |call| (0..1_000).for_each(|_| store.inject(call, Fault::RequestLost));
    lose_all(Call::Create);
    let away = run(&once, "a", done).await;
    assert!(matches!(
        away,
        Err(Error::Store(StoreError::Unavailable(_)))
    ));
    emitted.keep("store error");
    store.calm();
    emitted.drop();

    lose_all(Call::Complete);
    let unrecorded = run(&once, "a", done).await.unwrap();
    assert!(matches!(unrecorded, Outcome::Unrecorded(7)));
    emitted.keep("unrecorded");

    let off = engine().disabled(true).build().unwrap();
    run(&off, "a", done).await.unwrap();
    emitted.keep("unprotected");
}

#[tokio::test(start_paused = true)]
async fn each_situation_emits_the_documents_that_the_alarms_are_tested_with() {
    let written = Written::new();
    let recorder = written.exporter.recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut emitted = Emitted {
        written,
        documents: BTreeMap::new(),
    };
    on_a_good_day(&mut emitted).await;
    mismatch_and_unreadable(&mut emitted).await;
    crashes(&mut emitted).await;
    without_the_store(&mut emitted).await;
    let expected: Value = serde_json::from_str(RECORDED).unwrap();
    let found = json!(emitted.documents);
    assert!(
        found == expected,
        "tests/alarms/emitted.json must become\n{found}"
    );
}
