//! Lets an operation that isn't naturally idempotent pass once for each event.

use super::{Guarded, Values, applied_once, quoted};
use crate::Pool;
use crate::error::PostgresError;
use crate::sql::Sql;
use crate::transaction::Transaction;
use crate::value::Value;

/// Remembers an event of a consumer, once: the operation that follows in the same transaction applies
/// once for each event.
///
/// The table has the columns `consumer` and `event`, both `text`, and both are its primary key:
/// [`Once::table`] gives the statement. Its rows stay until you delete them; keep them for as long as
/// an event may be delivered again.
///
/// ```
/// use lambda_idempotency_postgres::guard::{Guarded, Once};
/// use lambda_idempotency_postgres::{Pool, PostgresError, Sql, Transaction};
///
/// async fn deposit<P: Pool>(tx: &mut Transaction<P>, event: &str, account: &str, cents: i64) -> Result<(), PostgresError> {
///     if Once::new("applied_events", "deposit", event).apply(tx).await? == Guarded::Applied {
///         let add = Sql::new("UPDATE accounts SET cents = cents + $2 WHERE id = $1");
///         tx.apply(&add.bind(account).bind(cents)).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is applied, or written to a claim"]
pub struct Once {
    table: String,
    consumer: Value,
    event: Value,
}

impl Once {
    /// Makes a guard for this event of this consumer.
    pub fn new(table: impl Into<String>, consumer: &str, event: &str) -> Self {
        Self {
            table: table.into(),
            consumer: consumer.into(),
            event: event.into(),
        }
    }

    /// Returns the statement that makes the table. Run it in a migration: of two first starts that run it at once, one
    /// may fail (`23505`).
    pub fn table(name: &str) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (consumer text NOT NULL, event text NOT NULL, \
             applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (consumer, event))",
            quoted(name)
        )
    }

    /// Remembers the event in an open transaction: [`Guarded::Applied`] where it is new, else
    /// [`Guarded::AlreadyApplied`]. Waits for another transaction that has the same event and is not
    /// over.
    ///
    /// # Errors
    ///
    /// When the server refuses the statement or can't be reached; the transaction can't commit then.
    pub async fn apply<P: Pool>(
        &self,
        transaction: &mut Transaction<P>,
    ) -> Result<Guarded, PostgresError> {
        applied_once(transaction, self.clone().into()).await
    }
}

/// The write of a claim: it is refused where the event is known.
impl From<Once> for Sql {
    fn from(once: Once) -> Self {
        let mut values = Values::default();
        let (consumer, event) = (values.bind(&once.consumer), values.bind(&once.event));
        values.statement(format!(
            "INSERT INTO {} (consumer, event) VALUES ({consumer}, {event}) ON CONFLICT DO NOTHING",
            quoted(&once.table)
        ))
    }
}
