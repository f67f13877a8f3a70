//! Opens a transaction, with the record's place as its first statement.

use std::time::Duration;

use lambda_idempotency::protocol::record::{Found, Record, Status};
use lambda_idempotency::store::transaction::{Unwritten, Write};
use lambda_idempotency::{Claim, EpochSeconds, StoreError};
use tokio::time::{Instant, timeout_at};

use super::slot::{Footing, Slot};
use super::{Isolation, Transaction, TransactionError};
use crate::columns::decode;
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::statement::{NO_XID, XID};
use crate::store::ready::{Ready, millis};
use crate::store::{LONGEST, PostgresStore};
use crate::value::{Cell, Value, first};

/// The least time for which the first statement waits for another transaction, also where a duplicate
/// must not wait: most that are about to end do so meanwhile.
const LEAST_WAIT: Duration = Duration::from_millis(250);

/// The time after which a duplicate of an open transaction is told to come back: nothing says how long
/// it will be open.
const COME_BACK: Duration = Duration::from_secs(1);

/// The time that is kept for the rest of the run: its handler may be ended half a second before its
/// deadline, and the last request takes [`LEAST_WAIT`] and more.
const KEPT: Duration = Duration::from_secs(1);

/// The number of times that a transaction begins anew because of other transactions, before the
/// handler has it.
const MOST_BEGINNINGS: u32 = 5;

