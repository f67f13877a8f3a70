//! `tokio-postgres`, with the pool of `deadpool-postgres`.

use bytes::BytesMut;
use deadpool::managed::Manager;
use deadpool_postgres::{ClientWrapper, HookError, Object, PoolError, TimeoutType};
use futures_util::future::join;
use tokio_postgres::error::{DbError, ErrorPosition, Severity};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row};

use super::{Connection, END, Pool, Session, private};
use crate::error::{PostgresError, Problem};
use crate::value::{Cell, Content, Value};

impl private::Sealed for deadpool_postgres::Pool {}

impl Pool for deadpool_postgres::Pool {
    type Target = Client;
    type Connection = Pooled;
    type Reserved = ClientWrapper;

    async fn connect(&self) -> Result<Pooled, PostgresError> {
        let object = self.get().await.map_err(|error| match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                of(error).of_connecting()
            }
            PoolError::PostCreateHook(_) => PostgresError::new(Problem::Refused, error),
            PoolError::Timeout(TimeoutType::Wait) => {
                PostgresError::new(Problem::PoolExhausted, error)
            }
            PoolError::Closed | PoolError::NoRuntimeSpecified => {
                PostgresError::new(Problem::PoolClosed, error)
            }
            PoolError::Timeout(_) => PostgresError::new(Problem::Unreachable, error),
        })?;
        Ok(Pooled(Some(object)))
    }

    async fn reserve(&self) -> Result<ClientWrapper, PostgresError> {
        let connection = self.manager().create().await;
        let mut connection = connection.map_err(|error| of(error).of_connecting())?;
        // The manager would never learn that it is over.
        self.manager().detach(&mut connection);
        Ok(connection)
    }

    fn is_full(&self) -> bool {
        let status = self.status();
        status.available == 0 && status.size >= status.max_size
    }
}

/// A connection of the pool, which leaves the pool unless it is given back.
#[derive(Debug)]
pub struct Pooled(Option<Object>);

impl Connection for Pooled {
    type Target = Client;

    fn session(&mut self) -> Result<&mut Client, PostgresError> {
        let object = self.0.as_mut().ok_or_else(PostgresError::over)?;
        Ok(object)
    }

    fn reuse(mut self) {
        drop(self.0.take());
    }
}

impl Session for Client {
    async fn query(
        &mut self,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Vec<Cell>>, PostgresError> {
        let rows = self.query_typed(statement, &typed(values)).await;
        rows.map_err(of)?.iter().map(cells).collect()
    }

    async fn execute(&mut self, statement: &str, values: &[Value]) -> Result<u64, PostgresError> {
        let changed = self.execute_typed(statement, &typed(values)).await;
        changed.map_err(of)
    }

    async fn batch(&mut self, statements: &str) -> Result<(), PostgresError> {
        self.batch_execute(statements).await.map_err(of)
    }

    async fn begin(
        &mut self,
        begin: &str,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Vec<Cell>>, PostgresError> {
        begun(self, begin, statement, values).await
    }

    async fn alone(
        &mut self,
        begin: &str,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Vec<Cell>>, PostgresError> {
        let rows = begun(self, begin, statement, values);
        let (rows, ended) = join(rows, self.batch_execute(END)).await;
        let rows = rows?;
        ended.map_err(of).map(|()| rows)
    }
}

/// Sends both before it waits for an answer.
async fn begun(
    client: &Client,
    begin: &str,
    statement: &str,
    values: &[Value],
) -> Result<Vec<Vec<Cell>>, PostgresError> {
    let values = typed(values);
    let both = join(
        client.batch_execute(begin),
        client.query_typed(statement, &values),
    );
    let (opened, rows) = both.await;
    opened.map_err(of)?;
    rows.map_err(of)?.iter().map(cells).collect()
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

fn of(error: tokio_postgres::Error) -> PostgresError {
    let Some(db) = error.as_db_error() else {
        return PostgresError::new(Problem::Unreachable, error);
    };
    let answer = PostgresError::of_code(
        db.code().code(),
        db.message(),
        severity(db),
        matches!(db.position(), Some(ErrorPosition::Original(_))),
        [db.table(), db.column(), db.constraint()],
    );
    answer.caused_by(error)
}

/// Returns the severity in the server's own words. `PgBouncer` says it in the field that a server translates.
fn severity(error: &DbError) -> &str {
    match error.parsed_severity() {
        Some(Severity::Panic) => "PANIC",
        Some(Severity::Fatal) => "FATAL",
        Some(_) => "ERROR",
        None => error.severity(),
    }
}

fn cells(row: &Row) -> Result<Vec<Cell>, PostgresError> {
    let columns = row.columns().iter().enumerate();
    let cell = |(at, column): (usize, &tokio_postgres::Column)| {
        let cell = match *column.type_() {
            Type::TEXT => row.try_get(at).map(|it: Option<_>| it.map(Cell::Text)),
            Type::INT8 => row.try_get(at).map(|it: Option<_>| it.map(Cell::Int)),
            Type::BOOL => row.try_get(at).map(|it: Option<_>| it.map(Cell::Bool)),
            _ => row.try_get(at).map(|it: Option<_>| it.map(Cell::Bytes)),
        };
        cell.map(|cell| cell.unwrap_or(Cell::Null))
            .map_err(|error| PostgresError::new(Problem::Answer, error))
    };
    columns.map(cell).collect()
}

type Typed<'a> = Vec<(&'a (dyn ToSql + Sync), Type)>;

/// Says the type of each value, so that the server needn't be asked for it first.
fn typed(values: &[Value]) -> Typed<'_> {
    let typed = |value: &Value| {
        let (text, int, bytes) = (Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BYTEA_ARRAY);
        match &value.0 {
            Content::Text(_) => Type::TEXT,
            Content::Int(_) => Type::INT8,
            Content::Float(_) => Type::FLOAT8,
            Content::Bool(_) => Type::BOOL,
            Content::Bytes(_) => Type::BYTEA,
            Content::Texts(_) => text,
            Content::Ints(_) => int,
            Content::Bools(_) => Type::BOOL_ARRAY,
            Content::Blobs(_) => bytes,
        }
    };
    let pair = |value| (value as &(dyn ToSql + Sync), typed(value));
    values.iter().map(pair).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        type_: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match &self.0 {
            Content::Text(value) => value.to_sql(type_, out),
            Content::Int(value) => value.to_sql(type_, out),
            Content::Float(value) => value.to_sql(type_, out),
            Content::Bool(value) => value.to_sql(type_, out),
            Content::Bytes(value) => value.to_sql(type_, out),
            Content::Texts(values) => values.to_sql(type_, out),
            Content::Ints(values) => values.to_sql(type_, out),
            Content::Bools(values) => values.to_sql(type_, out),
            Content::Blobs(values) => values.to_sql(type_, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    to_sql_checked!();
}
