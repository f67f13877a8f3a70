//! The observe mode: nothing is blocked, nothing is replayed, and what would have been is counted.

use std::io::Error as HandlerError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::BodyExt;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::sqs::{BatchLayer, SqsEvent};
use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::testing::{Call, Fault, FaultyStore, ManualClock};
use lambda_idempotency::{
    Builder, Error, Fingerprint, Idempotency, Key, OnCrash, Outcome, Verdict,
};
use lambda_runtime::LambdaEvent;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::metrics::{Counted, counts};
use crate::support::Server;
use crate::support::events::{batch, message};

fn shop(store: impl Store) -> Builder {
    Idempotency::builder(store).namespace("shop")
}

fn observer_on(store: impl Store) -> Idempotency {
    shop(store).observe(true).build().unwrap()
}

fn observer() -> Idempotency {
    observer_on(MemoryStore::new())
}

fn key() -> Key {
    Key::new("charge", "order-17")
}

#[tokio::test(start_paused = true)]
async fn every_run_runs_and_what_would_have_been_is_counted() {
    let counted = Counted::new();
    let once = observer();
    let payload = || Fingerprint::json(b"1");
    let run = |result: Result<u32, HandlerError>| once.run(key(), payload(), |_| async { result });

    let failed = run(Err(HandlerError::other("no"))).await;
    assert_matches!(failed, Err(Error::Handler(_)));
    let first = once.run(key(), payload(), |_| async {
        // While it runs, a duplicate runs, too.
        let inner = once.run(key(), payload(), |_| async { Ok::<_, HandlerError>(3) });
        assert_eq!(inner.await.unwrap(), Outcome::Unprotected(3));
        Ok::<_, HandlerError>(1)
    });
    assert_eq!(first.await.unwrap(), Outcome::Unprotected(1));
    assert_eq!(run(Ok(2)).await.unwrap(), Outcome::Unprotected(2));
    let other = once.run(key(), Fingerprint::json(b"2"), |_| async {
        Ok::<_, HandlerError>(4)
    });
    assert_eq!(other.await.unwrap(), Outcome::Unprotected(4));

    let mut seen = counted.take();
    for histogram in ["claim_time", "completion_time", "outcome_size"] {
        seen.remove(histogram);
    }
    let once_each = ["failures", "in_flight", "mismatches", "replays", "retries"];
    assert_eq!(seen.remove("executions"), Some(2));
    assert_eq!(seen, counts(once_each.map(|counter| (counter, 1))));
    let operations = ["namespace=shop.observed operation=charge"];
    assert_eq!(counted.operations(), operations);
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_counted_and_would_have_been_replayed() {
    let counted = Counted::new();
    let once = observer();
    for _ in 0..2 {
        let declined = |_| async { Err::<u32, _>(HandlerError::other("declined")) };
        let run = once.run_with(key(), Fingerprint::json(b"1"), declined, |_| Verdict::Fail);
        assert_matches!(run.await, Err(Error::Handler(_)), "each one runs");
    }
    let seen = counted.take();
    assert_eq!(seen.get("failures"), Some(&1), "{seen:?}");
    assert_eq!(seen.get("replays"), Some(&1), "{seen:?}");
    assert_eq!(seen.get("executions"), Some(&1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn another_payload_behind_a_derived_key_would_have_been_refused() {
    let counted = Counted::new();
    let once = observer();
    for payload in [b"1", b"2"] {
        let run = once.run(key(), Fingerprint::json(payload), async |claim| {
            claim.derive_key("gateway");
            Err::<u32, _>(HandlerError::other("no"))
        });
        assert_matches!(run.await, Err(Error::Handler(_)), "each one runs");
    }
    let seen = counted.take();
    assert_eq!((seen["executions"], seen["mismatches"]), (1, 1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_that_an_operator_must_look_at_would_have_waited_for_one() {
    let counted = Counted::new();
    let clock = ManualClock::default();
    let once = shop(MemoryStore::new()).observe(true);
    let once = once.on_crash(OnCrash::Interrupt).clock(clock.clone());
    let once = once.build().unwrap();
    let panics = async |_| -> Result<u32, HandlerError> { panic!("on purpose") };
    let run = once.run(key(), Fingerprint::json(b"1"), panics);
    let run = std::panic::AssertUnwindSafe(run);
    assert!(futures_util::FutureExt::catch_unwind(run).await.is_err());
    clock.advance(Duration::from_hours(1));
    let run = once.run(key(), Fingerprint::json(b"1"), |_| async {
        Ok::<_, HandlerError>(1)
    });
    assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
    let seen = counted.take();
    assert_eq!(seen.get("interrupted"), Some(&1), "{seen:?}");
    assert_eq!(seen.get("retries"), None, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_under_a_raw_id_is_left_alone() {
    let once = observer();
    let raw = || Key::raw("charge", "payments.app.charge#17");
    let run = async |value: u32| {
        let handler = async |_| Ok::<_, HandlerError>(value);
        once.run(raw(), None, handler).await
    };
    let counted = Counted::new();
    assert_eq!(run(1).await.unwrap(), Outcome::Unprotected(1));
    assert_eq!(run(2).await.unwrap(), Outcome::Unprotected(2));
    let seen = counted.take();
    assert_eq!(seen.get("replays"), Some(&1), "{seen:?}");

    let protecting = shop(MemoryStore::new());
    let id = protecting.build().unwrap().record_id(&raw()).unwrap();
    assert_eq!(id.as_str(), "payments.app.charge#17");
    let deadline = Instant::now() + Duration::from_secs(5);
    assert_eq!(once.store().load(&id, deadline).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn derived_keys_are_those_that_protection_will_give() {
    let derive = |claim: lambda_idempotency::Claim| async move {
        assert_eq!(claim.attempt(), 1);
        Ok::<_, HandlerError>((claim.derive_key("gateway"), claim.is_protected()))
    };
    let protecting = shop(MemoryStore::new()).build().unwrap();
    let real = protecting.run(key(), None, derive).await.unwrap();
    let watched = observer().run(key(), None, derive).await.unwrap();
    assert_eq!(real.get().0, watched.get().0);
    assert!(real.get().1 && !watched.get().1);
}

#[tokio::test(start_paused = true)]
async fn shadow_records_hold_no_outcome_and_are_in_nobodys_way() {
    let server = Server::dynoxide().await;
    let table = server.idempotency_table().await;
    let store = || DynamoDbStore::new(server.client(), table.clone());
    let run = |once: Idempotency| async move {
        let secret = |_| async { Ok::<_, HandlerError>("secret".to_owned()) };
        once.run(key(), None, secret).await.unwrap()
    };
    run(observer_on(store())).await;
    let items = server.client().scan().table_name(&table).send().await;
    let items = items.unwrap().items.unwrap();
    assert_eq!(items.len(), 1);
    let id = items[0]["id"].as_s().unwrap();
    assert!(id.starts_with("shop.observed#charge#"), "{id}");
    assert!(!format!("{items:?}").contains("secret"));
    let protected = run(shop(store()).build().unwrap()).await;
    assert_eq!(protected, Outcome::Executed("secret".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_stops_nobody() {
    let server = Server::dynoxide().await;
    let store = DynamoDbStore::new(server.client(), "there-is-no-such-table");
    let once = observer_on(store);
    let run = once.run(key(), None, |_| async { Ok::<_, HandlerError>(1) });
    assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
}

#[tokio::test(start_paused = true)]
async fn a_finished_answer_waits_for_a_throttled_store_a_moment_at_most() {
    let store = FaultyStore::new(MemoryStore::new());
    for _ in 0..1_000 {
        store.inject(Call::Complete, Fault::Throttled);
    }
    let (once, began) = (observer_on(store), Instant::now());
    let run = once.run(key(), None, |_| async { Ok::<_, HandlerError>(1) });
    assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
    let waited = began.elapsed();
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_kill_switch_changes_no_derived_key() {
    let derived = async |disabled: bool| {
        let builder = shop(MemoryStore::new());
        let once = builder.observe(true).disabled(disabled).build().unwrap();
        let run = once.run(key(), None, |claim| async move {
            Ok::<_, HandlerError>(claim.derive_key("gateway"))
        });
        run.await.unwrap().into_inner()
    };
    assert_eq!(derived(false).await, derived(true).await);
}

#[tokio::test(start_paused = true)]
async fn the_kill_switch_ends_the_watching_too() {
    let counted = Counted::new();
    let table = MemoryStore::new();
    let builder = shop(table.clone());
    let once = builder.observe(true).disabled(true).build().unwrap();
    for value in [1, 2] {
        let run = once.run(key(), None, |_| async move { Ok::<_, HandlerError>(value) });
        assert_eq!(run.await.unwrap(), Outcome::Unprotected(value));
    }
    assert!(table.is_empty(), "no shadow record");
    assert_eq!(counted.take(), counts([("unprotected", 2)]));
}

fn keyed(key: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post("/orders").header("idempotency-key", key);
    request.body(body.into()).unwrap()
}

/// An event of the queue with these messages.
fn event(bodies: impl IntoIterator<Item = u64>) -> LambdaEvent<SqsEvent> {
    let bodies = bodies.into_iter().enumerate();
    batch(bodies.map(|(n, body)| message(&format!("m-{n}"), body.to_string())))
}

#[tokio::test(start_paused = true)]
async fn over_http_nothing_is_refused_and_nothing_shows() {
    let ran = Arc::new(AtomicUsize::new(0));
    let api = |layer: IdempotencyLayer| {
        let runs = Arc::clone(&ran);
        let layer = layer.settings(|settings| settings.body_limit = 4);
        layer.layer(service_fn(move |_: Request<Body>| {
            let number = runs.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, HandlerError>(Response::new(Body::from(number.to_string()))) }
        }))
    };
    let mut scoped = api(IdempotencyLayer::scoped(observer(), |_| None));
    let mut scopeless = api(IdempotencyLayer::unscoped(observer()));
    let keys = ["key-1", "key-1", "", "with space\u{e9}"];
    for (number, key) in keys.into_iter().enumerate() {
        let request = |size| keyed(key, "x".repeat(size));
        for response in [
            scoped.call(request(number)).await.unwrap(),
            scopeless.call(request(10 + number)).await.unwrap(),
        ] {
            assert_eq!(response.status(), 200, "{key}");
            assert!(response.headers().is_empty(), "{:?}", response.headers());
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), 8);
}

#[tokio::test(start_paused = true)]
async fn from_a_queue_each_copy_runs() {
    let ran = Arc::new(AtomicUsize::new(0));
    let runs = Arc::clone(&ran);
    let mut worker = BatchLayer::new(observer())
        .operation("payment")
        .key(|payment: &u64| payment.to_string())
        .handler(move |_| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, HandlerError>(()) }
        });
    for _ in 0..2 {
        let reply = worker.call(event([7; 4])).await.unwrap();
        assert!(reply.batch_item_failures.is_empty());
    }
    assert_eq!(ran.load(Ordering::SeqCst), 8);
}

/// Both ways to run as if nothing were there.
fn passive() -> [(&'static str, Idempotency); 2] {
    let switched_off = shop(MemoryStore::new()).disabled(true).build().unwrap();
    [("observed", observer()), ("switched off", switched_off)]
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_the_limit_is_not_gathered_and_reaches_the_handler_as_it_comes() {
    const LIMIT: usize = 100;
    for (mode, once) in passive() {
        let pulled = Arc::new(AtomicUsize::new(0));
        let source = Arc::clone(&pulled);
        // It has no end.
        let endless = stream::repeat_with(move || {
            let before = source.fetch_add(10, Ordering::SeqCst);
            assert!(before < 1_000_000, "it is gathered without a limit");
            Ok::<_, HandlerError>(Bytes::from_static(b"0123456789"))
        });
        let seen = Arc::clone(&pulled);
        let layer =
            IdempotencyLayer::unscoped(once).settings(|settings| settings.body_limit = LIMIT);
        let api = layer.layer(service_fn(move |request: Request<Body>| {
            let read = seen.load(Ordering::SeqCst);
            async move {
                let begin = request.into_body().into_data_stream().take(20);
                let begin: Vec<_> = begin.map(Result::unwrap).collect().await;
                assert!(
                    begin.concat().starts_with(b"01234567890123456789"),
                    "nothing is lost"
                );
                Ok::<_, HandlerError>(Response::new(Body::from(read.to_string())))
            }
        }));
        let request = keyed("k-1", Body::from_stream(endless));
        let answer = api.oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{mode}");
        let read = answer.into_body().collect().await.unwrap().to_bytes();
        let read: usize = std::str::from_utf8(&read).unwrap().parse().unwrap();
        assert!(
            read <= LIMIT + 10,
            "{mode}: {read} bytes before the handler ran"
        );
    }
}

/// A body that breaks off after its first piece.
fn cut_off() -> Body {
    let cut = Err(HandlerError::other("cut"));
    Body::from_stream(stream::iter([Ok(Bytes::from_static(b"ab")), cut]))
}

#[tokio::test(start_paused = true)]
async fn a_request_that_breaks_off_breaks_off_for_the_handler() {
    for (mode, once) in passive() {
        let api =
            IdempotencyLayer::unscoped(once).layer(service_fn(|request: Request<Body>| async {
                let read = request.into_body().collect().await;
                let said = read.map_or_else(|error| error.to_string(), |_| "whole".to_owned());
                Ok::<_, HandlerError>(Response::new(Body::from(said)))
            }));
        let answer = api.oneshot(keyed("k-1", cut_off())).await.unwrap();
        assert_eq!(answer.status(), 200, "{mode}");
        let read = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(read, "cut");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_passed_on_as_it_comes() {
    for (mode, once) in passive() {
        let api = IdempotencyLayer::unscoped(once).layer(service_fn(|_: Request<Body>| async {
            // One piece, then nothing for ever: an answer that is gathered never comes.
            let pieces = stream::iter([Ok::<_, HandlerError>(Bytes::from_static(b"first"))]);
            let body = Body::from_stream(pieces.chain(stream::pending()));
            Ok::<_, HandlerError>(Response::new(body))
        }));
        let answer = api.oneshot(keyed("k-1", "tea"));
        let answer = timeout(Duration::from_secs(5), answer).await;
        let mut body = answer.expect("it is not waited for").unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "first", "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_breaks_off_for_the_client() {
    for (mode, once) in passive() {
        let api = IdempotencyLayer::unscoped(once).layer(service_fn(|_: Request<Body>| async {
            Ok::<_, HandlerError>(Response::new(cut_off()))
        }));
        let answer = api.oneshot(keyed("k-1", "tea")).await.unwrap();
        assert_eq!(answer.status(), 200, "{mode}: no answer of the layer's own");
        assert!(answer.into_body().collect().await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn over_http_no_closure_of_the_layers_keeps_a_request_from_its_handler() {
    for (mode, once) in passive() {
        let scope = |parts: &http::request::Parts| {
            assert!(parts.headers.contains_key("tenant"), "a scope that panics");
            Some("tenant".to_owned())
        };
        let api = IdempotencyLayer::scoped(once, scope).layer(service_fn(|_: Request<_>| async {
            Ok::<_, HandlerError>(Response::new(Body::empty()))
        }));
        let answer = api.oneshot(keyed("k-1", Body::empty())).await;
        assert_eq!(answer.unwrap().status(), 200, "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn from_a_queue_no_closure_of_the_layers_reports_a_message() {
    for (mode, once) in passive() {
        let ran = Arc::new(AtomicUsize::new(0));
        let runs = Arc::clone(&ran);
        let mut worker = BatchLayer::new(once)
            .key(|payment: &u64| {
                assert_ne!(*payment, 1, "a key that panics");
                // None, one with a control character, and one that is too long.
                match payment % 3 {
                    0 => String::new(),
                    1 => "line\nbreak".to_owned(),
                    _ => "x".repeat(300),
                }
            })
            .scope(|payment, _| {
                assert_ne!(*payment, 2, "a scope that panics");
                None::<String>
            })
            .fingerprint(|payment, _| {
                assert_ne!(*payment, 3, "a fingerprint that panics");
                None
            })
            .handler(move |_| {
                runs.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, HandlerError>(()) }
            });
        let reply = worker.call(event(0..9)).await.unwrap();
        assert!(reply.batch_item_failures.is_empty(), "{mode}: {reply:?}");
        assert_eq!(ran.load(Ordering::SeqCst), 9, "{mode}");
    }
}

/// Tells that it was dropped.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_only_observed_ends_with_its_caller() {
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (begins, drops) = (Arc::clone(&begun), Arc::clone(&dropped));
    let handler = move |_: Request<Body>| {
        let (begins, guard) = (Arc::clone(&begins), Guard(Arc::clone(&drops)));
        async move {
            let _guard = guard;
            begins.notify_one();
            std::future::pending::<()>().await;
            Ok::<_, HandlerError>(Response::new(Body::empty()))
        }
    };
    let api = IdempotencyLayer::unscoped(observer()).layer(service_fn(handler));
    tokio::select! {
        _ = api.oneshot(keyed("k-1", Body::empty())) => panic!("it waits"),
        () = begun.notified() => {}
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "no task goes on with it");
}
