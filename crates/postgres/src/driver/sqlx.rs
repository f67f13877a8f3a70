//! `sqlx`, with its own pool.

use futures_util::TryStreamExt;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgDatabaseError, PgErrorPosition, PgRow, PgSeverity};
use sqlx::query::Query;
use sqlx::{
    AssertSqlSafe, Column, Connection as _, Executor, PgConnection, PgPool, Postgres, Row, TypeInfo,
};
use tokio::time::timeout;

use super::{Connection, END, Pool, Session, private};
use crate::error::{PostgresError, Problem};
use crate::value::{Cell, Content, Value};

impl private::Sealed for PgPool {}

impl Pool for PgPool {
    type Target = PgConnection;
    type Connection = Pooled;
    type Reserved = Box<PgConnection>;

    async fn connect(&self) -> Result<Pooled, PostgresError> {
        let error = match self.acquire().await {
            Ok(connection) => return Ok(Pooled(Some(connection))),
            Err(error) => error,
        };
        Err(match error {
            // The pool has tried to connect until its time was over, and doesn't say what the server answered.
            sqlx::Error::PoolTimedOut if self.size() < self.options().get_max_connections() => {
                let longest = self.options().get_acquire_timeout();
                match timeout(longest, Box::pin(self.reserve())).await {
                    Ok(Err(refused)) => refused,
                    _ => PostgresError::new(Problem::Unreachable, error),
                }
            }
            sqlx::Error::PoolTimedOut => PostgresError::new(Problem::PoolExhausted, error),
            sqlx::Error::PoolClosed => PostgresError::new(Problem::PoolClosed, error),
            error => of(error).of_connecting(),
        })
    }

    async fn reserve(&self) -> Result<Box<PgConnection>, PostgresError> {
        let connection = PgConnection::connect_with(&self.connect_options()).await;
        let connection = connection.map_err(|error| of(error).of_connecting())?;
        Ok(Box::new(connection))
    }

    fn is_full(&self) -> bool {
        self.num_idle() == 0 && self.size() >= self.options().get_max_connections()
    }
}

/// A connection of the pool, which leaves the pool unless it is given back.
#[derive(Debug)]
pub struct Pooled(Option<PoolConnection<Postgres>>);

impl Connection for Pooled {
    type Target = PgConnection;

    fn session(&mut self) -> Result<&mut PgConnection, PostgresError> {
        self.0.as_deref_mut().ok_or_else(PostgresError::over)
    }

    fn reuse(mut self) {
        drop(self.0.take());
    }
}

impl Session for PgConnection {
    async fn query(
        &mut self,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Vec<Cell>>, PostgresError> {
        let rows = bound(statement, values).fetch(self);
        let rows: Vec<PgRow> = rows.try_collect().await.map_err(of)?;
        rows.iter().map(cells).collect()
    }

    async fn execute(&mut self, statement: &str, values: &[Value]) -> Result<u64, PostgresError> {
        let done = bound(statement, values).execute(self);
        done.await.map(|done| done.rows_affected()).map_err(of)
    }

    async fn batch(&mut self, statements: &str) -> Result<(), PostgresError> {
        let statements = AssertSqlSafe(statements.to_owned());
        let done = Executor::execute(self, sqlx::raw_sql(statements));
        done.await.map(drop).map_err(of)
    }

    async fn begin(
        &mut self,
        begin: &str,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Vec<Cell>>, PostgresError> {
        self.batch(begin).await?;
        Session::query(self, statement, values).await
    }

    async fn alone(
        &mut self,
        begin: &str,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Vec<Cell>>, PostgresError> {
        let rows = Session::begin(self, begin, statement, values).await;
        let ended = self.batch(END).await;
        let rows = rows?;
        ended.map(|()| rows)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// The statement keeps no name on the server. It is one of this crate's, or the caller's own.
fn bound<'q>(statement: &str, values: &[Value]) -> Query<'q, Postgres, PgArguments> {
    let statement = AssertSqlSafe(statement.to_owned());
    let mut query = sqlx::query(statement).persistent(false);
    for value in values {
        query = match value.0.clone() {
            Content::Text(value) => query.bind(value),
            Content::Int(value) => query.bind(value),
            Content::Float(value) => query.bind(value),
            Content::Bool(value) => query.bind(value),
            Content::Bytes(value) => query.bind(value),
            Content::Texts(values) => query.bind(values),
            Content::Ints(values) => query.bind(values),
            Content::Bools(values) => query.bind(values),
            Content::Blobs(values) => query.bind(values),
        };
    }
    query
}

fn of(error: sqlx::Error) -> PostgresError {
    if let sqlx::Error::Database(db) = &error
        && let Some(db) = db.try_downcast_ref::<PgDatabaseError>()
    {
        let answer = PostgresError::of_code(
            db.code(),
            db.message(),
            match db.severity() {
                PgSeverity::Panic => "PANIC",
                PgSeverity::Fatal => "FATAL",
                _ => "ERROR",
            },
            matches!(db.position(), Some(PgErrorPosition::Original(_))),
            [db.table(), db.column(), db.constraint()],
        );
        return answer.caused_by(error);
    }
    PostgresError::new(Problem::Unreachable, error)
}

fn cells(row: &PgRow) -> Result<Vec<Cell>, PostgresError> {
    let cell = |column: &sqlx::postgres::PgColumn| {
        let at = column.ordinal();
        let cell = match column.type_info().name() {
            "TEXT" => row.try_get(at).map(|it: Option<_>| it.map(Cell::Text)),
            "INT8" => row.try_get(at).map(|it: Option<_>| it.map(Cell::Int)),
            "BOOL" => row.try_get(at).map(|it: Option<_>| it.map(Cell::Bool)),
            _ => row.try_get(at).map(|it: Option<_>| it.map(Cell::Bytes)),
        };
        cell.map(|cell| cell.unwrap_or(Cell::Null))
            .map_err(|error| PostgresError::new(Problem::Answer, error))
    };
    row.columns().iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_of_a_session_that_names_tls_is_a_lost_connection() {
        for words in ["unexpected eof while reading", "bad record mac"] {
            let lost = io::Error::other(format!("error:0A000126:SSL routines::{words}"));
            let error = of(sqlx::Error::Io(lost));
            assert_eq!(error.problem(), Problem::Unreachable, "{error}");
            assert!(!error.keeps_connection(), "{error}");
        }
    }
}
