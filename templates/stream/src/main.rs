//! Books each stock movement of a Kinesis data stream once.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `JOURNAL_TABLE` | the table of the entries; partition key `entry_id` |
//! | `METRIC_NAMESPACE` | the CloudWatch namespace of the metrics; default `LambdaIdempotency` |
//! | `RUST_LOG` | what is logged; default `info` |

use std::env;

use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_runtime::Error;
use tower::Layer;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

mod journal;
mod movements;
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
    let journal = journal::Table {
        client: store.client().clone(),
        name: env::var("JOURNAL_TABLE").map_err(|_| "set JOURNAL_TABLE to the journal's table")?,
    };
    let once = Idempotency::builder(store).namespace(NAMESPACE).build()?;
    lambda_runtime::run(metrics.layer(movements::worker(once, journal))).await
}
