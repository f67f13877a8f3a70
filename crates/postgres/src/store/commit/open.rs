//! Ends the transaction that a handler has worked in.

use std::time::Duration;

use lambda_idempotency::protocol::record::{Final, Found, RecordWrite, Status};
use lambda_idempotency::protocol::transition_to_final;
use lambda_idempotency::store::transaction::{Commit, Committed};
use lambda_idempotency::{EpochSeconds, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

use super::{PostgresStore, Written, end, write_all, write_record};
use crate::columns::decode;
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::statement::STATE;
use crate::store::contract::kept;
use crate::store::ready::{Ready, within};
use crate::store::single::Over;
use crate::transaction::{Footing, Slot, Xid};
use crate::value::{Cell, Value, arrays, first};

/// The first pause between two questions what became of a transaction, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

impl<P: Pool> PostgresStore<P> {
    pub(super) async fn commit_open(
        &self,
        slot: &Slot<P>,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let connection = slot.close()?;
        let claim = commit.record.and_then(|record| record.claim.as_ref());
        let unlike = match (claim, slot.footing()) {
            // The engine has not heard of the record that is locked, or has heard of one that is gone:
            // it decides by what is there, and commits again.
            (Some(RecordWrite::Create(_)), Footing::Locked(found, _)) => Some(Some(found.clone())),
            (Some(RecordWrite::TakeOver { .. }), Footing::Place(_)) => Some(None),
            _ => None,
        };
        if let Some(found) = unlike {
            slot.put_back(connection)?;
            return Ok(Committed::Fenced(found));
        }
        // Only the server knows whether a handler has sent COMMIT itself: some of the time is for asking it.
        let open = commit.record.zip(slot.footing().xid());
        let left = deadline.saturating_duration_since(Instant::now());
        let until = open.map_or(deadline, |_| deadline - left / 4);
        let ended = self.end_open(connection, slot, commit, until).await;
        match (ended, open) {
            (Err(error), Some((record, xid))) => {
                let refused = self.refused_after(record, xid, deadline).await;
                refused.ok_or_else(|| once_only(error))
            }
            (ended, _) => ended.map_err(once_only),
        }
    }

    async fn end_open(
        &self,
        mut connection: P::Connection,
        slot: &Slot<P>,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let work = async {
            let ready = self.ready(deadline).await?;
            let session = connection.session()?;
            let written = write_end(self, ready, session, slot, commit, deadline).await;
            let is_aborted = written
                .as_ref()
                .is_err_and(|error| error.problem() == Problem::Aborted);
            if is_aborted && slot.footing().xid().is_some() {
                // The engine's transaction, or one that the handler began after it had ended that one.
                session.batch("ROLLBACK").await?;
            }
            Ok((connection, written?))
        };
        let (connection, written) = within(deadline, work).await?;
        end(connection, written, deadline).await
    }

    /// Finds out, over another connection, what became of a transaction whose end has failed. Where it has
    /// committed, returns the record, after the attempt's key was kept from running again. `None` where the
    /// server has rolled it back, or doesn't tell in time.
    async fn refused_after(
        &self,
        record: &Final,
        xid: Xid,
        deadline: Instant,
    ) -> Option<Committed> {
        let xid = [Value::from(xid.to_string())];
        let (mut pause, longest) = PAUSES;
        let asked = async {
            loop {
                let rows = self.query(Over::Beside, |_| STATE, &xid, deadline).await;
                let failed = match rows.map(|rows| State::read(&rows)) {
                    Ok(State::Aborted) => return None,
                    Ok(State::Open) => None,
                    Ok(State::Committed) => match self.spoil(record, deadline).await {
                        Ok(refused) => return Some(refused),
                        Err(error) => Some(error.into()),
                    },
                    Err(error) => Some(error),
                };
                if failed.is_some_and(|error| !error.is_transient()) {
                    return None;
                }
                sleep(pause).await;
                pause = (2 * pause).min(longest);
            }
        };
        timeout_at(deadline, asked).await.ok().flatten()
    }

    /// Keeps an attempt's key from running again, where it is still the attempt's: what the handler has
    /// committed itself must not be written a second time.
    async fn spoil(&self, record: &Final, deadline: Instant) -> Result<Committed, PostgresError> {
        let id = record.completion.id.as_str();
        let found = self.found(id, deadline).await?;
        let is_its_own = found.as_ref().is_some_and(|found| match &record.claim {
            Some(RecordWrite::TakeOver { seen, .. }) => found.version == *seen,
            // A record that is final was committed by the engine.
            _ => {
                found.version.status.as_deref() == Some(Status::InProgress.as_str())
                    && found.version.owner.as_deref() == Some(record.completion.owner.as_str())
            }
        });
        let Some(found) = found.as_ref().filter(|_| is_its_own) else {
            return Ok(Committed::Fenced(found));
        };
        let expiration = record.completion.expiration.0.into();
        let owner = found.version.owner.as_deref().into();
        let status = found.version.status.as_deref().into();
        let spoil = [id.into(), expiration, owner, status];
        let answer = self.answer(Over::Beside, |all| &all.spoil, &spoil, deadline);
        answer.await?;
        Ok(Committed::Fenced(self.found(id, deadline).await?))
    }

    /// Reads a record beside the pool.
    async fn found(&self, id: &str, deadline: Instant) -> Result<Option<Found>, PostgresError> {
        let id = arrays([vec![id.into()]]);
        let answer = self.answer(Over::Beside, |all| &all.load, &id, deadline);
        let rows = answer.await?;
        Ok(rows.first().and_then(|row| decode(row)))
    }
}

async fn write_end<P: Pool>(
    store: &PostgresStore<P>,
    ready: &Ready,
    session: &mut P::Target,
    slot: &Slot<P>,
    commit: Commit<'_>,
    deadline: Instant,
) -> Result<Written, PostgresError> {
    if let Some(outcome) = slot.large_outcome() {
        session
            .execute(&ready.statements.keep, &kept(&outcome))
            .await?;
    }
    // Among the writes, the transaction itself is one.
    let is_last = commit.writes.len() == 1
        && commit.record.is_some()
        && matches!(slot.footing(), Footing::Place(_));
    let fenced = match (commit.record, slot.footing()) {
        (Some(record), Footing::Place(expiration)) => {
            settle(ready, session, record, *expiration, is_last).await?
        }
        (Some(record), Footing::Locked(_, xid) | Footing::Nothing(Some(xid))) => {
            match write_record(ready, session, record, Some(*xid)).await? {
                Err(refused) => Err(left(store, session, record, *xid, refused, deadline).await?),
                applied => applied,
            }
        }
        (Some(_), Footing::Nothing(None)) => return Err(Problem::Over.into()),
        // `COMMIT` doesn't say that a statement before it had failed.
        (None, Footing::Place(_) | Footing::Nothing(None)) => {
            session.query("SELECT true", &[]).await?;
            Ok(())
        }
        // Without a record, a COMMIT of the handler's changes nothing.
        (None, Footing::Locked(_, xid) | Footing::Nothing(Some(xid))) => {
            match state(session, *xid).await? {
                State::Open | State::Committed => Ok(()),
                State::Aborted => return Err(Problem::Over.into()),
            }
        }
    };
    if fenced.is_err() {
        return Ok(fenced);
    }
    let written = write_all(session, store.tables(), commit.writes).await?;
    if written.is_ok() && !is_last {
        ready.carry_out(session).await?;
    }
    Ok(written)
}

/// Writes the record into the place that the transaction took when it began.
async fn settle<S: Session>(
    ready: &Ready,
    session: &mut S,
    record: &Final,
    expiration: EpochSeconds,
    is_last: bool,
) -> Result<Written, PostgresError> {
    let left = transition_to_final(None, record).ok_or(Problem::Refused)?;
    let id = &record.completion.id;
    let (mut statement, values) = ready.statements.settle(id, &left, expiration);
    if is_last {
        statement = ready.carrying_out(statement);
    }
    let settled = session.execute(&statement, &values).await?;
    if settled == 1 {
        return Ok(Ok(()));
    }
    // The handler has ended the transaction itself. After its COMMIT the place is still there, and
    // keeps the handler from running again.
    let id = arrays([vec![record.completion.id.as_str().into()]]);
    let rows = session.query(&ready.statements.load, &id).await?;
    match rows.first().and_then(|row| decode(row)) {
        Some(found) => Ok(Err(Committed::Fenced(Some(found)))),
        None => Err(Problem::Over.into()),
    }
}

/// Returns the reason why the final record was refused: the record that is stored, or a transaction that
/// the handler has ended itself.
async fn left<P: Pool>(
    store: &PostgresStore<P>,
    session: &mut P::Target,
    record: &Final,
    xid: Xid,
    refused: Committed,
    deadline: Instant,
) -> Result<Committed, PostgresError> {
    match state(session, xid).await? {
        State::Aborted => Err(Problem::Over.into()),
        State::Committed if matches!(refused, Committed::Fenced(Some(_))) => {
            // The handler may have begun another transaction, which has locked the record.
            session.batch("ROLLBACK").await?;
            store.spoil(record, deadline).await
        }
        State::Open | State::Committed => Ok(refused),
    }
}

/// The state of a transaction.
enum State {
    Open,
    Committed,
    Aborted,
}

impl State {
    fn read(rows: &[Vec<Cell>]) -> Self {
        match first(rows) {
            Some(Cell::Text(state)) if state == "in progress" => Self::Open,
            Some(Cell::Text(state)) if state == "committed" => Self::Committed,
            _ => Self::Aborted,
        }
    }
}

async fn state<S: Session>(session: &mut S, xid: Xid) -> Result<State, PostgresError> {
    let rows = session.query(STATE, &[xid.to_string().into()]).await?;
    Ok(State::read(&rows))
}

/// The transaction is gone, so that the engine must not send its commit again.
fn once_only(error: StoreError) -> StoreError {
    match error {
        StoreError::Conflict => PostgresError::rejected(Problem::Conflict),
        StoreError::Throttled(source) => StoreError::Rejected(source),
        error => error,
    }
}
