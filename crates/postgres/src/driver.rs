//! The interface of a driver for the store: a pool, its connections, and statements on them.

use std::fmt::Debug;
use std::future::Future;
use std::ops::DerefMut;

use crate::error::PostgresError;
use crate::value::{Cell, Value};

#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

/// A pool of connections: `deadpool_postgres::Pool` (feature `tokio-postgres`) or `sqlx::PgPool`
/// (feature `sqlx`). No other type implements it.
pub trait Pool: Clone + Debug + Send + Sync + 'static + private::Sealed {
    /// The connection on which a handler runs its statements, within an open transaction:
    /// `tokio_postgres::Client` or `sqlx::PgConnection`.
    type Target: Session;

    #[doc(hidden)]
    type Connection: Connection<Target = Self::Target>;

    #[doc(hidden)]
    type Reserved: DerefMut<Target = Self::Target> + Send + 'static;

    #[doc(hidden)]
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, PostgresError>> + Send;

    /// Opens a connection that isn't one of the pool's.
    #[doc(hidden)]
    fn reserve(&self) -> impl Future<Output = Result<Self::Reserved, PostgresError>> + Send;

    /// Returns whether the pool has neither a free connection nor room for another one.
    #[doc(hidden)]
    fn is_full(&self) -> bool;
}

/// A connection of the pool. One that is dropped is closed, and the server rolls back what is open on
/// it.
#[doc(hidden)]
pub trait Connection: Send + 'static {
    type Target: Session;

    /// # Errors
    ///
    /// When the connection was given away already.
    fn session(&mut self) -> Result<&mut Self::Target, PostgresError>;

    /// Returns the connection to its pool. Nothing may be open or under way on it.
    fn reuse(self);
}

/// Runs statements, each unnamed.
#[doc(hidden)]
pub trait Session: Send + 'static {
    fn query(
        &mut self,
        statement: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Vec<Cell>>, PostgresError>> + Send;

    /// Counts the rows that the statement changed.
    fn execute(
        &mut self,
        statement: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<u64, PostgresError>> + Send;

    /// Runs statements that have no parameters and give no rows.
    fn batch(&mut self, statements: &str)
    -> impl Future<Output = Result<(), PostgresError>> + Send;

    /// Runs statements without parameters, then this one: on their way together where the driver can, so
    /// that this one is run even if the server refuses the others.
    fn begin(
        &mut self,
        begin: &str,
        statement: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Vec<Cell>>, PostgresError>> + Send;

    /// Runs one statement in its own transaction. A proxy that hands connections out by
    /// transaction keeps its parts together.
    fn alone(
        &mut self,
        begin: &str,
        statement: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Vec<Cell>>, PostgresError>> + Send;
}

/// Ends a transaction of one statement. It rolls back if the statement has failed.
const END: &str = "END";

pub(crate) mod private {
    pub trait Sealed {}
}
