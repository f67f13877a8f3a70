//! Books each stock movement of a Kinesis data stream once.
//!
//! The data of a record is JSON: `{"movement_id": "m-1", "sku": "tea", "delta": -2}`. Its partition key is the `sku`, so that the
//! movements of one article are booked in the order of the stream. The key is the `movement_id`: a producer that sends a movement
//! again makes a second record with another sequence number, and the movement is booked once all the same.
//!
//! The handler is deliberately not idempotent: each run writes an entry under a new id, so that a movement booked twice would show.
//! The layer keeps a duplicate from it; after a lost reply or a crash behind the write only a derived id does (`templates/direct` shows
//! it).
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `MOVEMENTS_TABLE` | the table of the entries; partition key `entry_id` |
//! | `MOVEMENT_DELAY_MS` | a pause before the entry is written, in milliseconds, as of a slow system behind the function; default 0 |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |

use std::time::Duration;

use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::kinesis::BatchLayer;
use lambda_runtime::Error;
use telemetry::Exporter;
use telemetry::variables::{needed, number};
use tower::Layer;

mod journal;
mod movement;

use journal::Journal;
use movement::Movement;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let metrics = telemetry::start()?;
    serve(metrics)
        .await
        .inspect_err(|error| tracing::error!(%error, "the function stopped"))
}

async fn serve(metrics: Exporter) -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let journal = Journal {
        client: store.client().clone(),
        table: needed("MOVEMENTS_TABLE", "the name of the table of movements")?,
        delay: Duration::from_millis(number("MOVEMENT_DELAY_MS")?.unwrap_or(0)),
    };
    let once = Idempotency::builder(store)
        .namespace("stock-movements")
        .build()?;
    let worker = BatchLayer::new(once)
        .operation("book")
        .key(|movement: &Movement| movement.movement_id.clone())
        .handler(move |message| journal.clone().book(message));
    lambda_runtime::run_concurrent(metrics.layer(worker)).await
}
