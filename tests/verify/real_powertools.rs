//! Beside the real Powertools for AWS Lambda (Python), in the version that `benches/peers/requirements.txt` pins: what each side makes of
//! the other's records, and what becomes there of what `tests/suite/peers.md` compares.
//!
//! These need `POWERTOOLS_PYTHON`, which `scripts/with powertools -- …` sets, and fail without it.

use std::future::{Ready, ready};
use std::io::Error as HandlerError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::{Builder, Claim, Error, Fingerprint, Idempotency, Key, powertools};
use serde_json::{Value, json};

use crate::support::Server;

/// Declares a test of what both sides share, on each server there is. The function's process keeps real time.
macro_rules! on_both {
    ($name:ident) => {
        mod $name {
            use crate::real_powertools::Shared;
            use crate::support::Server;

            #[tokio::test]
            async fn dynoxide() {
                super::$name(Shared::on(&Server::dynoxide().await).await).await;
            }

            #[tokio::test]
            async fn dynamodb_local() {
                super::$name(Shared::on(&Server::dynamodb_local().await).await).await;
            }
        }
    };
}

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

/// A handler that is not to be called.
fn it_ran<T>(_: Claim) -> Ready<Result<T, HandlerError>> {
    ready(Err(HandlerError::other("it ran")))
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

    /// A function whose key is what this expression selects.
    async fn keyed_by(&self, expression: &str) -> Function {
        let config = json!({ "event_key_jmespath": expression });
        self.function().await.with("config", config)
    }

    /// A function that compares the amounts of payloads.
    async fn validating(&self) -> Function {
        let config = json!({"payload_validation_jmespath": "amount"});
        self.function().await.with("config", config)
    }

    /// Runs here and ends with this result.
    async fn done(
        &self,
        key: Option<Key>,
        fingerprint: impl Into<Option<Fingerprint>>,
        result: impl Into<Value>,
    ) {
        let result: Value = result.into();
        let handler = |_| ready(Ok::<_, HandlerError>(result));
        let ran = self.engine().run(key, fingerprint, handler).await;
        assert!(!ran.unwrap().is_replayed());
    }

    /// A run here is given this result, and no handler is called.
    async fn replays(
        &self,
        key: Option<Key>,
        fingerprint: impl Into<Option<Fingerprint>>,
        result: impl Into<Value>,
    ) {
        let result: Value = result.into();
        let ran = self.engine().run(key, fingerprint, it_ran::<Value>).await;
        assert_eq!(ran.unwrap().into_inner(), result);
    }

    /// A run here is refused, with the seconds that another attempt's lease lasts.
    async fn in_flight(&self, order: &str) -> u64 {
        let (once, key) = (self.engine(), charge(order));
        let ran = once.run(key, None, it_ran::<Value>).await;
        let Err(Error::InFlight { lease, .. }) = ran else {
            panic!("{ran:?}")
        };
        lease.as_secs()
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
