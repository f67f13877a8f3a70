use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use lambda_http::{Body, Error, Request, Response};
use lambda_idempotency::http::{IdempotencyLayer, ResponseBody, scope};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock, TestClaim, TestRequest};
use lambda_idempotency::{Claim, Idempotency, Key};
use serde_json::json;
use tokio::sync::Notify;
use tower::{Service, ServiceBuilder, ServiceExt};

// The function, in your `src/`.

async fn serve(once: Idempotency) -> Result<(), Error> {
    lambda_http::run(api(once)).await
}

async fn order(request: Request) -> Result<Response<Body>, Error> {
    let claim = request.extensions().get::<Claim>().ok_or("no claim")?;
    let order_id = claim.derive_uuid("order");
    let order = json!({"order_id": order_id, "attempt": claim.attempt()});
    let response = Response::builder().status(201);
    Ok(response.body(Body::from(order.to_string()))?)
}

fn layer(once: Idempotency) -> IdempotencyLayer {
    IdempotencyLayer::scoped(once, scope::jwt_claim("sub"))
}

fn api(
    once: Idempotency,
    // `lambda_http::run` asks for `Future: Send`.
) -> impl Service<Request, Response = Response<ResponseBody<Body>>, Error = Error, Future: Send> {
    ServiceBuilder::new().layer(layer(once)).service_fn(order)
}

// The tests.

fn tea(quantity: u32) -> Result<TestRequest, Error> {
    let order = json!({"sku": "tea", "quantity": quantity});
    let order = TestRequest::post("/orders").json(&order)?;
    Ok(order.key("cart-17").jwt_claim("sub", "client-7"))
}

/// The status and the body of a new environment's answer.
async fn send(once: &Idempotency, request: TestRequest) -> Result<(u16, String), Error> {
    let answer = api(once.clone()).oneshot(request.request()?).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.into())?))
}

#[tokio::test]
async fn the_handler_answers_with_the_id_of_its_claim() -> Result<(), Error> {
    let claim = TestClaim::new(Key::new("POST /orders", "cart-17")).attempt(3);
    let claim = claim.claim().await?;
    let mut request = tea(2)?.request()?;
    request.extensions_mut().insert(claim.clone());

    let answer = order(request).await?;

    let expected = json!({"order_id": claim.derive_uuid("order"), "attempt": 3});
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.body(), &Body::from(expected.to_string()));
    Ok(())
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_until_it_expires() -> Result<(), Error> {
    let clock = ManualClock::default();
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("orders")
        .clock(clock.clone())
        .build()?;

    let (status, first) = send(&once, tea(2)?).await?;
    assert_eq!(status, 201);
    assert_eq!(send(&once, tea(2)?).await?, (201, first));

    // Another request under the same key is refused.
    assert_eq!(send(&once, tea(3)?).await?.0, 422);

    clock.pass_retention(&once);
    assert_eq!(send(&once, tea(3)?).await?.0, 201);
    Ok(())
}

#[tokio::test]
async fn a_retry_after_a_crash_gets_the_same_order() -> Result<(), Error> {
    let clock = ManualClock::default();
    let store = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(store.clone())
        .namespace("orders")
        .clock(clock.clone())
        .build()?;

    // The process dies before the answer is stored.
    let dies = send(&once, tea(2)?);
    store.crash_before(Call::Complete).cut_off(dies).await?;
    assert_eq!(send(&once, tea(2)?).await?.0, 409);

    clock.pass_lease(&once);
    let (status, order) = send(&once, tea(2)?).await?;
    assert_eq!(status, 201);
    assert!(order.contains(r#""attempt":2"#), "{order}");
    Ok(())
}

#[tokio::test]
async fn of_two_requests_at_once_one_orders_and_one_gets_409() -> Result<(), Error> {
    static ORDERS: AtomicUsize = AtomicUsize::new(0);
    static BEGUN: Notify = Notify::const_new();
    static ANSWERED: Notify = Notify::const_new();
    async fn slow(request: Request) -> Result<Response<Body>, Error> {
        if ORDERS.fetch_add(1, Ordering::SeqCst) == 0 {
            BEGUN.notify_one();
            ANSWERED.notified().await;
        }
        order(request).await
    }
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("orders")
        .build()?;
    let api = ServiceBuilder::new().layer(layer(once)).service_fn(slow);

    let first = api.clone().oneshot(tea(2)?.request()?);
    let duplicate = tea(2)?.request()?;
    let second = async {
        BEGUN.notified().await;
        let answer = api.oneshot(duplicate).await;
        ANSWERED.notify_one();
        answer
    };
    let (first, second) = tokio::join!(first, second);

    assert_eq!(first?.status(), 201);
    assert_eq!(second?.status(), 409);
    assert_eq!(ORDERS.load(Ordering::SeqCst), 1);
    Ok(())
}
