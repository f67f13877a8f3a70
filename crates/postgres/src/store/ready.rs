//! The questions that the store asks the server once: where the tables are, and whether they are those
//! of this release.

use std::time::Duration;

use lambda_idempotency::StoreError;
use tokio::time::{Instant, timeout_at};

use super::{LONGEST, PostgresStore};
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::schema::{self, VERSION};
use crate::statement::Statements;
use crate::table::TableName;
use crate::value::{Cell, first};

/// The isolation of the store's own statements. `DEFERRABLE` is the mark of [`BEGUN`](crate::statement::BEGUN).
pub(crate) const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, DEFERRABLE";

/// Finds a table as a session that has just begun does, by the role's settings, the database's, and those
/// in the pool's URL: `search_path`, and `role`. What the session has SET doesn't count, its role among it, which is the same again when the
/// statement ends, also where nobody waits for its answer.
const FIND: &str = "WITH before AS MATERIALIZED (SELECT current_setting('role') AS role, set_config('role', NULL, true) AS now) \
     SELECT (SELECT quote_ident(n.nspname) FROM pg_settings s \
     CROSS JOIN LATERAL unnest(string_to_array(s.reset_val, ',')) WITH ORDINALITY AS path(name, place) \
     JOIN pg_namespace n ON n.nspname = CASE WHEN btrim(path.name, ' \"') = '$user' THEN current_user::text \
     WHEN path.name LIKE '%\"%' THEN btrim(path.name, ' \"') ELSE lower(btrim(path.name)) END \
     JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $1 \
     WHERE s.name = 'search_path' AND has_schema_privilege(current_user, n.oid, 'USAGE') \
     ORDER BY path.place LIMIT 1), set_config('role', before.role, true) FROM before";

/// Tells whether the database has room for every character, and whether the server can notice in the middle
/// of a statement that its client is gone, and isn't told to do so by settings of its own.
const SERVER: &str = "SELECT current_setting('server_encoding') IN ('UTF8', 'SQL_ASCII'), \
     coalesce(current_setting('client_connection_check_interval', true) = '0' \
     AND version() LIKE '%linux%', false)";

/// Has the server notice so, in milliseconds: what a client has given up ends then, with its locks.
const NOTICE: &str = "; SET LOCAL client_connection_check_interval = 100";

/// The statements, with the tables' schema in them.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) statements: Statements,
    can_notice: bool,
}

impl Ready {
    /// Has a `COMMIT` that is sent next carried out, whatever becomes of its client.
    pub(crate) async fn carry_out<S: Session>(&self, session: &mut S) -> Result<(), PostgresError> {
        if self.can_notice {
            let end = "SET LOCAL client_connection_check_interval = 0";
            session.batch(end).await?;
        }
        Ok(())
    }

    /// Has it carried out by an `UPDATE`, which is on its way anyway.
    pub(crate) fn carrying_out(&self, mut update: String) -> String {
        if self.can_notice {
            update.push_str(" RETURNING set_config('client_connection_check_interval', '0', true)");
        }
        update
    }

    /// Begins a transaction, in which the server waits for no lock longer than this.
    pub(crate) fn begin(&self, begin: &str, lock: Option<Duration>) -> String {
        let mut begin = lock.map_or_else(|| begin.to_owned(), |lock| locking(begin, lock));
        if self.can_notice {
            begin.push_str(NOTICE);
        }
        begin
    }
}

/// Begins a transaction, in which the server waits for no lock longer than this.
pub(crate) fn locking(begin: &str, lock: Duration) -> String {
    format!("{begin}; SET LOCAL lock_timeout = {}", millis(lock))
}

/// A time as PostgreSQL's settings take it, where 0 would be none.
pub(crate) fn millis(time: Duration) -> String {
    let time = time.clamp(Duration::from_millis(1), LONGEST);
    time.as_millis().to_string()
}

/// The time for which a statement may wait for locks, so that its answer comes before this.
pub(crate) fn lock_until(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left * 7 / 8
}

/// Finds the schema of a table that has none in its name, within a transaction; `None` where there is no
/// such table.
pub(crate) async fn find<S: Session>(
    session: &mut S,
    table: &TableName,
) -> Result<Option<TableName>, PostgresError> {
    let (None, name) = table.parts() else {
        return Ok(Some(table.clone()));
    };
    let found = session.query(FIND, &[name.into()]).await?;
    Ok(match first(&found) {
        Some(Cell::Text(schema)) => Some(table.within(schema)),
        _ => None,
    })
}

