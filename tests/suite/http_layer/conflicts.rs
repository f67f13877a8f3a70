//! The obstacles to a request, and whether a retry may help.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{self, FaultyStore, ManualClock};
use lambda_idempotency::{AtDeadline, Builder, InFlight, OnCrash, OnStoreUnavailable, Unrecorded};
use tokio::sync::Notify;
use tokio::time::timeout;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, ServiceExt, service_fn};

use super::api::{Api, Call, Door, Failure, answer, cut_off_at_work, place_order};
use crate::on_each_server;
use crate::support::{Fault, Proxy, Server, VirtualClock, builder_on};

/// Longer than a lease.
const LATER: Duration = Duration::from_hours(1);

/// A handler that says when it has begun, and waits to be let go.
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<Notify>,
    open: Arc<Notify>,
}

impl Gate {
    /// An API whose handler it is.
    async fn with(server: &Server, engine: impl FnOnce(Builder) -> Builder) -> (Self, Api) {
        let gate = Self::default();
        let handler = {
            let gate = gate.clone();
            move |run, request| gate.clone().handle(run, request)
        };
        let api = Api::configured(server, engine, |layer| layer, handler).await;
        (gate, api)
    }

    async fn handle(
        self,
        run: usize,
        request: lambda_http::Request,
    ) -> Result<http::Response<lambda_http::Body>, Failure> {
        self.begun.notify_one();
        self.open.notified().await;
        place_order(run, request).await
    }
}

on_each_server!(a_request_in_flight_is_answered_409_until_it_is_done);
async fn a_request_in_flight_is_answered_409_until_it_is_done(server: Server) {
    let (gate, api) = Gate::with(&server, |once| once.lease(Duration::from_secs(20))).await;
    let call = Door::Http.post("k-1").json("{}");

    let first = api.spawn(&call);
    gate.begun.notified().await;
    let refused = api.send(&call).await;
    refused.assert_problem(409, "in-flight");
    // The lease, and the margin for other clocks.
    let wait = refused.retry_after().unwrap();
    assert!((2..=21).contains(&wait), "{wait}");

    gate.open.notify_one();
    let first = first.await.unwrap();
    let retry = api.send(&call).await;
    assert!(retry.is_replayed());
    assert_eq!(retry.body, first.body);
    assert_eq!(api.runs(), 1);
}

on_each_server!(the_invocations_deadline_ends_the_claim);
async fn the_invocations_deadline_ends_the_claim(server: Server) {
    let (gate, api) = Gate::with(&server, |once| {
        once.settings(|settings| settings.max_retry_after = Duration::from_hours(1))
    })
    .await;
    let mut context = lambda_http::Context::default();
    context.deadline = VirtualClock::deadline(Duration::from_mins(2));

    for (key, context, longest) in [
        ("k-1", context, 121),
        ("k-2", lambda_http::Context::default(), 901),
    ] {
        let call = Door::Http.post(key).context(context);
        let first = api.spawn(&call);
        gate.begun.notified().await;
        let wait = api.send(&call).await.retry_after().unwrap();
        assert!(wait <= longest && wait + 60 >= longest, "{key}: {wait}");
        gate.open.notify_one();
        assert_eq!(first.await.unwrap().status, 201);
    }
}

on_each_server!(of_many_requests_at_once_one_runs);
async fn of_many_requests_at_once_one_runs(server: Server) {
    let answered = Arc::new(AtomicUsize::new(0));
    let others = Arc::clone(&answered);
    let handler = move |run, request| {
        let others = Arc::clone(&others);
        async move {
            while run == 1 && others.load(Ordering::SeqCst) < 63 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            place_order(run, request).await
        }
    };
    let api = Api::new(&server, handler).await;
    let call = Door::Http.post("k-1").json("{}");
    let send = || async {
        let answer = api.send(&call).await;
        answered.fetch_add(1, Ordering::SeqCst);
        answer
    };
    let answers = futures_util::future::join_all((0..64).map(|_| send())).await;

    assert_eq!(
        answers.iter().filter(|answer| answer.status == 201).count(),
        1
    );
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        refused.assert_problem(409, "in-flight");
    }
    assert_eq!(api.runs(), 1);
    assert_eq!(api.send(&call).await.text(), "order 1");
}

on_each_server!(an_interrupted_attempt_waits_for_an_operator_where_the_policy_says_so);
async fn an_interrupted_attempt_waits_for_an_operator_where_the_policy_says_so(server: Server) {
    let store = server.store().await;
    let clock = ManualClock::default();
    let call = Door::Http.post("k-1");
    cut_off_at_work(store.clone(), |once| once.clock(clock.clone()), &call).await;
    clock.advance(LATER);

    let careful = |once: Builder| once.clock(clock.clone()).on_crash(OnCrash::Interrupt);
    let careful = Api::on(store, careful, |layer| layer, place_order);
    let refused = careful.send(&call).await;
    refused.assert_problem(409, "interrupted");
    assert_eq!(refused.header("idempotency-status"), Some("final"));
    assert_eq!(refused.retry_after(), None);
    assert_eq!(careful.runs(), 0);
}

