//! The function without AWS: a store in memory, and orders that are remembered.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use lambda_http::{Error, Request};
use lambda_idempotency::Idempotency;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock, TestRequest};
use serde_json::json;
use tower::ServiceExt;

use crate::orders::{Order, Orders, api};

/// Keeps the ids of the orders.
#[derive(Clone, Default)]
struct Placed(Arc<Mutex<Vec<String>>>);

impl Orders for Placed {
    async fn place(&self, order_id: String, _order: Order) -> Result<(), Error> {
        self.0.lock().unwrap().push(order_id);
        Ok(())
    }
}

struct Shop {
    store: FaultyStore,
    clock: ManualClock,
    once: Idempotency,
    orders: Placed,
}

impl Shop {
    fn new() -> Result<Self, Error> {
        let store = FaultyStore::new(MemoryStore::new());
        let clock = ManualClock::default();
        let once = Idempotency::builder(store.clone())
            .namespace(crate::NAMESPACE)
            .clock(clock.clone())
            .build()?;
        let orders = Placed::default();
        Ok(Self {
            store,
            clock,
            once,
            orders,
        })
    }

    /// Sends a request; the status and the body of its answer.
    async fn send(&self, request: Request) -> Result<(u16, String), Error> {
        let api = api(self.once.clone(), self.orders.clone());
        let answer = api.oneshot(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.into())?))
    }

    fn orders(&self) -> Vec<String> {
        self.orders.0.lock().unwrap().clone()
    }
}

/// An order of some tea, under the key `cart-17`, that this user of the account signed.
fn tea(quantity: u32, user: &str) -> Result<Request, Error> {
    let order = json!({ "sku": "tea", "quantity": quantity });
    let order = TestRequest::post("/orders").key("cart-17").json(&order)?;
    let mut event = serde_json::to_value(order.http_api()?)?;
    let arn = format!("arn:aws:iam::123456789012:user/{user}");
    event["requestContext"]["authorizer"] = json!({ "iam": { "userArn": arn } });
    Ok(lambda_http::request::from_str(&event.to_string())?)
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_and_another_order_is_refused() -> Result<(), Error> {
    let shop = Shop::new()?;

    let first = shop.send(tea(2, "anna")?).await?;
    assert_eq!(first.0, 201);
    assert_eq!(shop.send(tea(2, "anna")?).await?, first);
    assert_eq!(shop.send(tea(3, "anna")?).await?.0, 422);

    assert_eq!(shop.orders().len(), 1);
    Ok(())
}

#[tokio::test]
async fn each_client_has_keys_of_its_own() -> Result<(), Error> {
    let shop = Shop::new()?;

    assert_eq!(shop.send(tea(2, "anna")?).await?.0, 201);
    assert_eq!(shop.send(tea(3, "ben")?).await?.0, 201);

    assert_eq!(shop.orders().len(), 2);
    Ok(())
}

#[tokio::test]
async fn an_attempt_after_a_crash_places_the_same_order() -> Result<(), Error> {
    let shop = Shop::new()?;

    // The process dies when the order is placed, before the answer is stored.
    let dies = shop.send(tea(2, "anna")?);
    let crash = shop.store.crash_before(Call::Complete);
    crash.cut_off(dies).await?;
    shop.clock.pass_lease(&shop.once);
    assert_eq!(shop.send(tea(2, "anna")?).await?.0, 201);

    let orders = shop.orders();
    assert_eq!(orders.len(), 2);
    assert_eq!(orders[0], orders[1]);
    Ok(())
}
