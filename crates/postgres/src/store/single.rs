//! Sends single statements: over the pool, or over the store's own connection.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use lambda_idempotency::StoreError;
use lambda_idempotency::protocol::record::{RELEASED, RecordWrite};
use tokio::sync::MutexGuard;
use tokio::time::{Instant, sleep, timeout_at};

use super::PostgresStore;
use super::ready::{READ_COMMITTED, lock_until, within};
use super::request::{self, Statement};
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::value::{Cell, Value};

type Rows = Vec<Vec<Cell>>;

/// The store's own connection, beside the pool, and when it was used last.
pub(super) type Reserved<P> = Option<(<P as Pool>::Reserved, Instant)>;

/// The time that it is kept for the next statement: no proxy closes an idle connection so soon.
const IDLE: Duration = Duration::from_secs(5);

/// The time in which a pool that isn't full gives a connection.
const SOON: Duration = Duration::from_millis(500);

/// The longest wait for a lock where other requests wait, too: those of the same group, or for the store's
/// own connection.
const SHORT_LOCK: Duration = Duration::from_secs(1);

/// The connection that a statement is sent over.
pub(super) enum Over {
    /// One of the pool, for which the statement waits.
    Pool,
    /// One for a run that may hold a connection of the pool: the store's own where the pool has none.
    Beside,
}

enum Way<'a, P: Pool> {
    Pool(P::Connection),
    Reserved(MutexGuard<'a, Reserved<P>>),
}

impl<P: Pool> PostgresStore<P> {
    /// Sends writes of one kind, each for another record.
    pub(super) async fn send(
        &self,
        statement: Statement,
        writes: &[&RecordWrite],
        deadline: Instant,
    ) -> Result<Rows, StoreError> {
        // A write that begins something has no connection yet, and waits for one.
        let over = if writes.iter().any(|write| is_of_a_run(write)) {
            Over::Beside
        } else {
            Over::Pool
        };
        let longest = if writes.len() > 1 {
            SHORT_LOCK
        } else {
            Duration::MAX
        };
        let values = request::values(writes);
        let work = self.send_over(over, statement, &values, (longest, deadline));
        within(deadline, work).await
    }

    /// Sends one statement.
    pub(super) async fn query(
        &self,
        over: Over,
        statement: Statement,
        values: &[Value],
        deadline: Instant,
    ) -> Result<Rows, StoreError> {
        within(deadline, self.answer(over, statement, values, deadline)).await
    }

    /// Sends one statement, and waits for its answer without an end.
    pub(super) async fn answer(
        &self,
        over: Over,
        statement: Statement,
        values: &[Value],
        deadline: Instant,
    ) -> Result<Rows, PostgresError> {
        self.send_over(over, statement, values, (Duration::MAX, deadline))
            .await
    }

    /// Takes a connection of the pool.
    pub(crate) async fn free(&self, deadline: Instant) -> Result<P::Connection, PostgresError> {
        self.in_turn(deadline, Box::pin(self.inner.pool.connect()))
            .await
    }

    /// Waits for a connection, before the request is sent. A pool that is full says nothing of the server. One that
    /// isn't may keep silent while the server refuses connections: the last of the time is for opening one beside it,
    /// whose error tells why.
    pub(super) async fn in_turn<T>(
        &self,
        deadline: Instant,
        turn: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<T, PostgresError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout_at(deadline - left / 16, turn).await {
            Ok(turn) => turn,
            Err(_) if self.inner.pool.is_full() => Err(Problem::PoolExhausted.into()),
            Err(_) => match timeout_at(deadline, Box::pin(self.inner.pool.reserve())).await {
                Ok(Err(refused)) => Err(refused),
                _ => Err(Problem::NoAnswer.into()),
            },
        }
    }

    /// Takes a connection of the pool, or the store's own one where the pool has none: a run whose
    /// handler holds the last connection would else wait for itself.
    async fn beside(&self) -> Result<Way<'_, P>, PostgresError> {
        let reserved = async {
            if !self.inner.pool.is_full() {
                sleep(SOON).await;
            }
            self.inner.reserved.lock().await
        };
        match select(pin!(self.inner.pool.connect()), pin!(reserved)).await {
            Either::Left((Err(error), _)) if error.problem() == Problem::PoolExhausted => {}
            Either::Left((connection, _)) => return connection.map(Way::Pool),
            Either::Right((reserved, _)) => return Ok(Way::Reserved(reserved)),
        }
        Ok(Way::Reserved(self.inner.reserved.lock().await))
    }

    /// Sends one statement. It waits for locks for this time at most, and for an answer before this deadline.
    async fn send_over(
        &self,
        over: Over,
        statement: Statement,
        values: &[Value],
        (longest, deadline): (Duration, Instant),
    ) -> Result<Rows, PostgresError> {
        let ready = self.ready(deadline).await?;
        let statement = statement(&ready.statements);
        let way = match over {
            Over::Pool => Way::Pool(self.free(deadline).await?),
            Over::Beside => self.in_turn(deadline, Box::pin(self.beside())).await?,
        };
        let longest = match way {
            Way::Pool(_) => longest,
            Way::Reserved(_) => longest.min(SHORT_LOCK),
        };
        // Once there is a connection.
        let begin = || ready.begin(READ_COMMITTED, Some(lock_until(deadline).min(longest)));
        let is_usable = |answer: &Result<Rows, PostgresError>| {
            answer
                .as_ref()
                .err()
                .is_none_or(PostgresError::keeps_connection)
        };
        match way {
            Way::Pool(mut connection) => {
                let session = connection.session()?;
                let answer = session.alone(&begin(), statement, values).await;
                if is_usable(&answer) {
                    connection.reuse();
                }
                answer
            }
            Way::Reserved(mut place) => {
                let mut own = match place.take() {
                    Some((own, used)) if used.elapsed() < IDLE => own,
                    _ => self.inner.pool.reserve().await?,
                };
                let answer = own.alone(&begin(), statement, values).await;
                if is_usable(&answer) {
                    *place = Some((own, Instant::now()));
                }
                answer
            }
        }
    }
}

/// Returns whether a write is of a run that may hold a connection: it renews the run, or ends it.
fn is_of_a_run(write: &RecordWrite) -> bool {
    match write {
        // Without a lease it claims nothing: it ends a commit that may be late.
        RecordWrite::Create(claim) | RecordWrite::TakeOver { claim, .. } => claim.lease == RELEASED,
        RecordWrite::Intervene(_) => false,
        _ => true,
    }
}