impl<P: Pool> PostgresStore<P> {
    /// The statements, once the tables were seen to be those of this release.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<&Ready, PostgresError> {
        if let Some(ready) = self.inner.ready.get() {
            return Ok(ready);
        }
        let look = async || {
            let mut connection = self.inner.pool.connect().await?;
            let session = connection.session()?;
            let begin = locking(READ_COMMITTED, lock_until(deadline));
            session.batch(&begin).await?;
            let ready = self.look(session).await?;
            session.batch("END").await?;
            connection.reuse();
            Ok(ready)
        };
        // One call looks, and others wait for it.
        let looked = Box::pin(self.inner.ready.get_or_try_init(look));
        self.in_turn(deadline, looked).await
    }

    async fn look(&self, session: &mut P::Target) -> Result<Ready, PostgresError> {
        let rows = session.query(SERVER, &[]).await?;
        let row = rows.first().map(Vec::as_slice).unwrap_or_default();
        let says = |column: usize| row.get(column) == Some(&Cell::Bool(true));
        // An outcome with another character would be refused once its handler has run, at each delivery.
        if !says(0) {
            return Err(Problem::Encoding.into());
        }
        let can_notice = says(1);
        if can_notice {
            session.batch(NOTICE).await?;
        }
        let table = find(session, &self.inner.table).await?;
        let statements = Statements::of(&table.ok_or(Problem::NoTable)?);
        let rows = session.query(&statements.version, &[]).await?;
        match first(&rows) {
            Some(Cell::Int(VERSION)) => {}
            Some(Cell::Int(found)) => {
                return Err(PostgresError::from(Problem::OtherSchema {
                    found: *found,
                    known: VERSION,
                }));
            }
            _ => return Err(Problem::NoTable.into()),
        }
        Ok(Ready {
            statements,
            can_notice,
        })
    }

    /// Makes the tables, where they are not there. It may run again.
    ///
    /// Run it when you deploy, as a role that may create tables: the function's own role then needs
    /// `SELECT`, `INSERT`, `UPDATE` and `DELETE` alone. [`schema::statements`](crate::schema::statements)
    /// gives the same statements to a tool for migrations.
    ///
    /// If the tables and their version are there, it only looks at them, which a role that may not create any can do, too.
    /// Calls at the same time create them one after the other.
    ///
    /// # Errors
    ///
    /// When the pool gives no connection, the server refuses a statement or doesn't answer in time, or the
    /// tables are those of another release ([`Problem::OtherSchema`]).
    pub async fn create_tables(&self) -> Result<(), PostgresError> {
        let soon = || Instant::now() + self.timeout;
        match self.ready(soon()).await {
            Err(error) if error.problem() == Problem::NoTable => {}
            looked => return looked.map(drop),
        }
        self.in_time(self.make()).await?;
        self.ready(soon()).await.map(drop)
    }

    async fn make(&self) -> Result<(), PostgresError> {
        let (_, name) = self.inner.table.parts();
        let begin = format!(
            "{}; SET LOCAL role TO DEFAULT; SET LOCAL search_path TO DEFAULT; \
             SELECT pg_advisory_xact_lock(hashtextextended('{name}', 0))",
            locking(READ_COMMITTED, self.timeout)
        );
        let mut connection = self.inner.pool.connect().await?;
        let session = connection.session()?;
        session.batch(&begin).await?;
        let there = "SELECT to_regclass('{table}') IS NOT NULL AND to_regclass('{table}_outcomes') IS NOT NULL \
             AND to_regclass('{table}_schema') IS NOT NULL";
        let rows = session.query(&self.inner.table.fill(there), &[]).await?;
        let statements = if first(&rows) == Some(&Cell::Bool(true)) {
            // Another process made them meanwhile, or they have lost their version.
            schema::version(&self.inner.table)
        } else {
            schema::of(&self.inner.table)
        };
        session.batch(&statements).await?;
        session.batch("COMMIT").await?;
        connection.reuse();
        Ok(())
    }

    /// Waits for what has no deadline of its own.
    pub(crate) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<T, PostgresError> {
        let answer = timeout_at(Instant::now() + self.timeout, work).await;
        answer.unwrap_or_else(|_| Err(Problem::NoAnswer.into()))
    }
}

/// Waits for this work until the deadline, and not at all where it has passed.
pub(super) async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::NotSent);
    }
    match timeout_at(deadline, work).await {
        Ok(answer) => answer.map_err(StoreError::from),
        Err(_) => Err(StoreError::Timeout),
    }
}
