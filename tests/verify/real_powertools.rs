//! Beside the real Powertools for AWS Lambda (Python), in the version that `benches/peers/requirements.txt` pins: what each side makes of
//! the other's records, and what becomes there of what `tests/suite/peers.md` compares.
//!
//! These need `POWERTOOLS_PYTHON`, which `scripts/with powertools -- …` sets, and fail without it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::{Builder, Idempotency, Key, powertools};
use serde_json::Value;

use crate::support::Server;

mod behaviour;
mod keys;
mod layers;
mod leftovers;
mod limits;
mod process;
mod sharing;
mod typescript;
mod validation;

use process::Function;

/// The prefix of the ids of the Python function's records.
const PREFIX: &str = "charges";

/// A payment's key, as the Python function makes it.
fn charge(selected: impl Into<Value>) -> Option<Key> {
    powertools::id(PREFIX, selected).map(|id| Key::raw("charge", id))
}

/// A table, an engine on it, and a Python function on it.
struct Shared {
    server: Server,
    table: String,
}

impl Shared {
    async fn on(server: &Server) -> Self {
        Self {
            server: server.clone(),
            table: server.idempotency_table().await,
        }
    }

    fn engine(&self) -> Idempotency {
        self.engine_with(|once| once)
    }

    fn engine_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Idempotency {
        let store = DynamoDbStore::new(self.server.client(), &self.table);
        settings(Idempotency::builder(store).namespace("payments"))
            .build()
            .unwrap()
    }

    /// Its own process: it remembers nothing of another.
    async fn function(&self) -> Function {
        Function::start(&self.server, &self.table).await
    }

    /// The lease of the only record ended so long ago.
    async fn lease_ended(&self, ago: Duration) {
        let ended = SystemTime::now() - ago;
        let ended = ended.duration_since(UNIX_EPOCH).unwrap().as_millis();
        let id = self.records().await[0]["id"].clone();
        let update = self.server.client().update_item();
        let update = update
            .table_name(&self.table)
            .key("id", id)
            .update_expression("SET in_progress_expiration = :ended")
            .expression_attribute_values(":ended", AttributeValue::N(ended.to_string()));
        update.send().await.unwrap();
    }

    /// Returns the records of the table.
    async fn records(&self) -> Vec<process::Item> {
        let scan = self.server.client().scan().table_name(&self.table);
        scan.send().await.unwrap().items().to_vec()
    }
}

/// Long enough for a lease of so many milliseconds to be over, on a clock in milliseconds.
async fn after(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis + 50)).await;
}
