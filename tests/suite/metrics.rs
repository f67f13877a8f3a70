//! The metrics that are counted, and their labels.

use std::collections::BTreeMap;
use std::io::Error as HandlerError;
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Builder, Fingerprint, Idempotency, Key, OnCrash, OnMissingKey, SagaError, Verdict,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tower::{Layer, Service, service_fn};

use crate::support::crash::kill;

/// One engine whose metrics can be read; the recorder is this thread's alone.
pub struct Counted {
    snapshotter: Snapshotter,
    _recorder: metrics::LocalRecorderGuard<'static>,
}

impl Counted {
    pub fn new() -> Self {
        let recorder: &'static DebuggingRecorder = Box::leak(Box::new(DebuggingRecorder::new()));
        let counted = Self {
            snapshotter: recorder.snapshotter(),
            _recorder: metrics::set_default_local_recorder(recorder),
        };
        lambda_idempotency::metrics::describe();
        counted
    }

    /// Returns the counts since the last call, under names without `idempotency_`; for a histogram, the number of its values.
    pub fn take(&self) -> BTreeMap<String, u64> {
        let values = self.snapshotter.snapshot().into_vec().into_iter();
        let seen = values.map(|(key, unit, description, value)| {
            let name = key.key().name().to_owned();
            assert!(unit.is_some(), "{name} has no unit");
            assert!(description.is_some(), "{name} is not described");
            let times = match value {
                DebugValue::Counter(times) => times,
                DebugValue::Histogram(values) => values.len() as u64,
                DebugValue::Gauge(level) => u64::from(*level > 0.0),
            };
            (name.replacen("idempotency_", "", 1), times)
        });
        let mut counts = BTreeMap::new();
        for (name, times) in seen.filter(|(_, times)| *times > 0) {
            *counts.entry(name).or_default() += times;
        }
        counts
    }

    pub fn operations(&self) -> Vec<String> {
        let values = self.snapshotter.snapshot().into_vec().into_iter();
        let mut labels: Vec<_> = values
            .filter(|(key, ..)| key.key().name() == "idempotency_executions")
            .map(|(key, ..)| {
                let labels = key.key().labels();
                let labels: Vec<_> = labels
                    .map(|l| format!("{}={}", l.key(), l.value()))
                    .collect();
                labels.join(" ")
            })
            .collect();
        labels.sort();
        labels
    }
}

fn engine() -> Builder {
    Idempotency::builder(MemoryStore::new()).namespace("shop")
}

fn key() -> Key {
    Key::new("charge", "order-17")
}

pub fn counts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected
        .map(|(name, times)| (name.to_owned(), times))
        .into()
}

