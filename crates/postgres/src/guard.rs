//! Guards business rows against a second application, for replays that come when every record has long
//! expired.
//!
//! A [`Guard`] needs no idempotency key: it compares values in the business row. A
//! [`transition`](Guard::transition) moves a state one way, [`once`](Guard::once) lets an operation that
//! isn't naturally idempotent ("add 5") pass once for each event, [`latest`](Guard::latest) keeps the
//! newest version of a row, in whatever order versions come.
//!
//! In an open transaction a guard [applies](Guard::apply) and tells what it found. With a claim it
//! is one of the [writes](lambda_idempotency::Claim::write), and a guard that doesn't apply refuses the
//! transaction:
//!
//! ```
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::store::transaction::WriteError;
//! use lambda_idempotency_postgres::Sql;
//! use lambda_idempotency_postgres::guard::Guard;
//!
//! fn pay(claim: &Claim, order: &str) -> Result<(), WriteError> {
//!     claim.write(Sql::from(Guard::transition("orders", [("id", order)], ["pending"], "paid")))
//! }
//! ```
//!
//! Names of tables and columns are quoted, and values are bound. A column has the type of the value
//! that it is compared with ([`Value`]); for another one, write the statement with
//! [`Sql::new`](crate::Sql::new) and a cast.

use lambda_idempotency::store::version::Form;

use crate::Pool;
use crate::error::{PostgresError, Problem};
use crate::sql::Sql;
use crate::transaction::Transaction;
use crate::value::{Cell, Value};

pub use lambda_idempotency::store::version::Version;

/// The result of a guarded write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a write that is refused changes nothing"]
pub enum Guarded {
    /// The write applied now.
    Applied,
    /// The write had applied before. An effect that must follow the write follows this result, too.
    AlreadyApplied,
    /// The row doesn't allow the write, or there is none; nothing changed. A transition that had applied is
    /// refused, too, when another operation has moved the state on.
    Refused,
}

/// A write that its own row keeps from a second application.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is applied, or written to a claim"]
pub struct Guard {
    table: String,
    key: Vec<(String, Value)>,
    column: String,
    /// What the column holds afterwards.
    value: Value,
    kind: Kind,
    sets: Vec<(String, Value)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// With the states before.
    Transition(Vec<Value>),
    Once,
    /// With the beginning of all texts of the version's kind; a number has none.
    Latest(Option<&'static str>),
}

impl Guard {
    fn new<N: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (N, V)>,
        column: &str,
        value: impl Into<Value>,
        kind: Kind,
    ) -> Self {
        let key = key
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self {
            table: table.into(),
            key: key.collect(),
            column: column.to_owned(),
            value: value.into(),
            kind,
            sets: Vec::new(),
        }
    }

