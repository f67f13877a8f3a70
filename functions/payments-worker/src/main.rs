//! Makes each payment of an SQS queue once.
//!
//! With a payment provider, in two steps: the charge, then its entry in a ledger. An attempt that takes over a payment
//! doesn't charge again what was charged. The fate of a charge that was under way depends on the provider: one that honours
//! idempotency keys is asked again, with the same key; with one that doesn't, an operator looks.
//!
//! Without a provider, payments are just entered, by a handler that is deliberately not idempotent: each run writes an entry
//! under a new id, so that a payment made twice would show. The layer keeps a duplicate from it; after a lost reply or a crash behind
//! the write only a derived id does (`templates/direct` shows it).
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `LEDGER_TABLE` | the table of the entries; partition key `entry_id` |
//! | `RETENTION_DAYS` | how long a payment's outcome is kept; default 7. Longer than its queue, its dead-letter queue and a redrive |
//! | `PAYMENT_PROVIDER_URL` | the provider, over HTTP (`reqwest` without TLS here: a real one wants its feature `rustls`); default none |
//! | `PAYMENT_PROVIDER_HONOURS_KEYS` | `false` where the provider would take a repeated charge for another; default `true` |
//! | `PAYMENT_DELAY_MS` | stands for a slow payment provider: a pause before the entry is written; default 0 |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |

use std::time::Duration;

use aws_sdk_dynamodb::error::DisplayErrorContext;
use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::sqs::BatchLayer;
use lambda_runtime::Error;
use telemetry::Exporter;
use telemetry::variables::{flag, needed, number, variable};
use tower::Layer;

mod ledger;
mod payment;
mod provider;
mod shop;

use ledger::Ledger;
use payment::Payment;
use provider::Provider;
use shop::{PaymentError, Shop};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let metrics = telemetry::start()?;
    serve(metrics)
        .await
        .inspect_err(|error| tracing::error!(%error, "the worker stopped"))
}

async fn serve(metrics: Exporter) -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let ledger = Ledger {
        client: store.client().clone(),
        table: needed("LEDGER_TABLE", "the name of the ledger's table")?,
        delay: Duration::from_millis(number("PAYMENT_DELAY_MS")?.unwrap_or(0)),
    };
    let provider = match variable("PAYMENT_PROVIDER_URL") {
        Some(url) => {
            let honours_keys = flag("PAYMENT_PROVIDER_HONOURS_KEYS")?.unwrap_or(true);
            Some(Provider::new(&url, honours_keys)?)
        }
        None => None,
    };
    let shop = Shop { provider, ledger };
    let mut builder = Idempotency::builder(store).namespace("payments-worker");
    if let Some(days) = number::<u32>("RETENTION_DAYS")? {
        builder = builder.retention(Duration::from_hours(24 * u64::from(days)));
    }
    let once = builder.build()?;
    let worker = BatchLayer::new(once)
        .operation("payment")
        .key(|payment: &Payment| payment.payment_id.clone())
        .on_error(|message, error: &PaymentError| {
            let error = DisplayErrorContext(error);
            tracing::warn!(message.message_id, %error, "the payment isn't finished");
        })
        .handler(move |message| shop.clone().pay(message));
    lambda_runtime::run_concurrent(metrics.layer(worker)).await
}
