//! Moves a state one way.

use super::{Guarded, Values, applied, columns, quoted};
use crate::Pool;
use crate::error::PostgresError;
use crate::sql::Sql;
use crate::transaction::Transaction;
use crate::value::Value;

/// Moves a row's state one way, from one of several to another: `pending` to `paid`, and never again.
///
/// The row must exist. Without [`mark`](Self::mark), a row that another operation moved to the same
/// state counts as moved already. With marks that name the operation (`paid_by`, the payment's id),
/// such a row is refused.
///
/// ```
/// use lambda_idempotency_postgres::guard::{Guarded, Transition};
/// use lambda_idempotency_postgres::{Pool, PostgresError, Transaction};
///
/// async fn pay<P: Pool>(tx: &mut Transaction<P>, order: &str, payment: &str) -> Result<bool, PostgresError> {
///     let paid = Transition::new("orders", [("id", order)])
///         .from("pending")
///         .to("paid")
///         .mark("paid_by", payment);
///     Ok(paid.apply(tx).await? != Guarded::Refused)
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transition does nothing until it is applied, or written to a claim"]
pub struct Transition {
    table: String,
    key: Vec<(String, Value)>,
    column: String,
    from: Vec<Value>,
    to: Value,
    marks: Vec<(String, Value)>,
}

impl Transition {
    /// Makes a transition of the row with this key. Its state is the text column `status`.
    pub fn new<N: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        Self {
            table: table.into(),
            key: columns(key),
            column: "status".to_owned(),
            from: Vec::new(),
            to: "".into(),
            marks: Vec::new(),
        }
    }

    /// Names the column of the state. Default: `status`.
    pub fn column(mut self, name: impl Into<String>) -> Self {
        self.column = name.into();
        self
    }

    /// Allows this state before. Call it for each.
    pub fn from(mut self, state: &str) -> Self {
        self.from.push(state.into());
        self
    }

    /// Sets the state after.
    pub fn to(mut self, state: &str) -> Self {
        self.to = state.into();
        self
    }

    /// Writes this column, too, and compares it where the state is reached already.
    pub fn mark(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.marks.push((name.into(), value.into()));
        self
    }

    /// Applies the transition in an open transaction, as one statement.
    ///
    /// # Errors
    ///
    /// When the server refuses the statement or can't be reached; the transaction can't commit then.
    ///
    /// # Cancellation
    ///
    /// A call that is dropped may have applied within the transaction: end the handler with an error.
    pub async fn apply<P: Pool>(
        &self,
        transaction: &mut Transaction<P>,
    ) -> Result<Guarded, PostgresError> {
        let mut values = Values::default();
        let (table, key) = (quoted(&self.table), values.equal(&self.key));
        let (set, from) = self.change(&mut values);
        let state = [(self.column.clone(), self.to.clone())];
        let reached: Vec<_> = state.iter().chain(&self.marks).cloned().collect();
        let reached = values.equal(&reached);
        // The row is locked first, so that both parts speak of the same.
        let statement = format!(
            "WITH met AS MATERIALIZED (SELECT {from} AS may, {reached} AS reached FROM {table} WHERE {key} FOR UPDATE), \
             done AS (UPDATE {table} SET {set} WHERE {key} AND (SELECT may FROM met) RETURNING true) \
             SELECT EXISTS (SELECT FROM done), (SELECT reached FROM met)"
        );
        applied(transaction, &statement, &values.0).await
    }

    /// Returns what is set, and the condition on the state before.
    fn change(&self, values: &mut Values) -> (String, String) {
        let state = (self.column.clone(), self.to.clone());
        let set = [state].into_iter().chain(self.marks.iter().cloned());
        let set: Vec<_> = set
            .map(|(name, value)| format!("{} = {}", quoted(&name), values.bind(&value)))
            .collect();
        let from: Vec<_> = self.from.iter().map(|state| values.bind(state)).collect();
        let from = if from.is_empty() {
            "false".to_owned()
        } else {
            format!("{} IN ({})", quoted(&self.column), from.join(", "))
        };
        (set.join(", "), from)
    }
}

/// The write of a claim: it is refused where the row is in another state, also where it was moved
/// before.
impl From<Transition> for Sql {
    fn from(transition: Transition) -> Self {
        let mut values = Values::default();
        let (table, key) = (quoted(&transition.table), values.equal(&transition.key));
        let (set, from) = transition.change(&mut values);
        values.statement(format!("UPDATE {table} SET {set} WHERE {key} AND {from}"))
    }
}
