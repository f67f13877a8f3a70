//! The store, its settings, and single requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lambda_idempotency::protocol::record::Found;
use lambda_idempotency::{EpochMillis, StoreError};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use crate::columns::decode;
use crate::driver::Pool;
use crate::error::{PostgresError, Problem};
use crate::store::request::Statement;
use crate::store::single::Over;
use crate::table::{TableName, TableNameError, Tables};
use crate::transaction::{Isolation, OpenIds};
use crate::value::{Cell, Value, first};

use ready::Ready;
pub(crate) use ready::find;

mod commit;
mod contract;
pub(crate) mod ready;
pub(crate) mod request;
mod single;

/// The name of the table, where none is set.
pub const DEFAULT_TABLE: &str = "idempotency";

/// The longest wait of all: a clock can't hold every [`Duration`].
pub(crate) const LONGEST: Duration = Duration::from_hours(24);

/// The store keeps records in a table of PostgreSQL.
///
/// Cheap to clone. It takes a pool that you built: `deadpool_postgres::Pool`, or `sqlx::PgPool` with
/// the feature `sqlx`. Each statement is in a transaction, unnamed, and keeps no state in its session, so
/// that a proxy which shares connections by transaction (`PgBouncer`) may stand between.
///
/// A run sends its statements over its open transaction's connection, or over the pool. If the pool is
/// full, it takes one connection that the store opens beside it.
///
/// ```no_run
/// use lambda_idempotency::Idempotency;
/// use lambda_idempotency_postgres::PostgresStore;
///
/// # #[cfg(feature = "tokio-postgres")]
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let config = "postgres://app:secret@127.0.0.1/shop".parse::<tokio_postgres::Config>()?;
/// let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
/// let store = PostgresStore::new(deadpool_postgres::Pool::builder(manager).max_size(8).build()?);
/// let once = Idempotency::builder(store).namespace("shop").build()?;
/// # Ok(()) }
/// ```
pub struct PostgresStore<P: Pool> {
    pub(crate) inner: Arc<Inner<P>>,
    pub(crate) isolation: Isolation,
    pub(crate) timeout: Duration,
}

pub(crate) struct Inner<P: Pool> {
    pool: P,
    table: TableName,
    ready: OnceCell<Ready>,
    /// The tables beside its own: of outboxes.
    tables: Tables,
    /// The runs of this process that have a transaction open.
    pub(crate) open: Arc<OpenIds>,
    /// The connection for a run's statements while the pool has none left.
    reserved: Mutex<single::Reserved<P>>,
}

impl<P: Pool> Clone for PostgresStore<P> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            isolation: self.isolation,
            timeout: self.timeout,
        }
    }
}

impl<P: Pool> fmt::Debug for PostgresStore<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("pool", &self.inner.pool)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

impl<P: Pool> PostgresStore<P> {
    /// Creates a store on the table `idempotency` of the database that the pool leads to. Nothing is
    /// sent.
    pub fn new(pool: P) -> Self {
        Self::on(pool, TableName::default())
    }

    /// Creates a store on another table, perhaps with a schema: `app.idempotency`. Set it before a
    /// service goes live: records in another table aren't found.
    ///
    /// # Errors
    ///
    /// When a statement would not take the name without quotes.
    pub fn with_table(pool: P, table: &str) -> Result<Self, TableNameError> {
        Ok(Self::on(pool, TableName::parse(table)?))
    }

    fn on(pool: P, table: TableName) -> Self {
        let inner = Inner {
            pool,
            table,
            ready: OnceCell::new(),
            tables: Tables::default(),
            open: Arc::default(),
            reserved: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
            isolation: Isolation::default(),
            timeout: Duration::from_secs(10),
        }
    }

