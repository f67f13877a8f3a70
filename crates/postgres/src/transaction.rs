//! The open transaction: the handler reads and writes in it, and its outcome is stored in it.

use std::fmt;
use std::ops::{Deref, DerefMut};

use lambda_idempotency::StoreError;
use lambda_idempotency::store::transaction::WriteError;

use crate::driver::Pool;
use crate::error::{PostgresError, Problem};
use crate::sql::Sql;
use crate::store::ready::READ_COMMITTED;
use crate::table::Tables;
use crate::value::Cell;

mod begin;
mod ids;
mod slot;
mod transact;

pub(crate) use ids::OpenIds;
pub(crate) use slot::{Footing, Slot, Xid};

/// The isolation of a transaction that a handler opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it began (default).
    #[default]
    ReadCommitted,
    /// All statements see what was committed before the first one.
    RepeatableRead,
    /// The transaction has the effect that it would have alone.
    Serializable,
}

impl Isolation {
    /// `DEFERRABLE` is the mark of [`BEGUN`](crate::statement::BEGUN).
    fn begin(self) -> &'static str {
        match self {
            Self::ReadCommitted => READ_COMMITTED,
            Self::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ, DEFERRABLE",
            Self::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE, DEFERRABLE",
        }
    }
}

/// An open transaction, for the handler's own statements:
/// [`PostgresStore::transaction`](crate::PostgresStore::transaction) and [`PostgresStore::transact`](crate::PostgresStore::transact) give it.
///
/// It derefs to what the pool's driver runs statements on: `tokio_postgres::Client`, or
/// `sqlx::PgConnection`. Its end is the engine's task: don't send `COMMIT` or `ROLLBACK` yourself,
/// as the driver's own nested transactions do. After a `COMMIT` of the handler's, a fresh key of the claimless
/// form gives [`Error::Unreadable`](lambda_idempotency::Error::Unreadable) until its retention is over, whatever
/// the handler returns, since what was written must not be written again. Under a claim, or over a released or
/// expired record, a handler that returns a result gets this, too; an error lets the key run again, and it
/// commits twice. A savepoint (`SAVEPOINT … `, `ROLLBACK TO …`) is yours.
///
/// The record is written as the role that the handler leaves: after `SET LOCAL ROLE`, send `RESET ROLE` at the end, or
/// grant that role the privileges on the tables. A `SET` without `LOCAL` stays on the pool's connection.
///
/// # Cancellation
///
/// A statement that is dropped before its answer leaves the transaction open, and its connection is
/// closed with the run unless the handler goes on.
pub struct Transaction<P: Pool> {
    lent: slot::Lent<P>,
    tables: Tables,
}

impl<P: Pool> Transaction<P> {
    /// Runs an [`Sql`] statement, and returns how many rows it changed.
    ///
    /// # Errors
    ///
    /// When the server refuses the statement or can't be reached; the transaction can't commit then,
    /// unless the handler has set a savepoint. [`Problem::Rows`] when the number isn't the one that the
    /// statement [must](Sql::affects) change: return it from the handler, which rolls back.
    pub async fn apply(&mut self, sql: &Sql) -> Result<u64, PostgresError> {
        let rows = sql.execute(&mut *self.lent, &self.tables).await?;
        match sql.affects {
            Some(expected) if expected != rows => Err(Problem::Rows { expected, rows }.into()),
            _ => Ok(rows),
        }
    }

    /// Runs a statement of this crate's own.
    pub(crate) async fn rows(&mut self, sql: &Sql) -> Result<Vec<Vec<Cell>>, PostgresError> {
        sql.query(&mut *self.lent, &self.tables).await
    }
}

impl<P: Pool> Deref for Transaction<P> {
    type Target = P::Target;

    fn deref(&self) -> &P::Target {
        &self.lent
    }
}

impl<P: Pool> DerefMut for Transaction<P> {
    fn deref_mut(&mut self) -> &mut P::Target {
        &mut self.lent
    }
}

impl<P: Pool> fmt::Debug for Transaction<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

/// The reason why a handler has no open transaction. Return it from the handler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Another run of the same key is under way, or was done before. The engine answers with what its
    /// record says, whatever error the handler makes of this one.
    #[error(
        "another run of this key is under way, or was done before: return this error from the handler, and the engine answers for it"
    )]
    Met,
    /// PostgreSQL didn't open it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The handler has returned already.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<PostgresError> for TransactionError {
    fn from(error: PostgresError) -> Self {
        Self::Store(error.into())
    }
}
