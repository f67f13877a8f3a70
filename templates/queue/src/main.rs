//! Enters each payment of an SQS queue in a ledger once.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `LEDGER_TABLE` | the table of the entries; partition key `entry_id` |
//! | `METRIC_NAMESPACE` | the CloudWatch namespace of the metrics; default `LambdaIdempotency` |
//! | `RUST_LOG` | what is logged; default `info` |

use std::env;
use std::time::Duration;

use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_runtime::Error;
use tower::Layer;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

mod ledger;
mod payments;
#[cfg(test)]
mod tests;

/// Whose records they are: the policy in `template.yaml` confines the function to them.
const NAMESPACE: &str = "{{project_name}}";
/// Outcomes are kept for longer than a message can be delivered again: 14 days in the queue, 14 in the dead-letter queue, and a redrive.
const RETENTION: Duration = Duration::from_hours(24 * 56);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter.from_env_lossy())
        .init();
    // Writes what `infra/alarms.yaml` looks at.
    let metrics = lambda_idempotency_emf::install()?;

    let store = DynamoDbStore::from_env().await?;
    let ledger = ledger::Table {
        client: store.client().clone(),
        name: env::var("LEDGER_TABLE").map_err(|_| "set LEDGER_TABLE to the ledger's table")?,
    };
    let once = Idempotency::builder(store)
        .namespace(NAMESPACE)
        .retention(RETENTION)
        .build()?;
    lambda_runtime::run(metrics.layer(payments::worker(once, ledger))).await
}
