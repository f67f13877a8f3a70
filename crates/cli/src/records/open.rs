//! Looks whether a transaction of PostgreSQL holds a key: what it has written is not seen until it
//! commits, but what it has locked is.

use std::time::Duration;

use lambda_idempotency::protocol::record::Found;
use lambda_idempotency::{RecordId, StoreError};
use lambda_idempotency_postgres::DEFAULT_TABLE;
use sqlx::{AssertSqlSafe, PgPool};

use crate::connect::{Place, Records};
use crate::context::Context;
use crate::failure::Failure;

/// Whether a transaction that is open holds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    No,
    Yes,
    /// The role may not try it.
    Unknown,
}

/// How long a lock is waited for: a plain write is over by then.
const WAIT: &str = "SET LOCAL lock_timeout = '500ms'";

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
    let table = context.global().table.as_deref().unwrap_or(DEFAULT_TABLE);
    let statement = match found {
        Some(_) => format!("SELECT FROM {table} WHERE id = $1 FOR UPDATE"),
        None => format!(
            "INSERT INTO {table} (id, status, expiration, attempt, journal, layout) \
             VALUES ($1, 'INPROGRESS', 0, 1, '{{}}', 1) ON CONFLICT (id) DO NOTHING"
        ),
    };
    // It waits for a lock, and for the server.
    let time = context.global().timeout + Duration::from_secs(2);
    match tokio::time::timeout(time, locked(store.pool(), statement, id.as_str())).await {
        Ok(Ok(())) => Ok(Held::No),
        Ok(Err(error)) => {
            let code = error
                .as_database_error()
                .and_then(sqlx::error::DatabaseError::code);
            match code.as_deref() {
                // lock_not_available
                Some("55P03") => Ok(Held::Yes),
                // insufficient_privilege, read_only_sql_transaction
                Some("42501" | "25006") => Ok(Held::Unknown),
                _ => Err(Failure::service("look for an open transaction", &error)),
            }
        }
        Err(_) => Err(StoreError::Timeout.into()),
    }
}

async fn locked(pool: &PgPool, statement: String, id: &str) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::raw_sql(WAIT).execute(&mut *transaction).await?;
    let lock = sqlx::query(AssertSqlSafe(statement));
    // Unnamed: a proxy may share connections.
    let lock = lock.bind(id.to_owned()).persistent(false);
    lock.execute(&mut *transaction).await?;
    transaction.rollback().await
}
