//! The store, its settings, and single requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lambda_idempotency::protocol::record::Found;
use lambda_idempotency::{EpochMillis, StoreError};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::columns::decode;
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::schema::VERSION;
use crate::statement::Statements;
use crate::table::{TableName, TableNameError};
use crate::transaction::{Isolation, OpenIds};
use crate::value::{Cell, Value};

mod commit;
mod contract;
pub(crate) mod request;

/// The name of the table, where none is set.
pub const DEFAULT_TABLE: &str = "idempotency";

/// The store keeps records in a table of PostgreSQL.
///
/// Cheap to clone. It takes a pool that you built: `deadpool_postgres::Pool`, or `sqlx::PgPool` with
/// the feature `sqlx`. Every statement is unnamed and keeps no state in its session, so that a proxy
/// which shares connections (RDS Proxy, PgBouncer) may stand between.
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
/// store.create_tables().await?;
/// let once = Idempotency::builder(store).namespace("shop").build()?;
/// # Ok(()) }
/// ```
pub struct PostgresStore<P> {
    pub(crate) inner: Arc<Inner<P>>,
    pub(crate) isolation: Isolation,
}

#[derive(Debug)]
pub(crate) struct Inner<P> {
    pool: P,
    pub(crate) statements: Statements,
    /// Set once the tables were seen to be those of this release.
    checked: OnceCell<()>,
    /// The runs of this process that have a transaction open.
    pub(crate) open: OpenIds,
}

impl<P> Clone for PostgresStore<P> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            isolation: self.isolation,
        }
    }
}

impl<P: fmt::Debug> fmt::Debug for PostgresStore<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("pool", &self.inner.pool)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

impl<P: Pool> PostgresStore<P> {
    /// Makes a store on the table `idempotency` of the database that the pool leads to. Nothing is
    /// sent.
    pub fn new(pool: P) -> Self {
        let table = TableName::default();
        Self::on(pool, &table)
    }

    /// Makes a store on another table, perhaps with a schema: `app.idempotency`.
    ///
    /// # Errors
    ///
    /// When a statement would not take the name without quotes.
    pub fn with_table(pool: P, table: &str) -> Result<Self, TableNameError> {
        Ok(Self::on(pool, &TableName::parse(table)?))
    }

    fn on(pool: P, table: &TableName) -> Self {
        let inner = Inner {
            pool,
            statements: Statements::of(table),
            checked: OnceCell::new(),
            open: OpenIds::default(),
        };
        Self {
            inner: Arc::new(inner),
            isolation: Isolation::default(),
        }
    }

    /// Sets the isolation of the transactions that handlers open (default
    /// [`Isolation::ReadCommitted`]).
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// The pool, for the application's own statements.
    pub fn pool(&self) -> &P {
        &self.inner.pool
    }

    /// Makes the tables, where they are not there. It may run again.
    ///
    /// Run it when you deploy, as a role that may create tables: the function's own role then needs
    /// `SELECT`, `INSERT`, `UPDATE` and `DELETE` alone. [`schema::statements`](crate::schema::statements)
    /// gives the same statements to a tool for migrations.
    ///
    /// # Errors
    ///
    /// What the server answered.
    pub async fn create_tables(&self) -> Result<(), PostgresError> {
        let mut connection = self.inner.pool.connect().await?;
        connection
            .session()?
            .batch(&self.statements().create_tables)
            .await?;
        connection.reuse();
        Ok(())
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
    /// The same in SQL, for `pg_cron`:
    ///
    /// ```sql
    /// SELECT cron.schedule('idempotency', '* * * * *', $$DELETE FROM idempotency WHERE id IN (
    ///   SELECT id FROM idempotency WHERE expiration < extract(epoch FROM now()) - 60
    ///   ORDER BY expiration LIMIT 10000 FOR UPDATE SKIP LOCKED)$$);
    /// ```
    ///
    /// # Errors
    ///
    /// What the server answered.
    pub async fn sweep(&self, now: EpochMillis, limit: u32) -> Result<u64, PostgresError> {
        // A clock that is behind may still count the record as there.
        let now = EpochMillis(
            now.0
                .saturating_sub(MARGIN.as_millis().try_into().unwrap_or(0)),
        );
        let values = [Value::from(now.0.div_euclid(1_000)), limit.into()];
        let mut connection = self.inner.pool.connect().await?;
        let mut deleted = 0;
        for statement in [&self.statements().sweep, &self.statements().sweep_outcomes] {
            deleted += connection.session()?.execute(statement, &values).await?;
        }
        connection.reuse();
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
        let rows = self
            .query(&self.statements().page, &values, deadline)
            .await?;
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
        let rows = self
            .query(&self.statements().estimate, &[], deadline)
            .await?;
        Ok(match rows.first().and_then(|row| row.first()) {
            Some(Cell::Int(count)) => u64::try_from(*count).unwrap_or(0),
            _ => 0,
        })
    }

    fn statements(&self) -> &Statements {
        &self.inner.statements
    }

    /// Takes a connection of the pool, to tables that this release knows.
    pub(crate) async fn connect(&self) -> Result<P::Connection, PostgresError> {
        let mut connection = self.inner.pool.connect().await?;
        let checked = self.inner.checked.get_or_try_init(async || {
            let rows = connection
                .session()?
                .query(&self.inner.statements.version, &[])
                .await?;
            match rows.first().and_then(|row| row.first()) {
                Some(Cell::Int(VERSION)) => Ok(()),
                Some(Cell::Int(found)) => Err(PostgresError::from(Problem::OtherSchema {
                    found: *found,
                    known: VERSION,
                })),
                _ => Err(Problem::NoTable.into()),
            }
        });
        checked.await?;
        Ok(connection)
    }

    /// Runs one statement by itself.
    async fn query(
        &self,
        statement: &str,
        values: &[Value],
        deadline: Instant,
    ) -> Result<Vec<Vec<Cell>>, StoreError> {
        let work = async {
            let mut connection = self.connect().await?;
            match connection.session()?.query(statement, values).await {
                Err(error) if error.problem() == Problem::Unreachable => Err(error),
                // The server answered, and nothing is open on the connection.
                answer => {
                    connection.reuse();
                    answer
                }
            }
        };
        within(deadline, work).await
    }
}

/// The time by which the clocks of two machines may differ.
const MARGIN: Duration = Duration::from_mins(1);

/// Waits for this work until the deadline, and not at all where it has passed.
async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::Timeout);
    }
    match timeout_at(deadline, work).await {
        Ok(answer) => answer.map_err(StoreError::from),
        Err(_) => Err(StoreError::Timeout),
    }
}