    /// Sets the isolation of the transactions that handlers open (default
    /// [`Isolation::ReadCommitted`]).
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets how long the store waits for a connection and for the server where no deadline says so: to
    /// open a transaction, in [`create_tables`](Self::create_tables) and [`sweep`](Self::sweep)
    /// (default: 10 s; at most a day). A duplicate that may wait for another run has that time beside.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST);
        self
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.inner.tables
    }

    /// The pool, for the application's own statements.
    pub fn pool(&self) -> &P {
        &self.inner.pool
    }

    /// Deletes records, and outcomes beside them, whose `expiration` has passed: at most `limit` of
    /// each, the oldest first. Returns how many it deleted; call it again while that is `limit` or
    /// more.
    ///
    /// Rows that are locked are left for the next time, and runs that begin meanwhile don't wait. Run
    /// it on a schedule: an expired record that is still there changes nothing that a caller can
    /// observe.
    ///
    /// ```no_run
    /// use std::time::SystemTime;
    ///
    /// use lambda_idempotency_postgres::{Pool, PostgresError, PostgresStore};
    ///
    /// async fn sweep<P: Pool>(store: &PostgresStore<P>) -> Result<(), PostgresError> {
    ///     while store.sweep(SystemTime::now().into(), 1_000).await? >= 1_000 {}
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// When the pool gives no connection, or the server refuses a statement or doesn't answer in time.
    pub async fn sweep(&self, now: EpochMillis, limit: u32) -> Result<u64, PostgresError> {
        // A clock that is behind may still count the record as there.
        let now = EpochMillis(
            now.0
                .saturating_sub(MARGIN.as_millis().try_into().unwrap_or(0)),
        );
        let values = [Value::from(now.0.div_euclid(1_000)), limit.into()];
        let mut deleted = 0;
        let sweeps: [Statement; 2] = [|all| &all.sweep, |all| &all.sweep_outcomes];
        for sweep in sweeps {
            let work = self.answer(Over::Pool, sweep, &values, Instant::now() + self.timeout);
            match first(&self.in_time(work).await?) {
                Some(Cell::Int(count)) => deleted += count.unsigned_abs(),
                _ => return Err(Problem::Refused.into()),
            }
        }
        Ok(deleted)
    }

    /// Reads records in the order of their ids: those that follow `after`, at most `limit`. A last
    /// page is shorter. For tools that look at all of them.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use lambda_idempotency::StoreError;
    /// use lambda_idempotency_postgres::{Pool, PostgresStore};
    /// use tokio::time::Instant;
    ///
    /// async fn count<P: Pool>(store: &PostgresStore<P>) -> Result<usize, StoreError> {
    ///     let (mut count, mut after) = (0, String::new());
    ///     loop {
    ///         let deadline = Instant::now() + Duration::from_secs(10);
    ///         let page = store.page(&after, 1_000, deadline).await?;
    ///         let Some((last, _)) = page.last() else {
    ///             return Ok(count);
    ///         };
    ///         count += page.len();
    ///         after.clone_from(last);
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As those of a request.
    pub async fn page(
        &self,
        after: &str,
        limit: u32,
        deadline: Instant,
    ) -> Result<Vec<(String, Found)>, StoreError> {
        let values = [Value::from(after), limit.into()];
        let rows = self.query(Over::Pool, |all| &all.page, &values, deadline);
        let rows = rows.await?;
        let read = |row: &Vec<Cell>| match row.split_first() {
            Some((Cell::Text(id), columns)) => Some((id.clone(), decode(columns)?)),
            _ => None,
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    /// Estimates how many records the table has, from the statistics that the server keeps: 0 where
    /// it has none yet.
    ///
    /// # Errors
    ///
    /// As those of a request.
    pub async fn estimated_records(&self, deadline: Instant) -> Result<u64, StoreError> {
        let rows = self.query(Over::Pool, |all| &all.estimate, &[], deadline);
        Ok(match first(&rows.await?) {
            Some(Cell::Int(count)) => u64::try_from(*count).unwrap_or(0),
            _ => 0,
        })
    }
}

/// The time by which the clocks of two machines may differ.
const MARGIN: Duration = Duration::from_mins(1);