    /// Moves a row's state one way, from one of several to another: `pending` to `paid`, and never again.
    ///
    /// The row must exist. Without [`set`](Self::set), a row that another operation moved to the same
    /// state counts as moved already. With values that name the operation (`paid_by`, the payment's id),
    /// such a row is refused. When the state has moved on (`shipped`), the same operation is refused, too:
    /// look for its value in the row before you take it for another's.
    ///
    /// ```
    /// use deadpool_postgres::Pool;
    /// use lambda_idempotency_postgres::Transaction;
    /// use lambda_idempotency_postgres::guard::{Guard, Guarded};
    ///
    /// /// Tells whether this payment has paid the order.
    /// async fn pay(tx: &mut Transaction<Pool>, order: &str, payment: &str) -> Result<bool, Box<dyn std::error::Error>> {
    ///     let paid = Guard::transition("orders", [("id", order)], ["pending"], "paid").set("paid_by", payment);
    ///     if paid.apply(tx).await? != Guarded::Refused {
    ///         return Ok(true);
    ///     }
    ///     let select = "SELECT 1 FROM orders WHERE id = $1 AND paid_by = $2";
    ///     Ok(tx.query_opt(select, &[&order, &payment]).await?.is_some())
    /// }
    /// ```
    pub fn transition<N: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (N, V)>,
        from: impl IntoIterator<Item: Into<Value>>,
        to: impl Into<Value>,
    ) -> Self {
        let from = from.into_iter().map(Into::into).collect();
        Self::new(table, key, "status", to, Kind::Transition(from))
    }

    /// Remembers an event of a consumer, once: the operation that follows in the same transaction applies
    /// once for each event.
    ///
    /// The table has the columns `consumer` and `event`, both `text`, and both are its primary key:
    /// [`Guard::table`] gives the statement. Its rows stay until you delete them; keep them for as long as
    /// an event may be delivered again.
    ///
    /// ```
    /// use lambda_idempotency_postgres::guard::{Guard, Guarded};
    /// use lambda_idempotency_postgres::{Pool, PostgresError, Sql, Transaction};
    ///
    /// async fn deposit<P: Pool>(tx: &mut Transaction<P>, event: &str, account: &str, cents: i64) -> Result<(), PostgresError> {
    ///     if Guard::once("applied_events", "deposit", event).apply(tx).await? == Guarded::Applied {
    ///         let add = Sql::new("UPDATE accounts SET cents = cents + $2 WHERE id = $1");
    ///         tx.apply(&add.bind(account).bind(cents)).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn once(table: impl Into<String>, consumer: &str, event: &str) -> Self {
        Self::new(table, [("consumer", consumer)], "event", event, Kind::Once)
    }

    /// Writes a row, if it is newer than the one that is there: versions may come twice, and in any order.
    ///
    /// The key's columns have a unique index. The version's column is a `bigint` for a number, and `text` for
    /// every other [`Version`]; the server refuses one for the other.
    ///
    /// ```
    /// use lambda_idempotency_postgres::guard::{Guard, Guarded};
    /// use lambda_idempotency_postgres::{Pool, PostgresError, Transaction};
    ///
    /// /// Tells whether this version was newer.
    /// async fn stock<P: Pool>(tx: &mut Transaction<P>, sku: &str, version: i64, pieces: i64) -> Result<bool, PostgresError> {
    ///     let stock = Guard::latest("stock", [("sku", sku)], version).set("pieces", pieces);
    ///     Ok(stock.apply(tx).await? == Guarded::Applied)
    /// }
    /// ```
    pub fn latest<N: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (N, V)>,
        version: impl Into<Version>,
    ) -> Self {
        let version: Version = version.into();
        let (value, kind) = match version.form() {
            Form::Number(number) => (Value::from(*number), None),
            Form::Text { kind, text } => (Value::from(text.as_str()), Some(*kind)),
        };
        Self::new(table, key, "version", value, Kind::Latest(kind))
    }

    /// Returns the statement that makes the table of [`once`](Self::once). Run it in a migration: of two
    /// first starts that run it at once, one may fail (`23505`).
    pub fn table(name: &str) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (consumer text NOT NULL, event text NOT NULL, \
             applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (consumer, event))",
            quoted(name)
        )
    }

    /// Names the column of the state (default: `status`), the event (`event`) or the version (`version`).
    pub fn column(mut self, name: impl Into<String>) -> Self {
        self.column = name.into();
        self
    }

    /// Sets another column along with it. A [`transition`](Self::transition) recognises its own move by the
    /// values that are set.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.sets.push((name.into(), value.into()));
        self
    }

    /// Applies the guard in an open transaction. [`Guarded::AlreadyApplied`]: the row has the state and the
    /// values that are set, the event is known, or this version or a newer one is there.
    /// [`Guarded::Refused`], of a [`transition`](Self::transition) alone: the row is in another state, is another
    /// operation's, or is absent.
    ///
    /// An event waits for another transaction that has the same one and is not over.
    ///
    /// # Errors
    ///
    /// When the server refuses the statement or can't be reached; the transaction can't commit then.
    /// [`Problem::Version`], when the row has a version of another kind: nothing changed. The transaction can
    /// still commit: return the error.
    ///
    /// # Cancellation
    ///
    /// A call that is dropped may have applied within the transaction: end the handler with an error.
    pub async fn apply<P: Pool>(
        &self,
        transaction: &mut Transaction<P>,
    ) -> Result<Guarded, PostgresError> {
        let table = quoted(&self.table);
        if let Kind::Transition(from) = &self.kind {
            let mut values = Values::default();
            let (set, key, may) = self.moved(from, &mut values);
            let reached = values.pairs(&self.written(), "IS NOT DISTINCT FROM", " AND ");
            // The row is locked first, so that both parts speak of the same.
            let statement = format!(
                "WITH met AS MATERIALIZED (SELECT {may} AS may, {reached} AS reached FROM {table} WHERE {key} FOR UPDATE), \
                 done AS (UPDATE {table} SET {set} WHERE {key} AND (SELECT may FROM met) RETURNING true) \
                 SELECT EXISTS (SELECT FROM done), (SELECT reached FROM met)"
            );
            return applied(transaction, statement, values.0).await;
        }
        let Sql {
            statement, values, ..
        } = Sql::from(self.clone());
        let statement = format!(
            "WITH done AS ({statement} RETURNING true) SELECT EXISTS (SELECT FROM done), true"
        );
        let guarded = applied(transaction, statement, values).await?;
        let (Kind::Latest(Some(kind)), Guarded::AlreadyApplied) = (&self.kind, guarded) else {
            return Ok(guarded);
        };
        // The first statement locked the row, but can't read one that was inserted meanwhile. The second can.
        let mut values = Values::default();
        let key = values.pairs(&self.key, "=", " AND ");
        let (column, kind) = (quoted(&self.column), values.bind(&Value::from(*kind)));
        let statement = format!(
            "SELECT false, NOT EXISTS (SELECT FROM {table} WHERE {key} AND NOT starts_with({column}, {kind}))"
        );
        match applied(transaction, statement, values.0).await? {
            Guarded::Refused => Err(Problem::Version.into()),
            guarded => Ok(guarded),
        }
    }

    /// Returns the columns that are written besides the key.
    fn written(&self) -> Vec<(String, Value)> {
        let own = (self.column.clone(), self.value.clone());
        std::iter::once(own)
            .chain(self.sets.iter().cloned())
            .collect()
    }

    /// Returns what a transition sets, and the conditions on the key and on the state before.
    fn moved(&self, from: &[Value], values: &mut Values) -> (String, String, String) {
        let set = values.pairs(&self.written(), "=", ", ");
        let key = values.pairs(&self.key, "=", " AND ");
        // A state may be NULL.
        let column = quoted(&self.column);
        let is = |state: &Value| format!("{column} IS NOT DISTINCT FROM {}", values.bind(state));
        let may = std::iter::once("false".to_owned()).chain(from.iter().map(is));
        let may = may.collect::<Vec<_>>().join(" OR ");
        (set, key, format!("({may})"))
    }
}

