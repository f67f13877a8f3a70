//! Duplicates meet a queue worker and an HTTP API: `cargo run --example quickstart`. A DynamoDB API runs in this process.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use http::{Request, Response};
use lambda_http::Body;
use lambda_idempotency::testing::TestDynamoDb;
use lambda_idempotency::{Idempotency, http::IdempotencyLayer, sqs::BatchLayer, sqs::Message};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The number of runs of the handlers.
static RUNS: AtomicUsize = AtomicUsize::new(0);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_env_filter("error").init();
    // A function calls `DynamoDbStore::from_env()` instead.
    let store = TestDynamoDb::start().await?.store().await?;
    println!("{:36}deliveries  runs  replays  refused", "");

    // A queue worker. The key is in the body; messages that are to be delivered again are in the reply.
    let once = Idempotency::builder(store.clone())
        .namespace("payments-worker")
        .build()?;
    let mut worker = BatchLayer::new(once)
        .operation("charge")
        .key(|payment: &Value| payment["payment_id"].as_u64().map(|id| id.to_string()))
        .handler(|_: Message<Value>| async { Ok::<_, Failure>(RUNS.fetch_add(1, SeqCst)) });
    let mut deliver = async |payments: &[Value]| -> Result<usize, Failure> {
        let record = |payment: &Value| json!({"messageId": "m", "body": payment.to_string()});
        let records: Vec<_> = payments.iter().map(record).collect();
        let event = serde_json::from_value(json!({"Records": records}))?;
        let delivery = LambdaEvent::new(event, Context::default());
        Ok(worker.call(delivery).await?.batch_item_failures.len())
    };
    let payment = |id, amount| json!({"payment_id": id, "amount": amount});
    let ten: Vec<_> = (0..10).map(|n| payment(n % 7, 100)).collect();
    let reported = deliver(&ten).await?;
    show("SQS: 10 payments, 3 of them twice", 10, reported, [7, 3, 0])?;
    let reported = deliver(&ten).await?;
    show("SQS: delivered again", 10, reported, [0, 10, 0])?;
    let reported = deliver(&[payment(1, 999)]).await?;
    show("SQS: one of them, another amount", 1, reported, [0, 0, 1])?;

    // An HTTP API. The key is in a header; `scoped` keeps the keys of several clients apart.
    let once = Idempotency::builder(store)
        .namespace("orders-api")
        .build()?;
    let api = ServiceBuilder::new()
        .layer(IdempotencyLayer::unscoped(once))
        .service_fn(async |_: Request<Body>| {
            let order = format!("order {}", RUNS.fetch_add(1, SeqCst));
            Response::builder().status(201).body(Body::from(order))
        });
    let send = async |order: &str| -> Result<usize, Failure> {
        let request = Request::post("https://shop.example/orders")
            .header("content-type", "application/json")
            .header("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324");
        let answer = api.clone().oneshot(request.body(order.into())?).await?;
        Ok(usize::from(!answer.status().is_success()))
    };
    let tea = r#"{"sku": "tea"}"#;
    show("HTTP: an order", 1, send(tea).await?, [1, 0, 0])?;
    show("HTTP: a retry of it", 1, send(tea).await?, [0, 1, 0])?;
    let refused = send(r#"{"sku": "milk"}"#).await?;
    show("HTTP: its key, another order", 1, refused, [0, 0, 1])
}

/// Prints the fate of the deliveries: runs, replays and refusals as expected, or an error.
fn show(scene: &str, sent: usize, refused: usize, expected: [usize; 3]) -> Result<(), Failure> {
    let runs = RUNS.swap(0, SeqCst);
    let found @ [_, replays, _] = [runs, sent - runs - refused, refused];
    println!("{scene:36}{sent:10}{runs:6}{replays:9}{refused:9}");
    let right = (found == expected).then_some(());
    right.ok_or_else(|| format!("expected {expected:?}").into())
}
