//! The answers that are stored, by setting and by the handler's wish.

use std::future::{Ready, ready};
use std::io::Error as IoError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use lambda_http::{Body, Request};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Claim, Idempotency, Key, OnCrash, Step, StepError, Verdict};
use tokio::time::Instant;

use super::api::{Api, Door, Failure, answer, deposit, deposits};
use crate::on_each_server;
use crate::secrets::Log;
use crate::support::{Fault, Proxy, Server, builder_on};

pub(super) fn stored_for_a_day(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.settings(|settings| settings.store_server_errors = Some(Duration::from_hours(24)))
}

on_each_server!(server_errors_are_stored_too_where_the_setting_says_so);
async fn server_errors_are_stored_too_where_the_setting_says_so(server: Server) {
    for (status, is_stored) in [(500, true), (503, true), (429, false), (400, false)] {
        let handler = move |run, _| async move { Ok(answer(status, format!("run {run}"))) };
        let api = Api::configured(&server, |once| once, stored_for_a_day, handler).await;
        let call = Door::Http.post("k-1");
        assert_eq!(api.send(&call).await.text(), "run 1");

        let retry = api.send(&call).await;
        assert_eq!(retry.status, status);
        assert_eq!(retry.is_replayed(), is_stored, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_now_is_of_a_request_that_was_done() {
    let server = Server::dynoxide().await;
    let proxy = Proxy::before(&server).await;
    let table = server.idempotency_table().await;
    let store = DynamoDbStore::new(proxy.server().client(), &table);
    let handler = |_, _| async {
        let lines: Vec<_> = (0..1_000).map(|n: u64| (n * n).to_string()).collect();
        Ok(answer(201, lines.join(",")))
    };
    // So small that the answer has its own item.
    let api = Api::on(
        store,
        |once| once.settings(|settings| settings.inline_limit = 90),
        |layer| layer,
        handler,
    );
    let call = Door::Alb.post("k-1");
    assert_eq!(api.send(&call).await.status, 201);
    proxy.inject("GetItem", Fault::DENY);
    let refused = api.send(&call).await;
    refused.assert_problem(503, "store-unavailable");
    let text = refused.text();
    assert!(text.contains("may have taken effect"), "{text}");
    assert!(api.send(&call).await.is_replayed());
    assert_eq!(api.runs(), 1);
}

on_each_server!(a_handler_decides_for_one_answer);
async fn a_handler_decides_for_one_answer(server: Server) {
    for (status, wish, is_stored) in [
        (500, Verdict::Complete, true),
        (409, Verdict::Complete, true),
        (400, Verdict::Fail, true),
        (201, Verdict::Release, false),
        (404, Verdict::Release, false),
    ] {
        let handler = move |run, _| async move {
            let mut response = answer(status, format!("run {run}"));
            response.extensions_mut().insert(wish);
            Ok(response)
        };
        let api = Api::new(&server, handler).await;
        let call = Door::Http.post("k-1");
        assert_eq!(api.send(&call).await.text(), "run 1");
        let retry = api.send(&call).await;
        assert_eq!(
            (retry.status.as_u16(), retry.is_replayed()),
            (status, is_stored),
            "{wish:?}"
        );
    }
}

on_each_server!(a_server_error_is_kept_for_a_time_of_its_own);
async fn a_server_error_is_kept_for_a_time_of_its_own(server: Server) {
    // By its status alone, and by the handler's wish.
    for wish in [None, Some(Verdict::Complete)] {
        let clock = ManualClock::default();
        let handler = move |run, _| async move {
            let mut response = answer(if run == 1 { 500 } else { 201 }, format!("run {run}"));
            if let Some(wish) = wish {
                response.extensions_mut().insert(wish);
            }
            Ok(response)
        };
        let layer = |layer: IdempotencyLayer| {
            let hour = RoutePolicy::required().retention(Duration::from_hours(1));
            let layer = layer.other_routes(hour);
            layer.settings(|settings| settings.store_server_errors = Some(Duration::from_mins(5)))
        };
        let timed = |once: lambda_idempotency::Builder| once.clock(clock.clone());
        let api = Api::configured(&server, timed, layer, handler).await;
        let call = Door::Http.post("k-1");
        assert_eq!(api.send(&call).await.status, 500);
        clock.advance(Duration::from_mins(4));
        let retry = api.send(&call).await;
        assert_eq!((retry.status.as_u16(), retry.is_replayed()), (500, true));

        clock.advance(Duration::from_secs(63));
        assert_eq!(api.send(&call).await.text(), "run 2");
        clock.advance(Duration::from_mins(59));
        let retry = api.send(&call).await;
        assert_eq!((retry.text(), retry.is_replayed()), ("run 2", true));
        clock.advance(Duration::from_secs(63));
        assert_eq!(api.send(&call).await.text(), "run 3");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_error_behind_a_step_is_kept_as_long_as_an_answer() {
    let server = Server::dynoxide().await;
    let clock = ManualClock::default();
    let once = Idempotency::builder(server.store().await).namespace("shop");
    let once = once.clock(clock.clone()).build().unwrap();
    let layer = IdempotencyLayer::unscoped(once)
        .settings(|settings| settings.store_server_errors = Some(Duration::from_mins(5)));
    let charges = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&charges);
    let api = Api::under(&layer, move |run, request: Request| {
        let charges = Arc::clone(&counter);
        async move {
            let claim = request.extensions().get::<Claim>().unwrap();
            let charge = async || Ok::<_, IoError>(charges.fetch_add(1, Ordering::Relaxed));
            claim.step("charge", |_| charge()).await?;
            Ok::<_, Failure>(answer(503, format!("run {run}")))
        }
    });
    let call = Door::Http.post("k-1");
    assert_eq!(api.send(&call).await.status, 503);
    clock.advance(Duration::from_mins(10));
    assert!(api.send(&call).await.is_replayed());
    assert_eq!(charges.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_error_behind_an_interrupted_step_is_not_stored_by_that_setting() {
    let (log, _capture) = Log::capture();
    let server = Server::dynoxide().await;
    let once = builder_on(server.store().await, "shop").build().unwrap();
    let layer = stored_for_a_day(IdempotencyLayer::unscoped(once.clone()));
    let api = Api::under(&layer, |_, request: Request| async move {
        let claim = request.extensions().get::<Claim>().unwrap();
        let step = Step::named("charge")
            .on_crash(OnCrash::Interrupt)
            .unsure_after(|_| true);
        let unsure = || async { Err::<(), _>(IoError::other("timed out")) };
        match claim.step(step, |_| unsure()).await {
            Err(StepError::Effect(error)) => Err(Failure::from(error)),
            // In axum, an error has to become an answer.
            _ => Ok(answer(500, "interrupted")),
        }
    });
    let call = Door::Http.post("k-1");
    api.try_send(&call).await.unwrap_err();
    for _ in 0..2 {
        let stopped = api.send(&call).await;
        assert_eq!(stopped.status, 500);
        assert!(!stopped.is_replayed());
    }
    let key = Key::new("POST /shops/{shop}/orders", "k-1");
    let (id, end) = (once.record_id(&key).unwrap(), Duration::from_secs(5));
    let found = once.store().load(&id, Instant::now() + end).await;
    let record = found.unwrap().unwrap().content.unwrap();
    assert!(record.is_released(), "{record:?}");
    assert_eq!(record.last_error.as_deref(), Some("interrupted step"));
    let log = log.text();
    assert_eq!(log.matches(r#"event="interrupted""#).count(), 2, "{log}");
}

#[tokio::test(start_paused = true)]
async fn without_a_claim_a_server_error_is_kept_for_an_hour_at_least() {
    let server = Server::dynoxide().await;
    let clock = ManualClock::default();
    let once = Idempotency::builder(server.store().await).namespace("shop");
    let once = once.clock(clock.clone()).build().unwrap().claimless();
    let layer = IdempotencyLayer::unscoped(once)
        .settings(|settings| settings.store_server_errors = Some(Duration::from_mins(5)));
    let handler = |run, _| async move { Ok(answer(500, format!("run {run}"))) };
    let api = Api::under(&layer, handler);
    let call = Door::Http.post("k-1");
    assert_eq!(api.send(&call).await.text(), "run 1");
    clock.advance(Duration::from_mins(59));
    assert!(api.send(&call).await.is_replayed());
    clock.advance(Duration::from_secs(63));
    assert!(!api.send(&call).await.is_replayed());
}

/// A handler that hands over a deposit, and gives this answer.
fn depositing(
    table: String,
    status: u16,
    wish: Option<Verdict>,
) -> impl Fn(usize, Request) -> Ready<Result<Response<Body>, Failure>> + Clone + Send + Sync + 'static
{
    move |_, request| {
        let mut response = answer(status, "decided");
        if let Some(wish) = wish {
            response.extensions_mut().insert(wish);
        }
        let written = deposit(&request, &table);
        ready(written.map(|()| response).map_err(Failure::from))
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_error_that_writes_is_kept_as_long_as_an_answer() {
    let server = Server::dynoxide().await;
    for (wish, made) in [(Some(Verdict::Complete), 1), (None, 0)] {
        for is_claimless in [false, true] {
            let business = server.table_with_key("business", "id").await;
            let clock = ManualClock::default();
            let once = Idempotency::builder(server.store().await).namespace("shop");
            let once = once.clock(clock.clone()).build().unwrap();
            let once = if is_claimless { once.claimless() } else { once };
            let layer = IdempotencyLayer::unscoped(once)
                .settings(|settings| settings.store_server_errors = Some(Duration::from_mins(5)));
            let api = Api::under(&layer, depositing(business.clone(), 503, wish));
            let call = Door::Http.post("k-1");
            assert_eq!(api.send(&call).await.status, 503);
            clock.advance(Duration::from_hours(2));
            let retry = api.send(&call).await;
            assert_eq!(retry.is_replayed(), made == 1, "{is_claimless}");
            let deposited = deposits(&server, &business).await;
            assert_eq!(deposited, made, "{is_claimless}");
        }
    }
}

on_each_server!(an_answer_of_400_or_above_writes_nothing_unless_it_is_declared_complete);
async fn an_answer_of_400_or_above_writes_nothing_unless_it_is_declared_complete(server: Server) {
    for (status, wish, made) in [
        (201, None, 1),
        (303, None, 1),
        (402, None, 0),
        (404, None, 0),
        (422, None, 0),
        (503, None, 0),
        (402, Some(Verdict::Complete), 1),
        (503, Some(Verdict::Complete), 1),
        (201, Some(Verdict::Fail), 0),
        (409, Some(Verdict::Fail), 0),
    ] {
        for is_claimless in [false, true] {
            let business = server.table_with_key("business", "id").await;
            let layer = |once: Idempotency| {
                let once = if is_claimless { once.claimless() } else { once };
                stored_for_a_day(IdempotencyLayer::unscoped(once))
            };
            let handler = depositing(business.clone(), status, wish);
            let api = Api::layered(&server, layer, handler).await;
            let call = Door::Http.post("k-1");
            assert_eq!(api.send(&call).await.status, status);
            let retry = api.send(&call).await;
            assert_eq!((retry.status.as_u16(), retry.is_replayed()), (status, true));
            let deposited = deposits(&server, &business).await;
            assert_eq!(deposited, made, "{status} {wish:?} {is_claimless}");
        }
    }
}

on_each_server!(an_answer_that_nothing_protects_writes_as_a_protected_one);
async fn an_answer_that_nothing_protects_writes_as_a_protected_one(server: Server) {
    for (is_off, observes, key) in [
        (false, false, None),
        (true, false, Some("k-1")),
        (false, true, Some("k-1")),
    ] {
        for (status, wish, made) in [
            (201, None, 1),
            (402, None, 0),
            (503, None, 0),
            (402, Some(Verdict::Complete), 1),
            (201, Some(Verdict::Fail), 0),
        ] {
            let business = server.table_with_key("business", "id").await;
            let api = Api::configured(
                &server,
                |once| once.disabled(is_off).observe(observes),
                |layer| layer.other_routes(RoutePolicy::optional()),
                depositing(business.clone(), status, wish),
            );
            let answered = api.await.send(&Door::Http.post(key)).await;
            assert_eq!(answered.status, status);
            let deposited = deposits(&server, &business).await;
            assert_eq!(deposited, made, "{is_off} {observes} {status} {wish:?}");
        }
    }
}