impl<P: Pool> PostgresStore<P> {
    /// Returns the open transaction of this run, and opens it where this is the first call: the handler
    /// reads and writes in it, and the engine stores the outcome in it and commits when the handler has
    /// succeeded. An error or a panic of the handler rolls back. Behind HTTP, an answer of 400 or above
    /// writes nothing, unless it carries its own [`Verdict::Complete`](lambda_idempotency::Verdict::Complete).
    ///
    /// With the [claimless form](lambda_idempotency::Idempotency::claimless), the record's place is the
    /// first statement of the transaction, so that nothing is written before it and a crash leaves
    /// nothing; a concurrent duplicate waits there for as long as
    /// [`InFlight`](lambda_idempotency::InFlight) says. Under a claim, the commit is fenced.
    ///
    /// Drop the transaction before the handler returns. A second call returns the same transaction.
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
        Ok(Transaction {
            lent: slot.lend()?,
            tables: self.tables().clone(),
        })
    }

    async fn open(&self, claim: &Claim) -> Result<Slot<P>, TransactionError> {
        let wait = wait(claim);
        let deadline = Instant::now() + self.timeout.saturating_add(wait).min(LONGEST);
        let open = async {
            // Another call of this run would wait for the first one's place as a duplicate does.
            let _alone = match claim.unwritten() {
                Some(unwritten) => Some(self.inner.open.alone(unwritten).await),
                None => None,
            };
            if let Some(first) = claim.written::<Slot<P>>() {
                return Ok(first);
            }
            let slot = self.open_for(claim, wait, deadline).await?;
            // Another call may have opened the claim's transaction meanwhile: the first one commits.
            if let Some(first) = claim.written::<Slot<P>>() {
                return Ok(first);
            }
            claim.write(Write::new(slot.clone()))?;
            Ok::<_, TransactionError>(claim.written().unwrap_or(slot))
        };
        // A server that is slow is no other run.
        let opened = timeout_at(deadline, open).await;
        opened.map_err(|_| StoreError::Timeout)?
    }

    async fn open_for(
        &self,
        claim: &Claim,
        wait: Duration,
        deadline: Instant,
    ) -> Result<Slot<P>, TransactionError> {
        let Some(unwritten) = claim.unwritten() else {
            if claim.is_protected() && self.isolation != Isolation::ReadCommitted {
                return Err(PostgresError::from(Problem::Isolation).into());
            }
            let ready = self.ready(deadline).await?;
            let begin = ready.begin(self.isolation.begin(), None);
            let mut connection = self.free(deadline).await?;
            // Without protection no record is written, and a replica takes reads.
            let first_of_it = if claim.is_protected() { XID } else { NO_XID };
            let rows = connection
                .session()?
                .begin(&begin, first_of_it, &[])
                .await?;
            let Some(Cell::Int(xid)) = first(&rows) else {
                return Err(PostgresError::from(Problem::Refused).into());
            };
            let xid = claim.is_protected().then_some(*xid);
            return Ok(Slot::new(connection, Footing::Nothing(xid), None));
        };
        let began = Instant::now();
        let Some(open) = self.inner.open.take(unwritten, wait).await else {
            return Err(in_flight(claim, unwritten));
        };
        let ready = self.ready(deadline).await?;
        let connection = self.free(deadline).await?;
        let left = || wait.saturating_sub(began.elapsed()).max(LEAST_WAIT);
        match self.take_place(ready, connection, unwritten, left).await? {
            Some((connection, footing)) => Ok(Slot::new(connection, footing, Some(open))),
            None => Err(in_flight(claim, unwritten)),
        }
    }

    /// Takes the place of the record, or locks the one that is there and may be taken over; `None` where
    /// another transaction holds it for longer than this.
    async fn take_place(
        &self,
        ready: &Ready,
        mut connection: P::Connection,
        unwritten: &Unwritten,
        wait: impl Fn() -> Duration,
    ) -> Result<Option<(P::Connection, Footing)>, TransactionError> {
        let id = || Value::from(unwritten.id.as_str());
        let expiration = unwritten.expiration;
        let begin = ready.begin(self.isolation.begin(), None);
        for _ in 0..MOST_BEGINNINGS {
            let place = [id(), expiration.0.into(), millis(wait()).into()];
            let session = connection.session()?;
            let occupied = session.begin(&begin, &ready.statements.occupy, &place);
            let occupied = occupied.await;
            if let Ok(rows) = &occupied
                && first(rows) == Some(&Cell::Int(1))
            {
                return Ok(Some((connection, Footing::Place(expiration))));
            }
            let met = match occupied {
                Ok(_) => {
                    let one = [id(), millis(wait()).into()];
                    session.query(&ready.statements.lock, &one).await
                }
                Err(error) => Err(error),
            };
            let met = met.map(|rows| {
                rows.first()
                    .and_then(|row| Some((decode(row)?, row.last()?.clone())))
            });
            if let Ok(Some((found, Cell::Int(xid)))) = &met
                && unwritten.meet(found.clone())
            {
                return Ok(Some((connection, Footing::Locked(found.clone(), *xid))));
            }
            session.batch("ROLLBACK").await?;
            match met {
                Ok(Some(_)) => {
                    connection.reuse();
                    return Err(TransactionError::Met);
                }
                // It was swept meanwhile.
                Ok(None) => {}
                // The handler has seen nothing of the transaction yet, so that it may begin anew.
                Err(error) if matches!(error.problem(), Problem::Conflict | Problem::Aborted) => {}
                Err(error) => {
                    if error.keeps_connection() {
                        connection.reuse();
                    }
                    return match error.problem() {
                        Problem::Locked => Ok(None),
                        _ => Err(error.into()),
                    };
                }
            }
        }
        connection.reuse();
        Err(PostgresError::from(Problem::Conflict).into())
    }
}

/// Returns the time for which a run may wait for another one, from now on.
fn wait(claim: &Claim) -> Duration {
    let Some(Unwritten { wait, deadline, .. }) = claim.unwritten() else {
        return Duration::ZERO;
    };
    let left = deadline.map_or(Duration::MAX, |end| end.saturating_since(claim.now()));
    left.saturating_sub(KEPT).min(*wait)
}

/// Tells the run that another one of its key is under way. The record of that one isn't visible, so
/// that this one stands for it.
fn in_flight(claim: &Claim, unwritten: &Unwritten) -> TransactionError {
    let until = claim.now() + COME_BACK;
    let mut record = Record::new(Status::InProgress, EpochSeconds(i64::MAX / 1_000_000));
    record.lease = Some(until);
    // Its lease is not known either: a queue's message is not to come back then.
    record.attempt = 0;
    // It is in flight, by its lease.
    let _ = unwritten.meet(Found::readable(record));
    TransactionError::Met
}
