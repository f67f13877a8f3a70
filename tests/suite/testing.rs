//! The promises of the helpers for users' tests, beyond those that `guide` shows.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lambda_http::aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_http::{Body, Context, LambdaEvent, Request, RequestExt, RequestPayloadExt};
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::http::events::Incoming;
use lambda_idempotency::protocol::record::{Found, RecordWrite};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::testing::{
    Call, Crash, FaultyStore, ManualClock, TestClaim, TestError, TestMessage, TestRequest,
    conformance,
};
use lambda_idempotency::{
    Begun, Builder, Claim, Clock, Disposition, Ended, EpochMillis, Error, Idempotency, Key,
    OnCrash, RecordId, Step, StepError, StoreError, sqs,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};

use crate::on_each_server;
use crate::support::{Server, alone};

fn engine_of(namespace: &str) -> Builder {
    Idempotency::builder(MemoryStore::new()).namespace(namespace)
}

#[test]
#[should_panic(expected = "call `.clock(clock.clone())` on `Idempotency::builder(…)`")]
fn no_lease_passes_on_an_engine_with_the_machines_clock() {
    let once = engine_of("tests").build().unwrap();
    ManualClock::default().pass_lease(&once);
}

#[test]
#[should_panic(expected = "the engine has another clock than this ManualClock")]
fn no_retention_passes_on_an_engine_with_another_manual_clock() {
    let other = ManualClock::default();
    let once = engine_of("tests").clock(other).build().unwrap();
    ManualClock::default().pass_retention(&once);
}

/// Shows the time of another clock, an hour late.
#[derive(Debug)]
struct Late(ManualClock);

impl Clock for Late {
    fn now(&self) -> EpochMillis {
        self.0.now() - Duration::from_hours(1)
    }
}

