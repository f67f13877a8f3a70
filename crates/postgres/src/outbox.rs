//! Publishes events if and only if their transaction commits.
//!
//! A message that is sent beside a transaction is lost when the process dies between the two, or
//! announces a change that never happened. With an outbox, the event is a row of the transaction, and a
//! relay publishes it: at least once, with the same id each time, so that its consumer recognises a
//! repetition.
//!
//! ```
//! use lambda_idempotency::Claim;
//! use lambda_idempotency_postgres::outbox::{EmitError, Event, Outbox};
//! use lambda_idempotency_postgres::{Pool, PostgresError, PostgresStore, Sql};
//! use serde_json::json;
//!
//! fn place(claim: &Claim, outbox: &Outbox) -> Result<String, EmitError> {
//!     let order = claim.derive_uuid("order");
//!     claim.write(Sql::new("INSERT INTO orders (id) VALUES ($1)").bind(order.as_str()))?;
//!     outbox.emit(claim, &Event::new("order.created", &order), &json!({ "order": order }))?;
//!     Ok(order)
//! }
//!
//! /// Runs on a schedule, or in a loop.
//! async fn relay<P: Pool>(store: &PostgresStore<P>, outbox: &Outbox) -> Result<(), PostgresError> {
//!     let publish = async |event: &lambda_idempotency_postgres::outbox::StoredEvent| {
//!         println!("{} {}", event.id, event.data); // to a queue or a topic
//!         Ok::<_, std::io::Error>(())
//!     };
//!     while outbox.relay(store, 100, publish).await?.published > 0 {}
//!     Ok(())
//! }
//! ```

use std::time::SystemTime;

use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{Claim, EpochMillis};
use serde::Serialize;

use crate::driver::{Connection, Pool, Session};
use crate::error::PostgresError;
use crate::sql::Sql;
use crate::store::PostgresStore;
use crate::table::{TableName, TableNameError};
use crate::value::{Cell, Content, Value};

/// An outbox adds events to its table, in which they wait for a relay.
#[derive(Clone, Debug)]
pub struct Outbox {
    table: TableName,
}

/// An event announces a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an event is told by `Outbox::emit`"]
pub struct Event {
    kind: String,
    aggregate: String,
    name: String,
}

impl Event {
    /// Makes an event of this type (`order.created`), about this aggregate (an order's id).
    pub fn new(kind: impl Into<String>, aggregate: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            aggregate: aggregate.into(),
            name: String::new(),
        }
    }

    /// Sets a name, which is part of the id, to distinguish two events of one type and one aggregate in
    /// a transaction.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

/// A relay reads events in this form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredEvent {
    /// A UUID, by which consumers recognise a repetition.
    pub id: String,
    /// The type: `order.created`.
    pub kind: String,
    /// The aggregate that the event is about.
    pub aggregate: String,
    /// The data, as JSON text.
    pub data: String,
    /// The time when the handler added it to the transaction.
    pub recorded_at: EpochMillis,
}

/// An event could not be added. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The data can't be serialised.
    #[error("the event's data can't be serialised as JSON: {0}")]
    NotSerializable(#[from] serde_json::Error),
    /// The event can't join the transaction.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What one call of [`Outbox::relay`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relayed {
    /// The number of events that were published and marked.
    pub published: usize,
    /// The number of events whose publication failed: they stay, and those behind them in their
    /// aggregate wait.
    pub failed: usize,
}

/// The first event of each aggregate that waits. One whose aggregate has an earlier one that waits, or
/// that another relay is publishing, is left.
const PENDING: &str = "SELECT position, id, type, aggregate, data, recorded_at FROM {table} event \
     WHERE published_at IS NULL AND NOT EXISTS (SELECT FROM {table} earlier \
     WHERE earlier.aggregate = event.aggregate AND earlier.position < event.position \
     AND earlier.published_at IS NULL) ORDER BY position LIMIT $1 FOR UPDATE SKIP LOCKED";

impl Outbox {
    /// Makes an outbox on this table.
    ///
    /// # Errors
    ///
    /// When a statement would not take the name without quotes.
    pub fn new(table: &str) -> Result<Self, TableNameError> {
        let table = TableName::parse(table)?;
        Ok(Self { table })
    }

    /// Returns the statements that make the table. They may run again.
    pub fn statements(&self) -> String {
        self.table.fill(include_str!("../schema/outbox.sql"))
    }

