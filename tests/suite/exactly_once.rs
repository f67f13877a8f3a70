//! Effects that commit together with their record, through the real SDK: what applies, what doesn't, and what a fault leaves.

mod alone;
mod claimless;
mod cost;
mod dropped;
mod guards;
mod layers;
mod outbox;
mod sends;
mod tokens;
mod transaction;

use std::collections::HashMap;
use std::iter;
use std::time::Duration;

use aws_sdk_dynamodb::types::builders::{PutBuilder, UpdateBuilder};
use aws_sdk_dynamodb::types::{AttributeValue, KeyType, Put, Update};
use lambda_idempotency::dynamodb::{DynamoDbError, DynamoDbStore};
use lambda_idempotency::protocol::record::{Ended, Intervention, Owner, RecordWrite};
use lambda_idempotency::store::Store;
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{Builder, EpochMillis, Error, Fingerprint, Idempotency, Key, Outcome};
use tokio::time::Instant;

use crate::support::server::unique;
use crate::support::{Proxy, Server, VirtualClock};

/// The handler's own error.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Failed {
    #[error("sold out, {left} left")]
    SoldOut { left: i64 },
    #[error("it can't be written: {0}")]
    Write(#[from] WriteError),
    #[error("broken")]
    Broken,
}

/// The IAM action that the function lacks.
fn denied_action(reason: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<&'static str> {
    match reason.downcast_ref()? {
        DynamoDbError::AccessDenied { action, .. } => Some(action),
        _ => None,
    }
}

/// An engine on a fresh table behind a wire that can be cut, and a business table beside it.
struct Bench {
    proxy: Proxy,
    direct: Server,
    records: String,
    business: String,
}

impl Bench {
    async fn on(server: &Server) -> Self {
        Self {
            proxy: Proxy::before(server).await,
            direct: server.clone(),
            records: server.idempotency_table().await,
            business: server.table_with_key("business", "id").await,
        }
    }

    fn store(&self) -> DynamoDbStore {
        DynamoDbStore::new(self.proxy.server().client(), &self.records)
    }

    fn builder(&self) -> Builder {
        Idempotency::builder(self.store())
            .clock(VirtualClock)
            .namespace("exactly-once")
    }

    fn once(&self) -> Idempotency {
        self.builder().build().unwrap()
    }

    /// Returns an engine whose claims last so many seconds.
    fn lasting(&self, seconds: u64) -> Idempotency {
        let lease = Duration::from_secs(seconds);
        self.builder().lease(lease).build().unwrap()
    }

    /// Returns an engine on its own table, with a composite key and other names.
    async fn composite(&self) -> Idempotency {
        let table = unique("composite");
        let keys = [("pk", KeyType::Hash), ("sk", KeyType::Range)];
        self.direct.create_table(&table, &keys).await;
        let store = DynamoDbStore::new(self.proxy.server().client(), &table).layout(|layout| {
            layout.composite_key("pk", "idempotency", "sk");
            layout.status = "state".into();
            layout.data = "outcome".into();
        });
        Idempotency::builder(store)
            .clock(VirtualClock)
            .namespace("exactly-once")
            .build()
            .unwrap()
    }

    /// A deposit: not idempotent, so that a second one shows.
    fn deposit(&self, amount: i64) -> UpdateBuilder {
        Update::builder()
            .table_name(&self.business)
            .key("id", string("account"))
            .update_expression("ADD balance :amount")
            .expression_attribute_values(":amount", number(amount))
    }

    /// Takes from what is there, if it is enough.
    fn take(&self, amount: i64) -> UpdateBuilder {
        Update::builder()
            .table_name(&self.business)
            .key("id", string("stock"))
            .update_expression("ADD pieces :minus")
            .condition_expression("pieces >= :amount")
            .expression_attribute_values(":amount", number(amount))
            .expression_attribute_values(":minus", number(-amount))
    }

    fn put(&self, id: &str) -> PutBuilder {
        Put::builder()
            .table_name(&self.business)
            .item("id", string(id))
    }

    async fn stock(&self, pieces: i64) {
        let request = self.direct.client().put_item().table_name(&self.business);
        let request = request
            .item("id", string("stock"))
            .item("pieces", number(pieces));
        request.send().await.unwrap();
    }

    /// Returns the balance of the account; zero where nothing was ever deposited.
    async fn balance(&self) -> i64 {
        let account = self.item(&self.business, "account").await;
        account
            .get("balance")
            .map_or(0, |balance| balance.as_n().unwrap().parse().unwrap())
    }

    /// The pieces in stock.
    async fn pieces(&self) -> i64 {
        met(Some(&self.item(&self.business, "stock").await), "pieces")
    }

    /// Returns the number of business items.
    async fn items(&self) -> usize {
        let scan = self
            .direct
            .client()
            .scan()
            .table_name(&self.business)
            .consistent_read(true);
        scan.send().await.unwrap().items().len()
    }

    /// The record as it stands, read past the wire.
    async fn record(&self) -> HashMap<String, AttributeValue> {
        let id = self.once().record_id(&key()).unwrap();
        self.item(&self.records, id.as_str()).await
    }

    /// Releases the record with new derived keys, as `idempotency rerun --keys new` does.
    async fn rerun_with_new_keys(&self) {
        let id = self.once().record_id(&key()).unwrap();
        let (store, deadline) = (self.store(), Instant::now() + Duration::from_mins(1));
        let found = store.load(&id, deadline).await.unwrap().unwrap();
        let record = found.content.unwrap();
        let rerun = Intervention {
            id,
            seen: found.version,
            owner: Owner::random().unwrap(),
            expiration: record.expiration,
            steps: iter::once(record.journal.next_keys(EpochMillis(0))).collect(),
            end: Ended::Released { last_error: None },
        };
        let write = RecordWrite::Intervene(rerun);
        store.write(&write, deadline).await.unwrap();
    }

    async fn item(&self, table: &str, id: &str) -> HashMap<String, AttributeValue> {
        let request = self
            .direct
            .client()
            .get_item()
            .table_name(table)
            .key("id", string(id));
        let reply = request.consistent_read(true).send().await.unwrap();
        reply.item.unwrap_or_default()
    }
}

fn key() -> Key {
    Key::new("deposit", "event-1")
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"payload")
}

fn string(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn number(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// The record of a first attempt, which has written it with the outcome `1` and claimed nothing before.
fn assert_completed_at_once(record: &HashMap<String, AttributeValue>) {
    for (attribute, value) in [
        ("status", string("COMPLETED")),
        ("attempt", number(1)),
        ("data", string("1")),
        ("v", number(1)),
    ] {
        assert_eq!(record[attribute], value, "{attribute}");
    }
    assert!(!record.contains_key("in_progress_expiration"));
}

/// One of the runs was executed, and all have its outcome.
fn assert_one_ran(results: Vec<Result<Outcome<i32>, Error<Failed>>>) {
    let outcomes: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    let ran = outcomes.iter().filter(|outcome| !outcome.is_replayed());
    assert_eq!(ran.count(), 1);
    let first = outcomes[0].get();
    assert!(outcomes.iter().all(|outcome| outcome.get() == first));
}

/// A number that a condition met.
fn met(item: Option<&HashMap<String, AttributeValue>>, attribute: &str) -> i64 {
    item.unwrap()[attribute].as_n().unwrap().parse().unwrap()
}
