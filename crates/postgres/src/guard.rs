//! Guards business rows against a second application, for replays that come when every record has long
//! expired.
//!
//! A guard needs no idempotency key: it compares values in the business row. [`Transition`] moves a
//! state one way, [`Once`] lets an operation that isn't naturally idempotent ("add 5") pass once for
//! each event, [`Latest`] keeps the newest version of a row, in whatever order versions come.
//!
//! In an open transaction a guard [applies](Transition::apply) and tells what it found. With a claim it
//! is one of the [writes](lambda_idempotency::Claim::write), and a guard that doesn't apply refuses the
//! transaction:
//!
//! ```
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::store::transaction::WriteError;
//! use lambda_idempotency_postgres::Sql;
//! use lambda_idempotency_postgres::guard::Transition;
//!
//! fn pay(claim: &Claim, order: &str) -> Result<(), WriteError> {
//!     claim.write(Sql::from(Transition::new("orders", [("id", order)]).from("pending").to("paid")))
//! }
//! ```
//!
//! Names of tables and columns are quoted, and values are bound. A key column has the type of the value
//! that it is compared with ([`Value`]); for another one, write the statement with
//! [`Sql::new`](crate::Sql::new) and a cast.

use crate::Pool;
use crate::error::PostgresError;
use crate::sql::Sql;
use crate::transaction::Transaction;
use crate::value::{Cell, Value};

mod latest;
mod once;
mod transition;

pub use lambda_idempotency::store::version::{Version, VersionError};
pub use latest::Latest;
pub use once::Once;
pub use transition::Transition;

/// The result of a guarded write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guarded {
    /// The write applied now.
    Applied,
    /// The write had applied before. An effect that must follow the write follows this result, too.
    AlreadyApplied,
    /// The row doesn't allow the write, or there is none; nothing changed.
    Refused,
}

/// Runs a statement that says of its write whether it applied, and whether it had applied before.
async fn applied<P: Pool>(
    transaction: &mut Transaction<P>,
    statement: &str,
    values: &[Value],
) -> Result<Guarded, PostgresError> {
    let rows = transaction.rows(statement, values).await?;
    let said: Vec<bool> = rows
        .into_iter()
        .flatten()
        .map(|cell| cell == Cell::Bool(true))
        .collect();
    Ok(match said.as_slice() {
        [true, ..] => Guarded::Applied,
        [_, true] => Guarded::AlreadyApplied,
        _ => Guarded::Refused,
    })
}

/// Runs a write that applies now, or had applied before.
async fn applied_once<P: Pool>(
    transaction: &mut Transaction<P>,
    write: Sql,
) -> Result<Guarded, PostgresError> {
    let Sql {
        statement, values, ..
    } = write;
    let statement =
        format!("WITH done AS ({statement} RETURNING true) SELECT EXISTS (SELECT FROM done), true");
    applied(transaction, &statement, &values).await
}

/// Names a table, perhaps with its schema, or a column.
fn quoted(name: &str) -> String {
    let parts = name
        .split('.')
        .map(|part| format!("\"{}\"", part.replace('"', "\"\"")));
    parts.collect::<Vec<_>>().join(".")
}

/// Collects the values of a statement while its text is made.
#[derive(Debug, Default)]
struct Values(Vec<Value>);

impl Values {
    /// Returns the parameter of this value.
    fn bind(&mut self, value: &Value) -> String {
        self.0.push(value.clone());
        format!("${}", self.0.len())
    }

    /// Compares columns with their values: `"id" = $1 AND "line" = $2`.
    fn equal(&mut self, columns: &[(String, Value)]) -> String {
        let pairs = columns
            .iter()
            .map(|(name, value)| format!("{} = {}", quoted(name), self.bind(value)));
        pairs.collect::<Vec<_>>().join(" AND ")
    }

    fn statement(self, statement: String) -> Sql {
        Sql {
            statement,
            values: self.0,
            affects: Some(1),
            table: None,
        }
    }
}

fn columns<N: Into<String>, V: Into<Value>>(
    columns: impl IntoIterator<Item = (N, V)>,
) -> Vec<(String, Value)> {
    let columns = columns
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()));
    columns.collect()
}
