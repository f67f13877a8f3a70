//! What the store asks of a driver: a pool, and connections that run statements.

use std::fmt::Debug;
use std::future::Future;

use crate::error::PostgresError;
use crate::value::{Cell, Value};

#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

/// A pool of connections: `deadpool_postgres::Pool` (feature `tokio-postgres`) or `sqlx::PgPool`
/// (feature `sqlx`). No other type implements it.
pub trait Pool: Clone + Debug + Send + Sync + 'static + private::Sealed {
    /// What a handler runs its statements on, within an open transaction: `tokio_postgres::Client` or
    /// `sqlx::PgConnection`.
    type Target: Send + 'static;

    #[doc(hidden)]
    type Connection: Connection<Target = Self::Target>;

    #[doc(hidden)]
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, PostgresError>> + Send;
}

/// A connection. One that is dropped is closed, and the server rolls back what is open on it.
#[doc(hidden)]
pub trait Connection: Send + 'static {
    type Target;

    /// Runs one statement, unnamed.
    fn query(
        &mut self,
        statement: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Vec<Cell>>, PostgresError>> + Send;

    /// Runs one statement, unnamed, and counts the rows that it changed.
    fn execute(
        &mut self,
        statement: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<u64, PostgresError>> + Send;

    /// Runs statements that have no parameters and give no rows.
    fn batch(&mut self, statements: &str)
    -> impl Future<Output = Result<(), PostgresError>> + Send;

    /// Runs a statement without parameters, then this one, on their way together where the driver can.
    fn begin(
        &mut self,
        begin: &str,
        statement: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Vec<Cell>>, PostgresError>> + Send;

    fn target_mut(&mut self) -> Option<&mut Self::Target>;

    /// Gives the connection back to its pool. Nothing may be open or under way on it.
    fn reuse(self);
}

pub(crate) mod private {
    pub trait Sealed {}
}