async fn done(_: lambda_idempotency::Claim) -> Result<String, HandlerError> {
    Ok("done".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure() {
    let counted = Counted::new();
    let once = engine().build().unwrap();
    let panics = |_| async { panic!("the handler's own") };
    let run = once.run::<(), HandlerError, _, _, _>(key(), None, panics);
    AssertUnwindSafe(run).catch_unwind().await.unwrap_err();
    let seen = counted.take();
    assert_eq!(seen.get("failures"), Some(&1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_saga_that_was_undone_is_a_failure() {
    let counted = Counted::new();
    let once = engine().build().unwrap();
    let aborts = |claim: lambda_idempotency::Claim| async move {
        let mut saga = claim.saga::<HandlerError>()?;
        let told = saga.abort(&HandlerError::other("no")).await;
        Err::<(), SagaError<HandlerError>>(told)
    };
    once.run(key(), None, aborts).await.unwrap_err();
    let seen = counted.take();
    assert_eq!(seen.get("failures"), Some(&1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn each_decision_is_counted() {
    let counted = Counted::new();
    let once = engine()
        .settings(|settings| settings.inline_limit = 100)
        .build()
        .unwrap();
    let payload = || Fingerprint::json(b"1");

    let failing = |_| async { Err::<String, _>(HandlerError::other("no")) };
    once.run(key(), payload(), failing).await.unwrap_err();
    assert_eq!(
        counted.take(),
        counts([("claim_time", 1), ("executions", 1), ("failures", 1)])
    );

    once.run(key(), payload(), |_| async {
        once.run(key(), payload(), done).await.unwrap_err();
        Ok::<_, HandlerError>("done".to_owned())
    })
    .await
    .unwrap();
    assert_eq!(
        counted.take(),
        counts([
            ("claim_time", 2),
            ("completion_time", 1),
            ("executions", 1),
            ("in_flight", 1),
            ("outcome_size", 1),
            ("retries", 1),
        ])
    );

    once.run(key(), payload(), done).await.unwrap();
    assert_eq!(counted.take(), counts([("claim_time", 1), ("replays", 1)]));

    let other = Fingerprint::json(b"2");
    once.run(key(), other, done).await.unwrap_err();
    assert_eq!(
        counted.take(),
        counts([("claim_time", 1), ("mismatches", 1)])
    );

    // JSON has no such keys.
    let unfit = |_| async { Ok::<_, HandlerError>(BTreeMap::from([((1_u8, 2_u8), 3_u8)])) };
    let omitted = || once.run(Key::new("charge", "unfit"), None, unfit);
    omitted().await.unwrap();
    omitted().await.unwrap_err();
    assert_eq!(
        counted.take(),
        counts([
            ("claim_time", 2),
            ("completion_time", 1),
            ("executions", 1),
            ("outcomes_omitted", 1),
            ("replays", 1),
        ])
    );

    let declined = || {
        let key = Key::new("charge", "declined");
        once.run_with(key, None, failing, |_| Verdict::Fail)
    };
    declined().await.unwrap_err();
    declined().await.unwrap_err();
    assert_eq!(
        counted.take(),
        counts([
            ("claim_time", 2),
            ("completion_time", 1),
            ("executions", 1),
            ("failures", 1),
            ("outcome_size", 1),
            ("replays", 1),
        ])
    );
    assert_eq!(counted.operations(), ["namespace=shop operation=charge"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_counted_by_what_becomes_of_it() {
    let counted = Counted::new();
    for (policy, expected) in [
        (OnCrash::RunAgain, ("takeovers", 1)),
        (OnCrash::Interrupt, ("interrupted", 1)),
    ] {
        let clock = ManualClock::default();
        let once = engine()
            .clock(clock.clone())
            .on_crash(policy)
            .max_attempts(NonZeroU32::new(9).unwrap())
            .build()
            .unwrap();
        let hanging = |_| std::future::pending::<Result<String, HandlerError>>();
        let crash = once.run(key(), None, hanging);
        kill(crash).await;
        clock.advance(Duration::from_hours(1));
        counted.take();
        let _ = once.run(key(), None, done).await;
        let counts = counted.take();
        assert_eq!(counts.get(expected.0), Some(&expected.1), "{counts:?}");
        assert_eq!(counts.get("retries"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn runs_without_a_claim_are_counted() {
    let counted = Counted::new();
    let off = engine().disabled(true).build().unwrap();
    off.run(key(), None, done).await.unwrap();
    let keyless = engine()
        .on_missing_key(OnMissingKey::RunUnprotected)
        .build()
        .unwrap();
    keyless.run(None, None, done).await.unwrap();
    assert_eq!(counted.take(), counts([("unprotected", 2)]));
    assert_eq!(
        counted.operations(),
        [
            "namespace=shop operation=charge",
            "namespace=shop operation=unkeyed"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn paths_without_a_template_share_one_label() {
    let counted = Counted::new();
    let layer = IdempotencyLayer::unscoped(engine().build().unwrap());
    let mut api = layer.layer(service_fn(|_: Request<axum::body::Body>| async {
        Ok::<_, HandlerError>(Response::new(axum::body::Body::from("ok")))
    }));
    for order in 0..3 {
        let request = Request::post(format!("/orders/{order}"))
            .header("idempotency-key", format!("key-{order}"))
            .body(axum::body::Body::empty())
            .unwrap();
        assert_eq!(api.call(request).await.unwrap().status(), 200);
    }
    assert_eq!(counted.take().get("executions"), Some(&3));
    assert_eq!(counted.operations(), ["namespace=shop operation=POST *"]);
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_its_provider_knew_is_counted() {
    let counted = Counted::new();
    let once = engine().build().unwrap();
    let handler = async |claim: lambda_idempotency::Claim| {
        claim.duplicate_at_provider("transfer");
        for (name, value, is_duplicate) in [
            ("Idempotent-Replayed", "true", true),
            ("idempotency-replayed", "True", true),
            ("idempotent-replayed", "false", false),
            ("x-request-id", "true", false),
        ] {
            let answer = Response::builder().header(name, value).body(()).unwrap();
            let found = claim.provider_answered("stripe", answer.headers());
            assert_eq!(found, is_duplicate, "{name}: {value}");
        }
        Ok::<_, HandlerError>(1)
    };
    once.run(key(), None, handler).await.unwrap();
    let counts = counted.take();
    assert_eq!(counts.get("side_effect_duplicates"), Some(&3), "{counts:?}");
    // A run that nothing protects has them, too.
    let off = engine().disabled(true).build().unwrap();
    let handler = async |claim: lambda_idempotency::Claim| {
        claim.duplicate_at_provider("transfer");
        Ok::<_, HandlerError>(1)
    };
    off.run(key(), None, handler).await.unwrap();
    assert_eq!(counted.take().get("side_effect_duplicates"), Some(&1));
}
