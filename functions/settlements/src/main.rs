//! Settles with merchants: pays each settlement out once, and answers with the payout.
//!
//! It is invoked directly, by a state machine of Step Functions, or by EventBridge Scheduler. The request is
//! `{"settlement_id": "s-1", "merchant": "m-1", "amount": 1250}`, the answer `{"payout_id": "…", "settlement_id": "s-1", "amount": 1250}`;
//! a duplicate gets the same answer. The handler is deliberately not idempotent: each run writes a payout under a new id, so that a
//! settlement paid out twice would show. The layer keeps a duplicate from it; after a lost reply or a crash behind the write only a derived
//! id does (`templates/direct` shows it).
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `PAYOUTS_TABLE` | the table of the payouts; partition key `payout_id` |
//! | `PAYMENT_DELAY_MS` | stands for a slow bank: a pause before the payout is written; default 0 |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |

use std::time::Duration;

use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::invoke::InvokeLayer;
use lambda_runtime::Error;
use telemetry::Exporter;
use telemetry::variables::{needed, number};
use tower::Layer;

mod payout;

use payout::{Payouts, Settlement};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let metrics = telemetry::start()?;
    serve(metrics)
        .await
        .inspect_err(|error| tracing::error!(%error, "the function stopped"))
}

async fn serve(metrics: Exporter) -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let payouts = Payouts {
        client: store.client().clone(),
        table: needed("PAYOUTS_TABLE", "the name of the payouts' table")?,
        delay: Duration::from_millis(number("PAYMENT_DELAY_MS")?.unwrap_or(0)),
    };
    let once = Idempotency::builder(store)
        .namespace("settlements")
        // An event that failed stays in its queue for 14 days, and may be sent again from there.
        .retention(Duration::from_hours(24 * 16))
        .build()?;
    let function = InvokeLayer::new(once)
        .operation("settle")
        .key(|settlement: &Settlement| settlement.settlement_id.clone())
        .handler(move |event| payouts.clone().pay(event));
    lambda_runtime::run_concurrent(metrics.layer(function)).await
}
