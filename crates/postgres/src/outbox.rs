//! Publishes events if and only if their transaction commits.
//!
//! A message that is sent beside a transaction is lost when the process dies between the two, or
//! announces a change that never happened. With an outbox, the event is a row of the transaction, and a
//! relay publishes it: at least once, with the same id each time, so that its consumer recognises a
//! repetition.
//!
//! ```
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::store::transaction::WriteError;
//! use lambda_idempotency_postgres::outbox::{Event, Outbox, Relayed, StoredEvent};
//! use lambda_idempotency_postgres::{Pool, PostgresError, PostgresStore, Sql};
//! use serde_json::json;
//!
//! fn place(claim: &Claim, outbox: &Outbox) -> Result<String, WriteError> {
//!     let order = claim.derive_uuid("order");
//!     claim.write(Sql::new("INSERT INTO orders (id) VALUES ($1)").bind(order.as_str()))?;
//!     outbox.emit(claim, &Event::new("order.created", &order), &json!({ "order": order }))?;
//!     Ok(order)
//! }
//!
//! #[derive(Debug, thiserror::Error)]
//! enum RelayError {
//!     #[error("{0} events could not be published")]
//!     Unpublished(usize),
//!     #[error(transparent)]
//!     Postgres(#[from] PostgresError),
//! }
//!
//! # async fn send(_: &StoredEvent) -> std::io::Result<()> { Ok(()) }
//! /// Runs on a schedule, or in a loop.
//! async fn relay<P: Pool>(store: &PostgresStore<P>, outbox: &Outbox) -> Result<(), RelayError> {
//!     let publish = async |event: &StoredEvent| {
//!         let sent = send(event).await; // to a queue or a topic
//!         sent.inspect_err(|error| eprintln!("event {} is not published: {error}", event.id))
//!     };
//!     loop {
//!         match outbox.relay(store, 100, publish).await? {
//!             Relayed { published: 0, failed: 0, .. } => return Ok(()),
//!             Relayed { published: 0, failed, .. } => return Err(RelayError::Unpublished(failed)),
//!             Relayed { .. } => {} // more may wait
//!         }
//!     }
//! }
//! ```

use std::fmt;
use std::time::SystemTime;

pub use lambda_idempotency::store::transaction::Event;
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{Claim, EpochMillis};
use serde::Serialize;
use tokio::time::Instant;

use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::sql::Sql;
use crate::store::PostgresStore;
use crate::store::ready::{READ_COMMITTED, lock_until, locking};
use crate::table::{TableName, TableNameError};
use crate::value::{Cell, Value};

/// An outbox adds events to its table, in which they wait for a relay.
#[derive(Clone, Debug)]
pub struct Outbox {
    table: TableName,
}

/// A relay reads events in this form. Its `Debug` shows its id and type alone.
#[derive(Clone, PartialEq, Eq)]
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

impl fmt::Debug for StoredEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEvent")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// The result of one call of [`Outbox::relay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "nothing else reports the events that could not be published"]
#[non_exhaustive]
pub struct Relayed {
    /// The number of events that were published and marked.
    pub published: usize,
    /// The number of events whose publication failed: they stay, and those behind them in their
    /// aggregate wait.
    pub failed: usize,
}

/// Adds an event. Transactions with events of one aggregate go on one after the other from here, so that
/// their positions are in the order of their commits. The lock is of the table itself: sessions may name it differently.
const ADD: &str = "WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended($3, $t${table}$t$::regclass::oid::bigint))) \
     INSERT INTO {table} (id, type, aggregate, data, recorded_at) SELECT $1, $2, $3, $4, $5 FROM turn";