/// The write of a claim: it is refused where it doesn't apply, also where it had applied before.
impl From<Guard> for Sql {
    fn from(guard: Guard) -> Self {
        let mut values = Values::default();
        let table = quoted(&guard.table);
        let statement = if let Kind::Transition(from) = &guard.kind {
            let (set, key, may) = guard.moved(from, &mut values);
            format!("UPDATE {table} SET {set} WHERE {key} AND {may}")
        } else {
            let written = guard.written();
            let all = guard.key.iter().chain(&written);
            let names = listed(all.clone().map(|(name, _)| quoted(name)));
            let places = listed(all.map(|(_, value)| values.bind(value)));
            let key = listed(guard.key.iter().map(|(name, _)| quoted(name)));
            let set = written.iter().map(|(name, _)| quoted(name));
            let set = listed(set.map(|name| format!("{name} = excluded.{name}")));
            let column = quoted(&guard.column);
            let update = format!("({key}) DO UPDATE SET {set} WHERE known.{column} IS NULL OR");
            // In the order of bytes, whatever the column's own is, and only among versions of one kind.
            let conflict = match guard.kind {
                Kind::Latest(None) => format!("{update} excluded.{column} > known.{column}"),
                Kind::Latest(Some(kind)) => {
                    let kind = values.bind(&Value::from(kind));
                    format!(
                        "{update} (starts_with(known.{column}, {kind}) \
                         AND excluded.{column} COLLATE \"C\" > known.{column} COLLATE \"C\")"
                    )
                }
                Kind::Once | Kind::Transition(_) => "DO NOTHING".to_owned(),
            };
            format!(
                "INSERT INTO {table} AS known ({names}) VALUES ({places}) ON CONFLICT {conflict}"
            )
        };
        Self {
            statement,
            values: values.0,
            affects: Some(1),
            table: None,
        }
    }
}

/// Runs a statement that says of its write whether it applied, and whether it had applied before.
async fn applied<P: Pool>(
    transaction: &mut Transaction<P>,
    statement: String,
    values: Vec<Value>,
) -> Result<Guarded, PostgresError> {
    let sql = Sql {
        values,
        ..Sql::new(statement)
    };
    let rows = transaction.rows(&sql).await?;
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

/// Names a table, perhaps with its schema, or a column.
fn quoted(name: &str) -> String {
    let parts = name
        .split('.')
        .map(|part| format!("\"{}\"", part.replace('"', "\"\"")));
    parts.collect::<Vec<_>>().join(".")
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Collects the values of a statement while its text is made.
#[derive(Default)]
struct Values(Vec<Value>);

impl Values {
    /// Returns the parameter of this value.
    fn bind(&mut self, value: &Value) -> String {
        self.0.push(value.clone());
        format!("${}", self.0.len())
    }

    /// Returns columns with their values: `"id" = $1 AND "line" = $2`.
    fn pairs(&mut self, columns: &[(String, Value)], is: &str, between: &str) -> String {
        let pairs = columns
            .iter()
            .map(|(name, value)| format!("{} {is} {}", quoted(name), self.bind(value)));
        pairs.collect::<Vec<_>>().join(between)
    }
}
