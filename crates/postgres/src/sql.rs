//! A business write: a statement that commits together with the record.

use std::borrow::Cow;

use lambda_idempotency::store::transaction::{Refusal, Write, WriteError};

use crate::driver::Session;
use crate::error::{PostgresError, Problem};
use crate::table::{TableName, Tables};
use crate::transaction::Slot;
use crate::value::{Cell, Value};

/// A statement that commits together with the record, or not at all. Hand it to
/// [`Claim::write`](lambda_idempotency::Claim::write).
///
/// ```
/// use lambda_idempotency::store::transaction::WriteError;
/// use lambda_idempotency::Claim;
/// use lambda_idempotency_postgres::Sql;
///
/// fn debit(claim: &Claim, account: &str, cents: i64) -> Result<(), WriteError> {
///     let debit = "UPDATE accounts SET cents = cents - $2 WHERE id = $1 AND cents >= $2";
///     claim.write(Sql::new(debit).bind(account).bind(cents).affects(1))
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is written until it is handed to a claim"]
pub struct Sql {
    pub(crate) statement: String,
    pub(crate) values: Vec<Value>,
    pub(crate) affects: Option<u64>,
    /// A table of this crate's own, where the statement has `{table}` for it.
    pub(crate) table: Option<TableName>,
}

impl Sql {
    /// Takes one statement, with `$1`, `$2`, … for its parameters. Never put a caller's input into
    /// its text: [bind](Self::bind) it.
    pub fn new(statement: impl Into<String>) -> Self {
        Self {
            statement: statement.into(),
            values: Vec::new(),
            affects: None,
            table: None,
        }
    }

    /// Sets the next parameter's value.
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Says how many rows the statement must change. Where it changes another number, nothing is
    /// written, and the run ends with [`Write::or_else`]'s answer or
    /// [`Error::Refused`](lambda_idempotency::Error::Refused).
    pub fn affects(mut self, rows: u64) -> Self {
        self.affects = Some(rows);
        self
    }

    /// Runs the statement, and counts the rows that it changed.
    pub(crate) async fn execute<S: Session>(
        &self,
        session: &mut S,
        tables: &Tables,
    ) -> Result<u64, PostgresError> {
        let statement = self.filled(session, tables).await?;
        let rows = session.execute(&statement, &self.values).await;
        rows.map_err(|error| error.of_copy().of_statement())
    }

    /// Runs the statement, and returns the rows that it gives.
    pub(crate) async fn query<S: Session>(
        &self,
        session: &mut S,
        tables: &Tables,
    ) -> Result<Vec<Vec<Cell>>, PostgresError> {
        let statement = self.filled(session, tables).await?;
        let rows = session.query(&statement, &self.values).await;
        rows.map_err(|error| error.of_copy().of_statement())
    }

    async fn filled<S: Session>(
        &self,
        session: &mut S,
        tables: &Tables,
    ) -> Result<Cow<'_, str>, PostgresError> {
        if self.statement.contains('\0') {
            return Err(Problem::Nul.into());
        }
        Ok(match &self.table {
            None => Cow::Borrowed(self.statement.as_str()),
            Some(table) => Cow::Owned(tables.fill(session, table, &self.statement).await?),
        })
    }

    /// Sets the handler's own error for a refusal: see [`Write::or_else`].
    pub fn or_else<E: std::any::Any + Send>(
        self,
        answer: impl FnOnce(&Refusal) -> E + Send + Sync + 'static,
    ) -> Write {
        Write::from(self).or_else(answer)
    }
}

impl From<Sql> for Write {
    fn from(sql: Sql) -> Self {
        Self::new(sql)
    }
}

/// The reason why a statement was refused: [`Refusal::met`] gives it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Met {
    /// The statement changed this number of rows, and not the one that it
    /// [must](Sql::affects) change.
    Rows(u64),
    /// A constraint of the table refused it (SQLSTATE class 23).
    Constraint(PostgresError),
}

/// The largest number of parameters of one statement.
const MOST_PARAMETERS: usize = 65_535;

/// Decides whether a write may join a transaction.
pub(crate) fn admit<P: crate::Pool>(writes: &[Write], write: &Write) -> Result<(), WriteError> {
    if write.body::<Slot<P>>().is_some() {
        return Ok(());
    }
    let sql = write.body::<Sql>().ok_or(WriteError::NotSupported)?;
    if sql.statement.trim().is_empty() {
        return Err(WriteError::Incomplete("it has no statement".to_owned()));
    }
    if sql.statement.contains('\0') || sql.values.iter().any(Value::has_nul) {
        return Err(WriteError::Incomplete(Problem::Nul.to_string()));
    }
    if sql.values.len() > MOST_PARAMETERS {
        let most = format!("a statement has at most {MOST_PARAMETERS} parameters");
        return Err(WriteError::Incomplete(most));
    }
    // Of a handler's writes, only an event has a table of this crate's own. Its id is the first value.
    let is_same = |other: &Sql| {
        sql.table.is_some()
            && other.values.first() == sql.values.first()
            && other.table == sql.table
    };
    let mut writes = writes.iter();
    match writes.position(|write| write.body::<Sql>().is_some_and(is_same)) {
        Some(first) => Err(WriteError::SameTarget { first }),
        None => Ok(()),
    }
}
