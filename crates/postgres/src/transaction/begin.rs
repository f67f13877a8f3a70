//! Opens a transaction, with the record's place as its first statement.

use std::time::Duration;

use lambda_idempotency::protocol::record::{Found, Record, Status};
use lambda_idempotency::store::transaction::{Unwritten, Write};
use lambda_idempotency::{Claim, EpochSeconds, StoreError};
use tokio::time::{Instant, timeout, timeout_at};

use super::slot::{Footing, Slot};
use super::{Transaction, TransactionError};
use crate::columns::decode;
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::store::PostgresStore;
use crate::value::Value;

/// The least time that the first statement gets, also where a duplicate must not wait: longer than a
/// healthy server takes for it.
const LEAST_WAIT: Duration = Duration::from_millis(250);

/// The time after which a duplicate of an open transaction is told to come back: nothing says how long
/// it will be open.
const COME_BACK: Duration = Duration::from_secs(1);

/// The number of times that a transaction begins anew because of other transactions, before the
/// handler has it.
const MOST_BEGINNINGS: u32 = 5;

impl<P: Pool> PostgresStore<P> {
    /// Gives the open transaction of this run, and opens it where this is the first call: the handler
    /// reads and writes in it, and the engine stores the outcome in it and commits when the handler has
    /// succeeded. An error or a panic of the handler rolls back.
    ///
    /// With the [claimless form](lambda_idempotency::Idempotency::claimless), the record's place is the
    /// first statement of the transaction, so that nothing is written before it and a crash leaves
    /// nothing; a concurrent duplicate waits there for as long as
    /// [`InFlight`](lambda_idempotency::InFlight) says. Under a claim, the commit is fenced.
    ///
    /// Drop the transaction before the handler returns. A second call gives the same transaction.
    ///
    /// ```
    /// use lambda_idempotency::Claim;
    /// use lambda_idempotency_postgres::{PostgresStore, TransactionError};
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// enum OrderError {
    ///     #[error(transparent)]
    ///     Transaction(#[from] TransactionError),
    ///     #[error(transparent)]
    ///     Sql(#[from] tokio_postgres::Error),
    /// }
    ///
    /// # #[cfg(feature = "tokio-postgres")]
    /// async fn order(store: &PostgresStore<deadpool_postgres::Pool>, claim: &Claim, id: &str) -> Result<i64, OrderError> {
    ///     let tx = store.transaction(claim).await?;
    ///     tx.execute("INSERT INTO orders (id) VALUES ($1)", &[&id]).await?;
    ///     Ok(tx.query_one("SELECT count(*) FROM orders", &[]).await?.get(0))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TransactionError::Met`] where another run of the key is in the way. Return it: the engine
    /// replays that run's outcome, or says what is in flight.
    ///
    /// # Cancellation
    ///
    /// Dropped, it closes the connection that it was opening.
    pub async fn transaction(&self, claim: &Claim) -> Result<Transaction<P>, TransactionError> {
        let slot = match claim.written::<Slot<P>>() {
            Some(slot) => slot,
            None => self.open(claim).await?,
        };
        Ok(Transaction(slot.lend()?))
    }

    async fn open(&self, claim: &Claim) -> Result<Slot<P>, TransactionError> {
        let opened = self.open_for(claim);
        let slot = match claim.remaining() {
            Some(left) => timeout_at(Instant::now() + left, opened)
                .await
                .map_err(|_| StoreError::Timeout)??,
            None => opened.await?,
        };
        claim.write(Write::new(slot.clone()))?;
        Ok(slot)
    }

    async fn open_for(&self, claim: &Claim) -> Result<Slot<P>, TransactionError> {
        let Some(unwritten) = claim.unwritten() else {
            let mut connection = self.connect().await?;
            connection.session()?.batch(self.isolation.begin()).await?;
            return Ok(Slot::new(connection, Footing::Nothing, None));
        };
        let began = Instant::now();
        let wait = unwritten.wait();
        let Some(open) = self.inner.open.take(unwritten.id(), wait).await else {
            return Err(in_flight(claim, unwritten));
        };
        let left = wait.saturating_sub(began.elapsed()).max(LEAST_WAIT);
        // Without a free connection, the pool says so in its own time.
        let connection = self.connect().await?;
        match timeout(left, self.take_place(connection, unwritten)).await {
            Ok(taken) => {
                let (connection, footing) = taken?;
                Ok(Slot::new(connection, footing, Some(open)))
            }
            // Another transaction holds the place. The connection is closed, since its statement is
            // still under way.
            Err(_) => Err(in_flight(claim, unwritten)),
        }
    }

    /// Takes the place of the record, or locks the one that is there and may be taken over.
    async fn take_place(
        &self,
        mut connection: P::Connection,
        unwritten: &Unwritten,
    ) -> Result<(P::Connection, Footing), TransactionError> {
        let id = Value::from(unwritten.id().as_str());
        let expiration = unwritten.expiration();
        let place = [id.clone(), expiration.0.into()];
        let id = [id];
        let statements = &self.inner.statements;
        for _ in 0..MOST_BEGINNINGS {
            let begin = self.isolation.begin();
            match connection
                .session()?
                .begin(begin, &statements.occupy, &place)
                .await
            {
                Ok(rows) if !rows.is_empty() => {
                    return Ok((connection, Footing::Place(expiration)));
                }
                Ok(_) => {}
                Err(error) => begin_again(error)?,
            }
            let rows = match connection.session()?.query(&statements.lock, &id).await {
                Ok(rows) => rows,
                Err(error) => begin_again(error).map(|()| Vec::new())?,
            };
            // None where it was swept meanwhile.
            if let Some(found) = rows.first().and_then(|row| decode(row)) {
                if unwritten.meet(found.clone()) {
                    return Ok((connection, Footing::Locked(found)));
                }
                connection.session()?.batch("ROLLBACK").await?;
                connection.reuse();
                return Err(TransactionError::Met);
            }
            connection.session()?.batch("ROLLBACK").await?;
        }
        Err(PostgresError::from(Problem::Conflict).into())
    }
}

/// The handler has seen nothing of the transaction yet, so that it may begin anew.
fn begin_again(error: PostgresError) -> Result<(), PostgresError> {
    match error.problem() {
        Problem::Conflict | Problem::Aborted => Ok(()),
        _ => Err(error),
    }
}

/// Tells the run that another one of its key is under way. The record of that one isn't visible, so
/// that this one stands for it.
fn in_flight(claim: &Claim, unwritten: &Unwritten) -> TransactionError {
    let until = claim.now() + COME_BACK;
    let mut record = Record::new(Status::InProgress, EpochSeconds(i64::MAX / 1_000_000));
    record.lease = Some(until);
    // It is in flight, by its lease.
    let _ = unwritten.meet(Found::readable(record));
    TransactionError::Met
}