    /// Returns the statement that adds an event: to [apply](crate::Transaction::apply) in an open
    /// transaction. The id is the same in every attempt.
    ///
    /// # Errors
    ///
    /// When the data can't be serialised.
    pub fn event<T: Serialize + ?Sized>(
        &self,
        claim: &Claim,
        event: &Event,
        data: &T,
    ) -> Result<Sql, serde_json::Error> {
        let insert = "INSERT INTO {table} (id, type, aggregate, data, recorded_at) VALUES ($1, $2, $3, $4, $5)";
        let id = claim.event_id(&event.kind, &event.aggregate, &event.name);
        let statement = Sql::new(self.table.fill(insert));
        Ok(statement
            .bind(id)
            .bind(event.kind.as_str())
            .bind(event.aggregate.as_str())
            .bind(serde_json::to_string(data)?)
            .bind(claim.now().0)
            .affects(1))
    }

    /// Adds an event to the writes of a claim.
    ///
    /// # Errors
    ///
    /// When the data can't be serialised, or the event can't join the transaction.
    pub fn emit<T: Serialize + ?Sized>(
        &self,
        claim: &Claim,
        event: &Event,
        data: &T,
    ) -> Result<(), EmitError> {
        claim.write(self.event(claim, event, data)?)?;
        Ok(())
    }

    /// Publishes events that wait, at most `limit`, and marks them, in one transaction: the first of
    /// each aggregate. Call it again until nothing was published.
    ///
    /// Any number of relays may run at once: each leaves the events that another is publishing, and
    /// those behind them. A relay that dies before its transaction committed has published events that
    /// are published again, with the same ids.
    ///
    /// # Errors
    ///
    /// What the server answered: what was published may be published again.
    ///
    /// # Cancellation
    ///
    /// Dropped, it closes its connection; what was published is published again.
    pub async fn relay<P: Pool, E>(
        &self,
        store: &PostgresStore<P>,
        limit: u32,
        publish: impl AsyncFn(&StoredEvent) -> Result<(), E>,
    ) -> Result<Relayed, PostgresError> {
        let mut connection = store.pool().connect().await?;
        let session = connection.session()?;
        let limit = [Value::from(limit)];
        let rows = session
            .begin("BEGIN", &self.table.fill(PENDING), &limit)
            .await?;
        let mut relayed = Relayed::default();
        let mut published = Vec::new();
        for (position, event) in rows.into_iter().filter_map(read) {
            match publish(&event).await {
                Ok(()) => published.push(Some(position)),
                Err(_) => relayed.failed += 1,
            }
        }
        relayed.published = published.len();
        let now = EpochMillis::from(SystemTime::now());
        let mark = "UPDATE {table} SET published_at = $2 WHERE position = ANY ($1)";
        let values = [Value(Content::Ints(published)), now.0.into()];
        session.execute(&self.table.fill(mark), &values).await?;
        session.batch("COMMIT").await?;
        connection.reuse();
        Ok(relayed)
    }

    /// Deletes events that were published before this time, at most `limit`, and returns how many it
    /// deleted.
    ///
    /// # Errors
    ///
    /// What the server answered.
    pub async fn sweep<P: Pool>(
        &self,
        store: &PostgresStore<P>,
        before: EpochMillis,
        limit: u32,
    ) -> Result<u64, PostgresError> {
        let delete = "DELETE FROM {table} WHERE position IN (SELECT position FROM {table} \
             WHERE published_at < $1 ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED)";
        let mut connection = store.pool().connect().await?;
        let values = [Value::from(before.0), limit.into()];
        let deleted = connection
            .session()?
            .execute(&self.table.fill(delete), &values)
            .await?;
        connection.reuse();
        Ok(deleted)
    }
}

/// Reads a row of [`PENDING`], whose columns are never NULL.
fn read(row: Vec<Cell>) -> Option<(i64, StoredEvent)> {
    let [
        Cell::Int(position),
        Cell::Text(id),
        Cell::Text(kind),
        Cell::Text(aggregate),
        Cell::Text(data),
        Cell::Int(recorded_at),
    ] = <[Cell; 6]>::try_from(row).ok()?
    else {
        return None;
    };
    let event = StoredEvent {
        id,
        kind,
        aggregate,
        data,
        recorded_at: EpochMillis(recorded_at),
    };
    Some((position, event))
}
