//! Pays each settlement out once, and gives a repeated event the answer of the first.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `PAYOUTS_TABLE` | the table of the payouts; partition key `payout_id` |
//! | `METRIC_NAMESPACE` | the CloudWatch namespace of the metrics; default `LambdaIdempotency` |
//! | `RUST_LOG` | what is logged; default `info` |

use std::env;

use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_runtime::Error;
use tower::Layer;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

mod payouts;
mod settlements;
#[cfg(test)]
mod tests;

/// Whose records they are: the policy in `template.yaml` confines the function to them.
const NAMESPACE: &str = "{{project_name}}";

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
    let payouts = payouts::Table {
        client: store.client().clone(),
        name: env::var("PAYOUTS_TABLE").map_err(|_| "set PAYOUTS_TABLE to the payouts' table")?,
    };
    let once = Idempotency::builder(store)
        .namespace(NAMESPACE)
        // An event that failed stays in its queue for 14 days, and may be sent again from there.
        .retention(std::time::Duration::from_hours(24 * 16))
        .build()?;
    lambda_runtime::run(metrics.layer(settlements::function(once, payouts))).await
}
