//! Enters each payment of an SQS queue into a ledger, once.
//!
//! The handler is deliberately not idempotent: each run writes an entry under a new id, so that a payment taken twice
//! would show. What keeps it from happening is the layer.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `LEDGER_TABLE` | the table of the entries; partition key `entry_id` |
//! | `RETENTION_DAYS` | how long a payment's outcome is kept; default 7. Longer than its queue, its dead-letter queue and a redrive |
//! | `PAYMENT_DELAY_MS` | stands for a slow payment provider: a pause before the entry is written; default 0 |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |

use std::env;
use std::str::FromStr;
use std::time::Duration;

use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::{Client, Error as LedgerError};
use lambda_idempotency::Idempotency;
use lambda_idempotency::sqs::{BatchLayer, Message};
use lambda_idempotency::store::dynamodb::DynamoDbStore;
use lambda_runtime::Error;
use serde::Deserialize;
use telemetry::Flush;
use tower::Layer;
use uuid::Uuid;

#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "the names on the wire")]
struct Payment {
    payment_id: String,
    order_id: String,
    /// In minor units: cents, say.
    amount: u64,
    currency: String,
}

#[derive(Clone)]
struct Ledger {
    client: Client,
    table: String,
    delay: Duration,
}

impl Ledger {
    async fn enter(self, Message { body, claim, .. }: Message<Payment>) -> Result<(), LedgerError> {
        tokio::time::sleep(self.delay).await;
        let entry_id = Uuid::new_v4().to_string();
        self.client
            .put_item()
            .table_name(self.table)
            .item("entry_id", S(entry_id.clone()))
            .item("payment_id", S(body.payment_id))
            .item("order_id", S(body.order_id))
            .item("amount", N(body.amount.to_string()))
            .item("currency", S(body.currency))
            .send()
            .await
            .inspect_err(|error| {
                tracing::error!(error = %DisplayErrorContext(error), "the ledger refused the entry");
            })?;
        tracing::info!(entry_id, attempt = claim.attempt(), "payment entered");
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let flush = telemetry::start()?;
    serve(flush)
        .await
        .inspect_err(|error| tracing::error!(%error, "the worker stopped"))
}

async fn serve(flush: Flush) -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let ledger = Ledger {
        client: store.client().clone(),
        table: variable("LEDGER_TABLE")
            .ok_or("set LEDGER_TABLE to the name of the ledger's table")?,
        delay: Duration::from_millis(number("PAYMENT_DELAY_MS")?.unwrap_or(0)),
    };
    let mut builder = Idempotency::builder(store).namespace("payments-worker");
    if let Some(days) = number::<u32>("RETENTION_DAYS")? {
        builder = builder.retention(Duration::from_hours(24 * u64::from(days)));
    }
    let once = builder.build()?;
    let worker = BatchLayer::new(once)
        .operation("payment")
        .key(|payment: &Payment| payment.payment_id.clone())
        .handler(move |message| ledger.clone().enter(message));
    lambda_runtime::run(flush.layer(worker)).await
}

fn number<T: FromStr>(name: &str) -> Result<Option<T>, String> {
    let parse = |text: String| {
        text.parse()
            .map_err(|_| format!("{name} must be a whole number"))
    };
    variable(name).map(parse).transpose()
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
