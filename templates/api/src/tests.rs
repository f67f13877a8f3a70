//! The function without AWS: a store in memory, and orders that are remembered.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue::N;
use http_body_util::BodyExt;
use lambda_http::{Error, Request};
use lambda_idempotency::Idempotency;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock, TestDynamoDb, TestRequest};
use serde_json::json;
use tower::ServiceExt;

use crate::orders::{Order, Orders, api};
use crate::table::Table;

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

#[tokio::test]
async fn an_order_stays_when_another_has_its_id() -> Result<(), Error> {
    let dynamodb = TestDynamoDb::start().await?;
    dynamodb.create_table("orders", &["order_id"]).await?;
    let table = Table {
        client: dynamodb.client(),
        name: "orders".to_owned(),
    };
    let place = |sku: &str, quantity| {
        let sku = sku.to_owned();
        table.place("o-1".to_owned(), Order { sku, quantity })
    };

    place("tea", 2).await?;
    // Another attempt of the same request.
    place("tea", 2).await?;
    assert!(place("tea", 3).await.is_err());
    assert!(place("milk", 2).await.is_err());

    let orders = dynamodb.client().scan().table_name("orders").send().await?;
    assert_eq!(orders.items().len(), 1);
    assert_eq!(orders.items()[0]["quantity"], N("2".to_owned()));
    Ok(())
}