#[test]
fn time_passes_on_an_engine_whose_clock_reads_the_manual_one() {
    let clock = ManualClock::default();
    let once = engine_of("tests").clock(Late(clock.clone())).build();
    clock.pass_lease(&once.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_test_claim_derives_the_keys_of_an_engine_with_its_namespace() {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("payments")
        .build()
        .unwrap();
    let key = Key::new("charge", "A-17").scope("tenant-7");
    let begun = once.begin(key.clone(), None).await.unwrap();
    let Begun::Run(run) = begun else {
        panic!("{begun:?}")
    };

    let claim = TestClaim::new(key).namespace("payments").claim().await;

    let claim = claim.unwrap();
    assert_eq!(
        claim.derive_key("gateway"),
        run.claim().derive_key("gateway")
    );
    assert_eq!((claim.attempt(), claim.operation()), (1, "charge"));
    assert!(claim.is_protected());
    let _ = run.end(Disposition::Release(None)).await;
}

#[tokio::test(start_paused = true)]
async fn a_test_claim_ends_with_its_lease_by_its_clock() {
    let clock = ManualClock::default();
    let claim = TestClaim::new(Key::new("charge", "A-17"))
        .attempt(4)
        .lease(Duration::from_secs(30))
        .clock(clock.clone());
    let claim = claim.claim().await.unwrap();
    assert_eq!(claim.attempt(), 4);
    let end = SystemTime::from(clock.now()) + Duration::from_secs(30);
    assert_eq!(claim.deadline(), Some(end));

    clock.advance(Duration::from_secs(29));
    assert!(!claim.is_over());
    clock.advance(Duration::from_secs(1));
    assert!(claim.is_over());
    let late = claim.step("charge", async |_| Ok::<_, io::Error>(1)).await;
    assert_matches!(late, Err(StepError::OutOfTime));
}

#[tokio::test(start_paused = true)]
async fn a_pending_step_of_a_test_claim_fires_again_or_waits_for_an_operator() {
    let claim = || {
        TestClaim::new(Key::new("order", "A-17"))
            .pending("charge")
            .claim()
    };

    let again = claim().await.unwrap();
    assert_eq!(again.attempt(), 2);
    let charged = again.step("charge", async |_| Ok::<_, io::Error>(7)).await;
    assert_eq!(charged.unwrap(), 7);

    let careful = claim().await.unwrap();
    let step = Step::named("charge").on_crash(OnCrash::Interrupt);
    let charged = careful.step(step, async |_| Ok::<_, io::Error>(7)).await;
    assert_matches!(charged, Err(StepError::Interrupted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_step_without_a_usable_name_is_an_error_of_the_test_claim() {
    let claim = TestClaim::new(Key::new("order", "A-17"))
        .confirmed("", &1)
        .unwrap();
    let made = claim.claim().await;
    assert_matches!(made, Err(TestError::Step { .. }));
}

on_each_server!(a_run_of_a_test_claim_commits_with_the_store_it_was_given);
async fn a_run_of_a_test_claim_commits_with_the_store_it_was_given(server: Server) {
    use aws_sdk_dynamodb::types::{AttributeValue::S, Put};
    let orders = server.table_with_key("orders", "order_id").await;
    let store = server.store().await;
    let claim = TestClaim::new(Key::new("place", "A-17")).attempt(2);
    let run = claim.clone().begin(store.clone()).await.unwrap();
    assert_eq!(run.claim().attempt(), 2);

    let order = Put::builder().item("order_id", S("17".into()));
    run.claim().write(order.table_name(&orders)).unwrap();
    let ended = run.end(Disposition::Complete(Ok("17".into()))).await;

    assert_matches!(ended, Ok(Ended::Done));
    let found = server.client().scan().table_name(&orders).send().await;
    assert_eq!(found.unwrap().count(), 1);
    let again = claim.attempt(1).begin(store).await;
    assert_matches!(again, Err(TestError::Replayed));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_ends_before_its_crash_is_an_error_that_shows_its_end() {
    let ended = Crash::new()
        .cut_off(async { Ok::<u32, io::Error>(17) })
        .await;
    let Err(TestError::NotCrashed { ended }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(ended, "Ok(17)");
}

#[tokio::test]
async fn a_point_that_was_reached_twice_is_not_reached_by_the_next_attempt() {
    let crash = Crash::new();
    let twice = async {
        tokio::task::yield_now().await;
        futures_util::future::join(crash.here::<()>(), crash.here::<()>()).await
    };
    crash.cut_off(twice).await.unwrap();
    let next = crash.cut_off(tokio::task::yield_now()).await;
    assert_matches!(next, Err(TestError::NotCrashed { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_claim_keeps_the_handler_from_running() {
    let clock = ManualClock::default();
    let store = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(store.clone())
        .namespace("tests")
        .clock(clock.clone())
        .build()
        .unwrap();
    let run = || {
        let handler = async |claim: Claim| Ok::<_, io::Error>(claim.attempt());
        once.run(Key::new("charge", "A-17"), None, handler)
    };

    store
        .crash_after(Call::Create)
        .cut_off(run())
        .await
        .unwrap();
    // The process is dead: the next call of the same engine releases nothing.
    assert_matches!(run().await, Err(Error::InFlight { .. }));
    clock.pass_lease(&once);
    assert_eq!(run().await.unwrap().into_inner(), 2);
}

/// The second message has been handled when the process dies in the first, and its completion waits for
/// the task that sends those of the batch together.
#[tokio::test(start_paused = true)]
async fn what_a_batch_has_gathered_is_not_sent_after_a_crash() {
    let clock = ManualClock::default();
    let once = engine_of("tests").clock(clock.clone()).build().unwrap();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let deliver = |crash: Option<Crash>| {
        let bodies = Arc::clone(&bodies);
        let handler = move |message: sqs::Message<u32>| {
            let (bodies, crash) = (Arc::clone(&bodies), crash.clone());
            async move {
                bodies.lock().unwrap().push(message.body);
                match crash {
                    Some(crash) if message.body == 1 => crash.here().await,
                    _ => Ok::<_, io::Error>(()),
                }
            }
        };
        let worker = ServiceBuilder::new()
            .layer(sqs::BatchLayer::new(once.clone()))
            .service_fn(handler);
        let messages = ["1", "2"].map(|body| TestMessage::new(format!("m-{body}"), body));
        worker.oneshot(TestMessage::batch(messages))
    };

    let sorted = || {
        let mut handled = bodies.lock().unwrap().clone();
        handled.sort_unstable();
        handled
    };

    let crash = Crash::new();
    crash.cut_off(deliver(Some(crash.clone()))).await.unwrap();
    assert_eq!(sorted(), [1, 2]);
    clock.pass_lease(&once);

    let reply = deliver(None).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
    assert_eq!(sorted(), [1, 1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_ends_with_its_process() {
    let clock = ManualClock::default();
    let once = engine_of("tests").clock(clock.clone()).build().unwrap();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let charge = |order: &'static str| {
        let handled = Arc::clone(&handled);
        once.run_detached(Key::new("charge", order), None, move |claim| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            handled.lock().unwrap().push(claim.attempt());
            Ok::<_, io::Error>(())
        })
    };

    let crash = Crash::new();
    let point = crash.clone();
    let dies = once.run(Key::new("charge", "A-17"), None, async |_| {
        tokio::time::sleep(Duration::from_millis(100)).await;
        point.here::<Result<(), io::Error>>().await
    });
    let attempt = async { tokio::join!(charge("A-18"), dies) };
    crash.cut_off(attempt).await.unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(handled.lock().unwrap().is_empty());

    clock.pass_lease(&once);
    charge("A-18").await.unwrap();
    assert_eq!(*handled.lock().unwrap(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_has_passed_when_another_attempt_may_run() {
    let changes: [fn(Builder) -> Builder; 2] = [
        |builder| {
            let short = builder.lease(Duration::from_secs(9));
            short.renewed_lease(Duration::from_mins(5))
        },
        |builder| builder.on_crash(OnCrash::RunAgainAfter(Duration::from_hours(3))),
    ];
    for change in changes {
        let clock = ManualClock::default();
        let once = change(engine_of("tests")).clock(clock.clone());
        let once = once.build().unwrap();
        let key = || Key::new("charge", "A-17");
        let crash = Crash::new();
        let dies = once.run(key(), None, |_| crash.here::<Result<u32, io::Error>>());
        crash.cut_off(dies).await.unwrap();
        clock.pass_lease(&once);
        let attempt = async |claim: Claim| Ok::<_, io::Error>(claim.attempt());
        let again = once.run(key(), None, attempt).await;
        assert_eq!(again.unwrap().into_inner(), 2);
    }
}

#[test]
fn a_lease_and_a_retention_without_end_pass() {
    let clock = ManualClock::default();
    let once = engine_of("tests").clock(clock.clone());
    let once = once.lease(Duration::MAX).retention(Duration::MAX);
    let once = once.build().unwrap();
    clock.pass_lease(&once);
    clock.pass_retention(&once);
    assert_eq!(clock.now(), EpochMillis(i64::MAX));
}

#[tokio::test(start_paused = true)]
async fn a_calmed_store_lets_nothing_crash() {
    let store = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(store.clone()).namespace("tests");
    let once = once.build().unwrap();
    let crash = store.crash_before(Call::Create);
    store.calm();
    let run = once.run(Key::new("charge", "A-17"), None, async |_| {
        Ok::<_, io::Error>(1)
    });
    let ended = crash.cut_off(run).await;
    assert_matches!(ended, Err(TestError::NotCrashed { .. }));
}

#[test]
fn a_message_of_a_group_is_one_of_a_fifo_queue() {
    let message = TestMessage::new("m-1", "{}").group("g").receives(3);
    let event = TestMessage::batch([message.attribute("event_id", "e-1")]);
    let event = serde_json::to_value(&event.payload).unwrap();
    let message = &event["Records"][0];
    let arn = message["eventSourceARN"].as_str().unwrap();
    assert!(arn.strip_suffix(".fifo").is_some(), "{arn}");
    assert_eq!(message["attributes"]["MessageGroupId"], "g");
    assert_eq!(message["attributes"]["ApproximateReceiveCount"], "3");
    assert_eq!(
        message["messageAttributes"]["event_id"]["stringValue"],
        "e-1"
    );
}

fn order() -> TestRequest {
    TestRequest::post("/shops/7/orders")
        .route("/shops/{shop}/orders")
        .parameter("shop", "7")
        .query("note", "two & more")
        .key("cart-17")
        .json(&json!({"sku": "tea"}))
        .unwrap()
}

#[test]
fn a_request_is_read_back_as_it_was_described() {
    let request: Request = order().request().unwrap();
    assert_eq!(request.method(), "POST");
    assert_eq!(request.raw_http_path(), "/shops/7/orders");
    assert_eq!(request.headers()["idempotency-key"], "cart-17");
    assert_eq!(request.path_parameters().first("shop"), Some("7"));
    assert_eq!(
        request.query_string_parameters().first("note"),
        Some("two & more")
    );
    assert_eq!(request.uri().query(), Some("note=two%20%26%20more"));
    assert_eq!(request.json::<Value>().unwrap().unwrap()["sku"], "tea");
}

#[test]
fn a_request_whose_body_is_set_anew_has_one_content_type() {
    let patch = "application/merge-patch+json";
    let patched = TestRequest::post("/orders").header("Content-Type", patch);
    for (request, expected) in [(order(), "application/json"), (patched, patch)] {
        let request = request.json(&json!({"sku": "milk"})).unwrap();
        let request: Request = request.request().unwrap();
        assert_eq!(request.headers()["content-type"], expected);
        assert_eq!(*request.body(), Body::from(r#"{"sku":"milk"}"#));
    }
}

#[test]
fn a_request_that_no_client_sends_is_refused() {
    for (method, path) in [
        ("", "/orders"),
        ("GE T", "/orders"),
        ("POST", ""),
        ("POST", "orders"),
        ("POST", "two words"),
        ("POST", "/orders?note=1"),
        ("POST", "/orders#1"),
    ] {
        let refused = TestRequest::new(method, path).request();
        assert_matches!(refused, Err(TestError::Json(_)), "{method} {path}");
    }
    let query = TestRequest::post("/orders?note=1").http_api().unwrap_err();
    assert!(query.to_string().contains("TestRequest::query"), "{query}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_again_is_recognised_as_a_retry() {
    let once = engine_of("orders").build().unwrap();
    let api = ServiceBuilder::new()
        .layer(IdempotencyLayer::unscoped(once))
        .service_fn(async |event: Incoming<ApiGatewayV2httpRequest>| {
            let claim = event.claim.ok_or("no claim")?;
            assert_eq!(claim.operation(), "POST /shops/{shop}/orders");
            let mut answer = ApiGatewayV2httpResponse::default();
            answer.status_code = 201;
            Ok::<_, lambda_http::Error>(answer)
        });
    let repeated = order().header("accept", "a").header("Accept", "b");
    for is_replayed in [false, true] {
        let event = repeated.http_api().unwrap();
        assert_eq!(event.headers["accept"], "a,b");
        let event = LambdaEvent::new(event, Context::default());
        let answer = api.clone().oneshot(event).await.unwrap();
        assert_eq!(
            answer.headers.contains_key("idempotent-replayed"),
            is_replayed
        );
    }
}

#[tokio::test]
async fn a_claim_for_a_test_is_protected_whatever_the_environment_says() {
    if alone::child().is_none() {
        let test = concat!(
            module_path!(),
            "::a_claim_for_a_test_is_protected_whatever_the_environment_says"
        );
        alone::run(test, "switched off", &[("IDEMPOTENCY_DISABLED", "true")]);
        return;
    }
    let claim = TestClaim::new(Key::new("charge", "A-17")).attempt(2);
    assert_eq!(claim.claim().await.unwrap().attempt(), 2);
}

/// Keeps the fingerprint of a record that a claim without one takes over.
struct Keeping(MemoryStore);

impl Store for Keeping {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let mut write = write.clone();
        if let RecordWrite::TakeOver { claim, .. } = &mut write
            && claim.fingerprint.is_none()
        {
            let found = self.0.load(&claim.id, deadline).await?;
            let record = found.and_then(|found| found.content.ok());
            claim.fingerprint = record.and_then(|record| record.fingerprint);
        }
        self.0.write(&write, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.0.load(id, deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_a_fingerprint_in_a_takeover_is_found_out() {
    let checked = conformance(&Keeping(MemoryStore::new())).await;
    let Err(TestError::Violation { case, .. }) = checked else {
        panic!("{checked:?}")
    };
    assert_eq!(case, "a_takeover_keeps_no_fingerprint");
}
