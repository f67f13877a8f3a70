//! Checks orders out, as a saga: reserves the goods, charges the card, books the carrier. Where one of them refuses permanently, what was done is
//! undone, and the order is refused.
//!
//! Behind API Gateway and a queue, without a function between them: the gateway puts the body of each request into the queue. The key is the
//! order's id, so that a request which is sent twice is one checkout.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `SHOP_TABLE` | stands for the warehouse, the bank and the carrier: one item for each thing that they did; partition key `effect_id` |
//! | `RETENTION_DAYS` | how long a checkout's outcome is kept; default 7. Longer than its queue, its dead-letter queue and a redrive |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |

use std::time::Duration;

use aws_sdk_dynamodb::error::DisplayErrorContext;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::sqs::{BatchLayer, Message};
use lambda_idempotency::{Claim, Idempotency, SagaError, Step};
use lambda_runtime::Error;
use serde::{Deserialize, Serialize};
use telemetry::Exporter;
use telemetry::variables::{needed, number};
use tower::Layer;

mod shop;

use shop::{Shop, ShopError};

/// An order, as a client sends it.
#[derive(Deserialize)]
struct Order {
    #[serde(rename = "order_id")]
    id: String,
    quantity: u32,
    /// In minor units: cents, say.
    amount: u64,
}

/// The fate of an order.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Checkout {
    Shipped,
    Refused,
}

async fn check_out(
    shop: Shop,
    order: Order,
    claim: Claim,
) -> Result<Checkout, SagaError<ShopError>> {
    match all_steps(&shop, &order, &claim).await {
        Ok(()) => Ok(Checkout::Shipped),
        // All is undone: the order is dealt with, and its message leaves the queue.
        Err(SagaError::Compensated { failure, undone }) => {
            tracing::info!(reason = failure.message, ?undone, "refused");
            Ok(Checkout::Refused)
        }
        Err(error) => Err(error),
    }
}

/// Without an answer the step, or its compensation, may have been done: the record says so.
fn step(name: &str) -> Step<ShopError> {
    Step::named(name).unsure_after(ShopError::may_be_done)
}

async fn all_steps(shop: &Shop, order: &Order, claim: &Claim) -> Result<(), SagaError<ShopError>> {
    let mut saga = claim.saga()?.permanent(ShopError::is_refusal);
    let reserve = |key| shop.reserve(claim, order, key);
    saga.step(step("reserve"), reserve, |key, reservation| {
        shop.release(reservation, key)
    })
    .await?;
    // The bank honours no keys, and can be asked: a charge that may have happened is looked up, not repeated. A charge
    // that fails for another reason than a refusal may have happened.
    let charge = |key| shop.charge(order, key);
    let look = |key| shop.charged(key);
    saga.queried_step(step("charge"), look, charge, |key, receipt| {
        shop.refund(receipt, key)
    })
    .await?;
    let book = |key| shop.ship(claim, order, key);
    saga.step(step("ship"), book, |key, parcel| {
        shop.call_back(parcel, key)
    })
    .await?;
    saga.finish().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let metrics = telemetry::start()?;
    serve(metrics)
        .await
        .inspect_err(|error| tracing::error!(%error, "the worker stopped"))
}

async fn serve(metrics: Exporter) -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let table = needed("SHOP_TABLE", "the name of the shop's table")?;
    let shop = Shop::new(store.client().clone(), table);
    let mut builder = Idempotency::builder(store).namespace("checkout");
    if let Some(days) = number::<u32>("RETENTION_DAYS")? {
        builder = builder.retention(Duration::from_hours(24 * u64::from(days)));
    }
    // The sample has one client. Of several, two may choose the same id: `template.yaml` says how
    // the gateway names the client, and each has its own keys with
    // `.scope(|_, message| message.message_attributes.get("client")?.string_value.clone())`.
    let worker = BatchLayer::new(builder.build()?)
        .operation("checkout")
        .key(|order: &Order| order.id.clone())
        .on_error(|message, error: &SagaError<ShopError>| {
            let error = DisplayErrorContext(error);
            tracing::warn!(message.message_id, %error, "not checked out");
        })
        .handler(move |message: Message<Order>| {
            check_out(shop.clone(), message.body, message.claim)
        });
    lambda_runtime::run(metrics.layer(worker)).await
}
