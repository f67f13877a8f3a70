//! Keeps the newest version of a row.

use lambda_idempotency::store::version::{Form, Version};

use super::{Guarded, Values, applied, applied_once, columns, quoted};
use crate::Pool;
use crate::error::PostgresError;
use crate::sql::Sql;
use crate::transaction::Transaction;
use crate::value::Value;

/// Writes a row, if it is newer than the one that is there: versions may come twice, and in any order.
///
/// The key's columns have a unique index. The version's column is a `bigint` for a number, and `text` for
/// every other [`Version`]; the server refuses one for the other.
///
/// ```
/// use lambda_idempotency_postgres::guard::Latest;
/// use lambda_idempotency_postgres::{Pool, PostgresError, Transaction};
///
/// async fn stock<P: Pool>(tx: &mut Transaction<P>, sku: &str, version: i64, pieces: i64) -> Result<(), PostgresError> {
///     Latest::new("stock", [("sku", sku)], version).set("pieces", pieces).apply(tx).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is applied, or written to a claim"]
pub struct Latest {
    table: String,
    key: Vec<(String, Value)>,
    column: String,
    version: Version,
    values: Vec<(String, Value)>,
}

impl Latest {
    /// Makes a write of this version of the row with this key. The version is the column `version`.
    pub fn new<N: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (N, V)>,
        version: impl Into<Version>,
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
    /// [`Guarded::AlreadyApplied`] where this version or a newer one is there, [`Guarded::Refused`] where
    /// the row has a version of another kind.
    ///
    /// # Errors
    ///
    /// When the server refuses the statement or can't be reached; the transaction can't commit then.
    pub async fn apply<P: Pool>(
        &self,
        transaction: &mut Transaction<P>,
    ) -> Result<Guarded, PostgresError> {
        let guarded = applied_once(transaction, self.clone().into()).await?;
        let Form::Text { kind, .. } = self.version.form() else {
            return Ok(guarded);
        };
        if guarded == Guarded::Applied {
            return Ok(guarded);
        }
        // The first statement locked the row, but can't read one that was inserted meanwhile. The second can.
        let mut values = Values::default();
        let (table, key) = (quoted(&self.table), values.equal(&self.key));
        let (column, kind) = (quoted(&self.column), values.bind(&Value::from(*kind)));
        let statement = format!(
            "SELECT false, NOT EXISTS (SELECT FROM {table} WHERE {key} AND NOT starts_with({column}, {kind}))"
        );
        applied(transaction, &statement, &values.0).await
    }
}

/// The write of a claim: it is refused where this version or a newer one is there.
impl From<Latest> for Sql {
    fn from(latest: Latest) -> Self {
        let mut values = Values::default();
        let key = latest
            .key
            .iter()
            .map(|(name, _)| quoted(name))
            .collect::<Vec<_>>()
            .join(", ");
        let version = match latest.version.form() {
            Form::Number(number) => Value::from(*number),
            Form::Text { text, .. } => Value::from(text.as_str()),
        };
        let version = (latest.column.clone(), version);
        let written: Vec<_> = [version]
            .into_iter()
            .chain(latest.values.iter().cloned())
            .collect();
        let all = latest.key.iter().chain(&written);
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
        let (table, column) = (quoted(&latest.table), quoted(&latest.column));
        // In the order of bytes, whatever the column's own is, and only among versions of one kind.
        let newer = match latest.version.form() {
            Form::Number(_) => {
                format!("known.{column} IS NULL OR excluded.{column} > known.{column}")
            }
            Form::Text { kind, .. } => {
                let kind = values.bind(&Value::from(*kind));
                format!(
                    "known.{column} IS NULL OR (starts_with(known.{column}, {kind}) \
                     AND excluded.{column} COLLATE \"C\" > known.{column} COLLATE \"C\")"
                )
            }
        };
        values.statement(format!(
            "INSERT INTO {table} AS known ({names}) VALUES ({places}) ON CONFLICT ({key}) \
             DO UPDATE SET {set} WHERE {newer}"
        ))
    }
}
