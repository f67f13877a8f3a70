//! Ends the transaction that a handler has worked in.

use lambda_idempotency::protocol::record::{Basis, Final};
use lambda_idempotency::protocol::transition_to_final;
use lambda_idempotency::store::transaction::{Commit, Committed};
use lambda_idempotency::{EpochSeconds, StoreError};
use tokio::time::Instant;

use super::{PostgresStore, Written, end, write_all, write_record};
use crate::columns::decode;
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::statement::STATE;
use crate::store::contract::kept;
use crate::store::ready::{READ_COMMITTED, Ready, lock_until, within};
use crate::table::Tables;
use crate::transaction::{Footing, Slot, Xid};
use crate::value::{Cell, arrays, first};

impl<P: Pool> PostgresStore<P> {
    pub(super) async fn commit_open(
        &self,
        slot: &Slot<P>,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let mut connection = slot.close()?;
        let unlike = match (commit.record.map(|record| &record.basis), slot.footing()) {
            // The engine has not heard of the record that is locked, or has heard of one that is gone:
            // it decides by what is there, and commits again.
            (Some(Basis::Absent(_)), Footing::Locked(found, _)) => Some(Some(found.clone())),
            (Some(Basis::Version { .. }), Footing::Place(_)) => Some(None),
            _ => None,
        };
        if let Some(found) = unlike {
            slot.put_back(connection)?;
            return Ok(Committed::Fenced(found));
        }
        let work = async {
            let ready = self.ready().await?;
            let session = connection.session()?;
            let written = write_end(ready, self.tables(), session, slot, commit, deadline).await;
            let written = match written {
                Err(error) if matches!(error.problem(), Problem::Aborted) => {
                    aborted(ready, session, slot, commit, deadline)
                        .await?
                        .ok_or(error)
                }
                written => written,
            }?;
            Ok((connection, written))
        };
        let (connection, written) = within(deadline, work).await.map_err(once_only)?;
        end(connection, written, deadline).await.map_err(once_only)
    }
}

async fn write_end<P: Pool>(
    ready: &Ready,
    tables: &Tables,
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
                Err(refused) => Err(left(ready, session, record, *xid, refused, deadline).await?),
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
            state(session, *xid).await?;
            Ok(())
        }
    };
    if fenced.is_err() {
        return Ok(fenced);
    }
    let written = write_all(session, tables, commit.writes).await?;
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

/// Tells why a record was refused: by what is there, or because the handler has ended the transaction
/// itself.
async fn left<S: Session>(
    ready: &Ready,
    session: &mut S,
    record: &Final,
    xid: Xid,
    refused: Committed,
    deadline: Instant,
) -> Result<Committed, PostgresError> {
    match (state(session, xid).await?, &refused) {
        (State::Committed, Committed::Fenced(Some(_))) => {
            spoil(ready, session, record, deadline).await
        }
        _ => Ok(refused),
    }
}

/// Finds out whether a transaction in which a statement had failed is one that the handler began after
/// it had ended the engine's; `None` where it is the engine's own.
async fn aborted<P: Pool>(
    ready: &Ready,
    session: &mut P::Target,
    slot: &Slot<P>,
    commit: Commit<'_>,
    deadline: Instant,
) -> Result<Option<Written>, PostgresError> {
    let (Some(record), Footing::Locked(_, xid) | Footing::Nothing(Some(xid))) =
        (commit.record, slot.footing())
    else {
        return Ok(None);
    };
    session.batch("ROLLBACK").await?;
    if !matches!(state(session, *xid).await, Ok(State::Committed)) {
        return Ok(None);
    }
    let refused = spoil(ready, session, record, deadline).await?;
    Ok(Some(Err(refused)))
}

/// Keeps an attempt's key from running again, where it is still the attempt's: what the handler has
/// committed itself must not be written a second time.
async fn spoil<S: Session>(
    ready: &Ready,
    session: &mut S,
    record: &Final,
    deadline: Instant,
) -> Result<Committed, PostgresError> {
    // The handler may have begun another transaction.
    session.batch("ROLLBACK").await?;
    let begin = ready.begin(READ_COMMITTED, Some(lock_until(deadline)));
    let statements = &ready.statements;
    let id = record.completion.id.as_str();
    let load = arrays([vec![id.into()]]);
    let rows = session.alone(&begin, &statements.load, &load).await?;
    let found = rows.first().and_then(|row| decode(row));
    let is_its_own = found.as_ref().is_some_and(|found| match &record.basis {
        Basis::Version { seen, .. } => found.version == *seen,
        _ => found.version.owner.as_deref() == Some(record.completion.owner.as_str()),
    });
    let Some(found) = found.as_ref().filter(|_| is_its_own) else {
        return Ok(Committed::Fenced(found));
    };
    let expiration = record.completion.expiration.0.into();
    let owner = found.version.owner.as_deref().into();
    let spoil = [id.into(), expiration, owner];
    session.alone(&begin, &statements.spoil, &spoil).await?;
    let rows = session.alone(&begin, &statements.load, &load).await?;
    Ok(Committed::Fenced(rows.first().and_then(|row| decode(row))))
}

/// The state of a transaction that has not been rolled back.
enum State {
    Open,
    Committed,
}

async fn state<S: Session>(session: &mut S, xid: Xid) -> Result<State, PostgresError> {
    let rows = session.query(STATE, &[xid.to_string().into()]).await?;
    match first(&rows) {
        Some(Cell::Text(state)) if state == "in progress" => Ok(State::Open),
        Some(Cell::Text(state)) if state == "committed" => Ok(State::Committed),
        _ => Err(Problem::Over.into()),
    }
}

/// The transaction is gone, so that the engine must not send its commit again.
fn once_only(error: StoreError) -> StoreError {
    match error {
        StoreError::Conflict => PostgresError::rejected(Problem::Conflict),
        StoreError::Throttled(source) => StoreError::Rejected(source),
        error => error,
    }
}
