//! Looks whether a transaction of PostgreSQL holds a key: what it has written is not seen until it
//! commits, but what it has locked is.

use std::time::Duration;

use lambda_idempotency::protocol::record::Found;
use lambda_idempotency::{RecordId, StoreError};
use sqlx::{AssertSqlSafe, PgPool};

use crate::connect::{Place, Records};
use crate::context::Context;
use crate::failure::Failure;

/// Whether a transaction that is open holds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    No,
    /// The record, or the place of one that isn't there.
    Record,
    /// The whole table.
    Table,
    /// It can't be tried, for this reason.
    Unknown(&'static str),
}

impl Held {
    /// Describes the transaction that holds the record, where one is known.
    pub(crate) fn words(self) -> Option<&'static str> {
        match self {
            Self::Record => Some(
                "a transaction that is open holds the record: one that a handler runs in, or somebody's own",
            ),
            Self::Table => Some(
                "a transaction that is open has locked the whole table: a change of its schema, a new index, or somebody's LOCK",
            ),
            Self::No | Self::Unknown(_) => None,
        }
    }
}

/// The longest wait for a lock: a plain write is over by then.
const WAIT: &str = "SET LOCAL lock_timeout = '500ms'";

/// Has a transaction find the table as the store does, whatever others have left in a session that a
/// proxy shares.
pub(crate) const AS_THE_STORE: &str = "SET LOCAL role TO DEFAULT; SET LOCAL search_path TO DEFAULT";

/// Tries to lock the record, or the place of one that isn't there, and takes that back.
///
/// # Errors
///
/// When the server doesn't answer.
pub(crate) async fn held(
    records: &Records,
    id: &RecordId,
    found: Option<&Found>,
    context: &Context,
) -> Result<Held, Failure> {
    let Place::Postgres(store) = &records.place else {
        return Ok(Held::No);
    };
    let table = context.global().postgres_table();
    let statement = match found {
        Some(_) => format!("SELECT FROM {table} WHERE id = $1 FOR UPDATE"),
        None => format!(
            "INSERT INTO {table} (id, status, expiration, attempt, journal, layout) \
             VALUES ($1, 'INPROGRESS', 0, 1, '{{}}', 1) ON CONFLICT (id) DO NOTHING"
        ),
    };
    // It waits for two locks, and for the server.
    let time = context.global().timeout + Duration::from_secs(2);
    let tried = tried(store.pool(), table, statement, id.as_str(), time);
    match tokio::time::timeout(time, tried).await {
        Ok(Ok(held)) => Ok(held),
        Ok(Err(error)) => match code(&error).as_deref() {
            // insufficient_privilege
            Some("42501") => Ok(Held::Unknown(
                "this role can't see: it lacks INSERT or UPDATE on the table",
            )),
            // read_only_sql_transaction
            Some("25006") => Ok(Held::Unknown(
                "a server that is read-only can't tell: connect to the primary",
            )),
            _ => Err(Failure::service("look for an open transaction", &error)),
        },
        Err(_) => Err(StoreError::Timeout.into()),
    }
}

async fn tried(
    pool: &PgPool,
    table: &str,
    statement: String,
    id: &str,
    time: Duration,
) -> Result<Held, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    // The server takes the locks back by then, where this process is cut off from it.
    let time = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    // Any write takes this lock.
    let lock_table = format!(
        "{AS_THE_STORE}; {WAIT}; SET LOCAL idle_in_transaction_session_timeout = {time}; \
         LOCK TABLE {table} IN ROW EXCLUSIVE MODE"
    );
    let locked = sqlx::raw_sql(AssertSqlSafe(lock_table));
    if is_held(locked.execute(&mut *transaction).await)? {
        return Ok(Held::Table);
    }
    // Unnamed: a proxy may share connections.
    let lock = sqlx::query(AssertSqlSafe(statement)).persistent(false);
    if is_held(lock.bind(id.to_owned()).execute(&mut *transaction).await)? {
        return Ok(Held::Record);
    }
    transaction.rollback().await?;
    Ok(Held::No)
}

/// Returns whether another transaction has the lock.
fn is_held<T>(locked: Result<T, sqlx::Error>) -> Result<bool, sqlx::Error> {
    match locked {
        Ok(_) => Ok(false),
        // lock_not_available
        Err(error) if code(&error).as_deref() == Some("55P03") => Ok(true),
        Err(error) => Err(error),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error()?.code()?;
    Some(code.into_owned())
}
