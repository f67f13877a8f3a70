//! `POST /orders`: places each order once, and gives a retry the answer of the first request.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `ORDERS_TABLE` | the table of the orders; partition key `order_id` |
//! | `METRIC_NAMESPACE` | the CloudWatch namespace of the metrics; default `LambdaIdempotency` |
//! | `RUST_LOG` | what is logged; default `info` |

use std::env;

use lambda_http::Error;
use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use tower::Layer;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

mod orders;
mod table;
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
    let orders = table::Table {
        client: store.client().clone(),
        name: env::var("ORDERS_TABLE").map_err(|_| "set ORDERS_TABLE to the orders' table")?,
    };
    let once = Idempotency::builder(store).namespace(NAMESPACE).build()?;
    lambda_http::run(metrics.layer(orders::api(once, orders))).await
}