on_each_server!(a_handler_that_outlives_its_lease_hears_that_another_took_over);
async fn a_handler_that_outlives_its_lease_hears_that_another_took_over(server: Server) {
    let store = server.store().await;
    let gate = Gate::default();
    let clock = ManualClock::default();
    let api = |gate: Gate| {
        let timed = |once: Builder| once.clock(clock.clone());
        Api::on(
            store.clone(),
            timed,
            |layer| layer,
            move |run, request| gate.clone().handle(run, request),
        )
    };
    let (stale, successor) = (api(gate.clone()), api(gate.clone()));
    let call = Door::Http.post("k-1");

    let first = stale.spawn(&call);
    gate.begun.notified().await;
    clock.advance(LATER);
    let second = successor.spawn(&call);
    gate.begun.notified().await;
    // Waiters are let go in the order in which they came: the stale one first.
    gate.open.notify_one();
    let lost = first.await.unwrap();
    lost.assert_problem(409, "lease-lost");
    assert_eq!(lost.retry_after(), Some(1));

    gate.open.notify_one();
    assert_eq!(second.await.unwrap().status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_is_a_503_and_nothing_runs() {
    let store = DynamoDbStore::new(
        Server::behind("http://127.0.0.1:1".to_owned()).client(),
        "t",
    );
    let call = Door::Http.post("k-1");
    let closed = Api::on(store.clone(), |once| once, |layer| layer, place_order);
    let refused = closed.send(&call).await;
    refused.assert_problem(503, "store-unavailable");
    assert_eq!(refused.retry_after(), Some(5));
    assert_eq!(closed.runs(), 0);

    let open = Api::on(
        store,
        |once| once.on_store_unavailable(OnStoreUnavailable::FailOpen),
        |layer| layer,
        place_order,
    );
    assert_eq!(open.send(&call).await.text(), "order 1");
}

on_each_server!(a_success_that_cannot_be_recorded_is_answered_unless_the_setting_says_otherwise);
async fn a_success_that_cannot_be_recorded_is_answered_unless_the_setting_says_otherwise(
    server: Server,
) {
    for (policy, status) in [(Unrecorded::Return, 201), (Unrecorded::Fail, 503)] {
        let proxy = Proxy::before(&server).await;
        let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
        let api = Api::on(
            store,
            |once| once.settings(|settings| settings.unrecorded = policy),
            |layer| layer,
            place_order,
        );
        proxy.inject("UpdateItem", Fault::DENY);
        let answer = api.send(&Door::Http.post("k-1")).await;
        assert_eq!((answer.status.as_u16(), api.runs()), (status, 1));
        if policy == Unrecorded::Fail {
            answer.assert_problem(503, "unrecorded");
            assert!(answer.retry_after().is_some());
        }
    }
}

on_each_server!(a_record_that_cannot_be_understood_is_a_500_and_nothing_runs);
async fn a_record_that_cannot_be_understood_is_a_500_and_nothing_runs(server: Server) {
    let table = server.idempotency_table().await;
    let client = server.client();
    let api = Api::on(
        DynamoDbStore::new(client.clone(), &table),
        |once| once,
        |layer| layer,
        place_order,
    );
    let call = Door::Http.post("k-1");
    api.send(&call).await;

    let records = client.scan().table_name(&table).send().await.unwrap();
    for damage in [
        r#"{"no":"response"}"#,
        r#"{"status":7,"headers":[],"body":""}"#,
        "{",
    ] {
        let mut record = records.items()[0].clone();
        record.insert("data".to_owned(), AttributeValue::S(damage.to_owned()));
        client
            .put_item()
            .table_name(&table)
            .set_item(Some(record))
            .send()
            .await
            .unwrap();
        let refused = api.send(&call).await;
        refused.assert_problem(500, "unreadable");
        assert_eq!(refused.retry_after(), None);
    }
    assert_eq!(api.runs(), 1);
}

/// An API whose first handler takes longer than the invocations of `call` have.
async fn slow(server: &Server, policy: Option<AtDeadline>) -> Api {
    let engine = |once: Builder| match policy {
        Some(policy) => once.settings(|settings| settings.at_deadline = policy),
        None => once,
    };
    let handler = |run, _| async move {
        if run == 1 {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        Ok::<_, Failure>(answer(201, format!("order {run}")))
    };
    Api::configured(server, engine, |layer| layer, handler).await
}

/// A request of an invocation that begins now.
fn call() -> Call {
    let mut context = lambda_http::Context::default();
    context.deadline = VirtualClock::deadline(Duration::from_secs(2));
    Door::Http.post("k-1").context(context)
}

on_each_server!(a_request_that_outlives_its_deadline_is_carried_out_once);
async fn a_request_that_outlives_its_deadline_is_carried_out_once(server: Server) {
    let api = slow(&server, None).await;
    let first = api.spawn(&call());
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    api.send(&call()).await.assert_problem(409, "in-flight");

    let first = first.await.unwrap();
    assert_eq!(first.status, 201);
    let retry = api.send(&call()).await;
    assert!(retry.is_replayed());
    assert_eq!(retry.body, first.body);
    assert_eq!(api.runs(), 1);
}

on_each_server!(a_request_that_is_ended_at_its_deadline_is_answered_503_and_a_retry_runs);
async fn a_request_that_is_ended_at_its_deadline_is_answered_503_and_a_retry_runs(server: Server) {
    let api = slow(&server, Some(AtDeadline::End)).await;
    let ended = api.send(&call()).await;
    ended.assert_problem(503, "timed-out");
    assert_eq!(ended.retry_after(), Some(1));
    let retry = api.send(&call()).await;
    assert_eq!((retry.status.as_u16(), retry.is_replayed()), (201, false));
    assert_eq!(api.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_lease_is_not_renewed_is_answered_503_and_has_no_effect() {
    let store = FaultyStore::new(MemoryStore::new());
    for _ in 0..100 {
        store.inject(testing::Call::Renew, testing::Fault::RequestLost);
    }
    let once =
        builder_on(store, "orders").settings(|settings| settings.at_deadline = AtDeadline::GoOn);
    let effects = Arc::new(AtomicUsize::new(0));
    let placed = Arc::clone(&effects);
    let orders = service_fn(move |_: Request<_>| {
        let placed = Arc::clone(&placed);
        async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            placed.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let api = IdempotencyLayer::unscoped(once.build().unwrap()).layer(orders);
    let answer = api.oneshot(request()).await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(effects.load(Ordering::SeqCst), 0);
}

/// A request of an invocation that begins now, without a gateway's event.
fn request() -> Request<Full<Bytes>> {
    let mut context = lambda_http::Context::default();
    context.deadline = VirtualClock::deadline(Duration::from_secs(2));
    let request = Request::post("/orders").header("idempotency-key", "k-1");
    request.extension(context).body(Full::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_behind_a_handler_that_panicked_does_not_hold_the_panic_up() {
    let store = FaultyStore::new(MemoryStore::new());
    store.inject(testing::Call::Release, testing::Fault::Delayed(LATER));
    let once =
        builder_on(store, "orders").settings(|settings| settings.at_deadline = AtDeadline::End);
    let orders = service_fn(|request: Request<_>| async move {
        // Shortly before it is ended.
        tokio::time::sleep(Duration::from_millis(1_850)).await;
        assert!(request.headers().is_empty(), "injected");
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let api = IdempotencyLayer::unscoped(once.build().unwrap()).layer(orders);
    let answer = AssertUnwindSafe(api.oneshot(request())).catch_unwind();
    let told = timeout(Duration::from_secs(2), answer).await;
    assert!(told.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_waits_keeps_no_other_request_from_the_handler() {
    let once = builder_on(MemoryStore::new(), "orders")
        .in_flight(InFlight::WaitUpTo(Duration::from_mins(1)));
    let orders = service_fn(|request: Request<_>| async move {
        if request.headers()["idempotency-key"] == "k-1" {
            tokio::time::sleep(Duration::from_secs(9)).await;
        }
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let api = layer.layer(ConcurrencyLimit::new(orders, 2));
    let send = |key: &str| {
        let request = Request::post("/orders").header("idempotency-key", key);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        api.clone().oneshot(request)
    };
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        timeout(Duration::from_secs(2), send("k-2")).await
    };
    let (first, duplicate, other) = tokio::join!(send("k-1"), send("k-1"), other);
    let is_replayed = |answer: &Response<_>| answer.headers().contains_key("idempotent-replayed");
    let answers = [first, duplicate].map(|answer| is_replayed(&answer.unwrap()));
    assert_ne!(answers[0], answers[1], "one ran, the other waited for it");
    assert!(!is_replayed(&other.expect("in time").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_handler_keeps_its_lease() {
    let once = builder_on(MemoryStore::new(), "orders")
        .in_flight(InFlight::WaitUpTo(Duration::from_mins(1)))
        .renewed_lease(Duration::from_secs(10));
    let orders = service_fn(|_: Request<_>| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let api = layer.layer(ConcurrencyLimit::new(orders, 1));
    let send = |key: &str| {
        let request = Request::post("/orders").header("idempotency-key", key);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        api.clone().oneshot(request)
    };
    let (first, second) = tokio::join!(send("k-1"), send("k-2"));
    for answer in [first, second] {
        assert_eq!(answer.unwrap().status(), 200);
    }
}