/// An event that waits, and none before it in its aggregate.
const FIRST: &str = "published_at IS NULL AND NOT EXISTS (SELECT FROM {table} earlier \
     WHERE earlier.aggregate = event.aggregate AND earlier.position < event.position \
     AND earlier.published_at IS NULL)";

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

    /// Returns the statements that make the table. They may run again. Run them in a migration, not at each start: each
    /// run waits for open transactions that have added events, and transactions that add events meanwhile wait for it.
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
    ) -> Result<Sql, WriteError> {
        let id = claim.event_id(&event.kind, &event.aggregate, &event.name);
        let data = serde_json::to_string(data);
        let data = data.map_err(|error| WriteError::Data(error.to_string()))?;
        Ok(self
            .statement(ADD)
            .bind(id)
            .bind(event.kind.as_str())
            .bind(event.aggregate.as_str())
            .bind(data)
            .bind(claim.now().0)
            .affects(1))
    }

    /// Adds an event to the writes of a claim. Beside steps or a saga, emit it where [`Claim::write`] says.
    ///
    /// # Errors
    ///
    /// [`WriteError::SameTarget`], when the claim has an event of this type, aggregate and name: give the second
    /// one another [name](Event::name). Another error, when the data can't be serialised, or the event can't join
    /// the transaction.
    pub fn emit<T: Serialize + ?Sized>(
        &self,
        claim: &Claim,
        event: &Event,
        data: &T,
    ) -> Result<(), WriteError> {
        claim.write(self.event(claim, event, data)?)
    }

    /// A statement on the outbox's table.
    fn statement(&self, statement: impl Into<String>) -> Sql {
        Sql {
            table: Some(self.table.clone()),
            ..Sql::new(statement)
        }
    }

    /// Publishes events that wait, at most `limit`, and marks each: the first of each aggregate, those
    /// whose publication failed before at the end. Call it again until nothing was published.
    ///
    /// The errors of `publish` are only counted: log them there, and report [`Relayed::failed`]. An event that
    /// can't be published is tried again in each call, without an end.
    ///
    /// Each event is published in its own transaction, which locks it. Any number of relays may run
    /// at once: each leaves the events that another is publishing, and those behind them. An event whose
    /// relay died before it marked it is published again, with the same id. A publication that outlasts the
    /// role's `idle_in_transaction_session_timeout` loses the lock: another relay may publish its event, too.
    ///
    /// # Errors
    ///
    /// When the pool gives no connection, or the server refuses a statement or doesn't answer in time:
    /// the last event may be published again.
    ///
    /// # Cancellation
    ///
    /// Dropped, it closes its connection; the event that was published last is published again.
    pub async fn relay<P: Pool, E>(
        &self,
        store: &PostgresStore<P>,
        limit: u32,
        publish: impl AsyncFn(&StoredEvent) -> Result<(), E>,
    ) -> Result<Relayed, PostgresError> {
        let mut relayed = Relayed::default();
        for position in store.in_time(self.waiting(store, limit)).await? {
            let locked = store.in_time(self.lock(store, &position)).await?;
            let Some((connection, event)) = locked else {
                continue;
            };
            let is_published = publish(&event).await.is_ok();
            let marked = self.mark(Some(connection), store, &position, is_published);
            if let Err(error) = store.in_time(marked).await {
                // The connection is gone, and the event is published all the same.
                if error.problem() != Problem::Unreachable {
                    return Err(error);
                }
                let marked = self.mark(None, store, &position, is_published);
                store.in_time(marked).await?;
            }
            if is_published {
                relayed.published += 1;
            } else {
                relayed.failed += 1;
            }
        }
        Ok(relayed)
    }

    /// The positions of events that may be published.
    async fn waiting<P: Pool>(
        &self,
        store: &PostgresStore<P>,
        limit: u32,
    ) -> Result<Vec<Value>, PostgresError> {
        let select = self.statement(format!(
            "SELECT position FROM {{table}} event WHERE {FIRST} \
             ORDER BY failed_at NULLS FIRST, position LIMIT $1"
        ));
        let mut connection = begin(store).await?;
        let session = connection.session()?;
        let rows = select.bind(limit).query(session, store.tables()).await?;
        session.batch("COMMIT").await?;
        connection.reuse();
        let positions = rows.into_iter().flatten().filter_map(|cell| match cell {
            Cell::Int(position) => Some(position.into()),
            _ => None,
        });
        Ok(positions.collect())
    }

    /// Opens a transaction with this event locked; `None` where another relay has it, or has had it.
    async fn lock<P: Pool>(
        &self,
        store: &PostgresStore<P>,
        position: &Value,
    ) -> Result<Option<(P::Connection, StoredEvent)>, PostgresError> {
        let select = self.statement(format!(
            "SELECT id, type, aggregate, data, recorded_at FROM {{table}} event \
             WHERE position = $1 AND {FIRST} FOR UPDATE SKIP LOCKED"
        ));
        let select = select.bind(position.clone());
        let mut connection = begin(store).await?;
        let session = connection.session()?;
        let rows = select.query(session, store.tables()).await?;
        if let Some(event) = rows.into_iter().next().and_then(read) {
            return Ok(Some((connection, event)));
        }
        session.batch("ROLLBACK").await?;
        connection.reuse();
        Ok(None)
    }

    /// Notes that an event was published, or that it could not be: in the transaction that has it
    /// locked, where that is still there.
    async fn mark<P: Pool>(
        &self,
        connection: Option<P::Connection>,
        store: &PostgresStore<P>,
        position: &Value,
        is_published: bool,
    ) -> Result<(), PostgresError> {
        let column = if is_published {
            "published_at"
        } else {
            "failed_at"
        };
        let mark = self.statement(format!(
            "UPDATE {{table}} SET {column} = $2 WHERE position = $1 AND published_at IS NULL"
        ));
        let mut connection = match connection {
            Some(connection) => connection,
            None => begin(store).await?,
        };
        let session = connection.session()?;
        let now = EpochMillis::from(SystemTime::now());
        let mark = mark.bind(position.clone()).bind(now.0);
        mark.execute(session, store.tables()).await?;
        session.batch("COMMIT").await?;
        connection.reuse();
        Ok(())
    }

    /// Deletes events that were published before this time, at most `limit`, and returns how many it
    /// deleted. While an event's row is there, a later run of its key, after the record has expired, can't
    /// add the event again, and fails (`23505`).
    ///
    /// # Errors
    ///
    /// When the pool gives no connection, or the server refuses a statement or doesn't answer in time.
    pub async fn sweep<P: Pool>(
        &self,
        store: &PostgresStore<P>,
        before: EpochMillis,
        limit: u32,
    ) -> Result<u64, PostgresError> {
        let delete = self.statement(
            "DELETE FROM {table} WHERE position IN (SELECT position FROM {table} \
             WHERE published_at < $1 ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
        );
        let delete = delete.bind(before.0).bind(limit);
        let work = async {
            let mut connection = begin(store).await?;
            let session = connection.session()?;
            let deleted = delete.execute(session, store.tables()).await?;
            session.batch("COMMIT").await?;
            connection.reuse();
            Ok(deleted)
        };
        store.in_time(work).await
    }
}

/// Begins a transaction, in which no statement waits for a lock longer than its caller does for an answer.
async fn begin<P: Pool>(store: &PostgresStore<P>) -> Result<P::Connection, PostgresError> {
    let deadline = Instant::now() + store.timeout;
    let mut connection = store.free(deadline).await?;
    let begin = locking(READ_COMMITTED, lock_until(deadline));
    connection.session()?.batch(&begin).await?;
    Ok(connection)
}

/// Reads an event's row, whose columns are never NULL.
fn read(row: Vec<Cell>) -> Option<StoredEvent> {
    let [
        Cell::Text(id),
        Cell::Text(kind),
        Cell::Text(aggregate),
        Cell::Text(data),
        Cell::Int(recorded_at),
    ] = <[Cell; 5]>::try_from(row).ok()?
    else {
        return None;
    };
    Some(StoredEvent {
        id,
        kind,
        aggregate,
        data,
        recorded_at: EpochMillis(recorded_at),
    })
}
