//! Keeps the newest version of a row.

use super::{Guarded, Values, applied, columns, quoted};
use crate::Pool;
use crate::error::PostgresError;
use crate::sql::Sql;
use crate::transaction::Transaction;
use crate::value::Value;

/// Writes a row, if it is newer than the one that is there: versions may come twice, and in any order.
///
/// The key's columns have a unique index. The version is a number that the source counts up; of two
/// versions with one number the first stays.
///
/// ```
/// use lambda_idempotency_postgres::guard::Newest;
/// use lambda_idempotency_postgres::{Pool, PostgresError, Transaction};
///
/// async fn stock<P: Pool>(tx: &mut Transaction<P>, sku: &str, version: i64, pieces: i64) -> Result<(), PostgresError> {
///     Newest::new("stock", [("sku", sku)], version).set("pieces", pieces).apply(tx).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is applied, or written to a claim"]
pub struct Newest {
    table: String,
    key: Vec<(String, Value)>,
    column: String,
    version: Value,
    values: Vec<(String, Value)>,
}

impl Newest {
    /// Makes a write of this version of the row with this key. The version is the column `version`.
    pub fn new<N: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (N, V)>,
        version: i64,
    ) -> Self {
        Self {
            table: table.into(),
            key: columns(key),
            column: "version".to_owned(),
            version: version.into(),
            values: Vec::new(),
        }
    }

    /// Names the column of the version. Default: `version`.
    pub fn column(mut self, name: impl Into<String>) -> Self {
        self.column = name.into();
        self
    }

    /// Sets a column of this version.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.push((name.into(), value.into()));
        self
    }

    /// Applies the write in an open transaction: [`Guarded::Applied`] where it is the newest,
    /// [`Guarded::AlreadyApplied`] where this version or a newer one is there.
    ///
    /// # Errors
    ///
    /// What the server answered; the transaction can't commit then.
    pub async fn apply<P: Pool>(
        &self,
        transaction: &mut Transaction<P>,
    ) -> Result<Guarded, PostgresError> {
        let Sql {
            statement, values, ..
        } = self.clone().into();
        let statement = format!(
            "WITH done AS ({statement} RETURNING true) SELECT EXISTS (SELECT FROM done), true"
        );
        applied(transaction, &statement, &values).await
    }
}

/// The write of a claim: it is refused where this version or a newer one is there.
impl From<Newest> for Sql {
    fn from(newest: Newest) -> Self {
        let mut values = Values::default();
        let key = newest
            .key
            .iter()
            .map(|(name, _)| quoted(name))
            .collect::<Vec<_>>()
            .join(", ");
        let version = (newest.column.clone(), newest.version.clone());
        let written: Vec<_> = [version]
            .into_iter()
            .chain(newest.values.iter().cloned())
            .collect();
        let all = newest.key.iter().chain(&written);
        let names = all
            .clone()
            .map(|(name, _)| quoted(name))
            .collect::<Vec<_>>()
            .join(", ");
        let places = all
            .map(|(_, value)| values.bind(value))
            .collect::<Vec<_>>()
            .join(", ");
        let set = written.iter().map(|(name, _)| quoted(name));
        let set = set
            .map(|name| format!("{name} = excluded.{name}"))
            .collect::<Vec<_>>()
            .join(", ");
        let (table, column) = (quoted(&newest.table), quoted(&newest.column));
        values.statement(format!(
            "INSERT INTO {table} AS known ({names}) VALUES ({places}) ON CONFLICT ({key}) \
             DO UPDATE SET {set} WHERE excluded.{column} > known.{column}"
        ))
    }
}
