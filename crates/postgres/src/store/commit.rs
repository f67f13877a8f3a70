//! Commits the record together with business writes.

use std::borrow::Cow;

use lambda_idempotency::StoreError;
use lambda_idempotency::protocol::record::{Final, RecordWrite};
use lambda_idempotency::protocol::transition_to_final;
use lambda_idempotency::store::transaction::{Commit, Committed, Refusal, Write};
use lambda_idempotency::store::{Answer, Store};
use tokio::time::{Instant, timeout_at};

use super::PostgresStore;
use super::ready::{READ_COMMITTED, Ready, lock_until, within};
use super::request::{self, answer, statement_of, whole};
use crate::columns::decode;
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::sql::{Met, Sql};
use crate::statement;
use crate::store::single::Over;
use crate::table::Tables;
use crate::transaction::{Slot, Xid};
use crate::value::{Value, arrays};

mod open;

/// The result of a transaction's writes: an `Err` keeps it from committing.
type Written = Result<(), Committed>;

impl<P: Pool> PostgresStore<P> {
    pub(super) async fn commit_once(
        &self,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        if let Some(slot) = commit.writes.iter().find_map(Write::body::<Slot<P>>) {
            return self.commit_open(slot, commit, deadline).await;
        }
        match commit.record.map(|record| (record, &record.claim)) {
            None if commit.writes.is_empty() => Ok(Committed::Applied),
            Some((record, None)) if commit.writes.is_empty() => {
                let write = RecordWrite::Complete(record.completion.clone());
                Ok(committed(self.write(&write, deadline).await?))
            }
            Some((record, Some(create @ RecordWrite::Create(_)))) if commit.writes.is_empty() => {
                self.insert_final(record, create, deadline).await
            }
            _ => {
                let work = async {
                    let ready = self.ready(deadline).await?;
                    let mut connection = self.free(deadline).await?;
                    let begin = ready.begin(READ_COMMITTED, Some(lock_until(deadline)));
                    let written =
                        write_commit(ready, self.tables(), &begin, &mut connection, commit).await?;
                    if written.is_ok() {
                        ready.carry_out(connection.session()?).await?;
                    }
                    Ok((connection, written))
                };
                let (connection, written) = within(deadline, work).await?;
                end(connection, written, deadline).await
            }
        }
    }

    /// Writes a record where none is, in one statement.
    async fn insert_final(
        &self,
        record: &Final,
        create: &RecordWrite,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let values = inserted(record)?;
        let rows = self.query(Over::Pool, |all| &all.insert, &values, deadline);
        match rows.await?.first().and_then(|row| answer(create, row)) {
            Some(answer) => Ok(committed(answer)),
            None => Ok(Committed::Fenced(self.load(create.id(), deadline).await?)),
        }
    }
}

/// Writes all of a commit in a transaction: first the record, which is the fence and keeps its row
/// until the end.
async fn write_commit<C: Connection>(
    ready: &Ready,
    tables: &Tables,
    begin: &str,
    connection: &mut C,
    commit: Commit<'_>,
) -> Result<Written, PostgresError> {
    let session = connection.session()?;
    let fenced = match commit.record.map(|record| (record, &record.claim)) {
        None => session.batch(begin).await.map(|()| Ok(())),
        Some((record, Some(create @ RecordWrite::Create(_)))) => {
            begin_with_insert(ready, begin, session, record, create).await
        }
        Some((record, _)) => {
            session.batch(begin).await?;
            write_record(ready, session, record, None).await
        }
    };
    match fenced? {
        Ok(()) => write_all(session, tables, commit.writes).await,
        refused => Ok(refused),
    }
}

async fn begin_with_insert<S: Session>(
    ready: &Ready,
    begin: &str,
    session: &mut S,
    record: &Final,
    create: &RecordWrite,
) -> Result<Written, PostgresError> {
    let values = inserted(record)?;
    let insert = &ready.statements.insert;
    let rows = session.begin(begin, insert, &values).await?;
    match rows.first().and_then(|row| answer(create, row)) {
        Some(Answer::Applied(_)) => Ok(Ok(())),
        Some(Answer::Refused(found)) => Ok(Err(Committed::Fenced(found))),
        // It met a record that this statement couldn't see yet.
        None => {
            let id = arrays([vec![create.id().as_str().into()]]);
            let rows = session.query(&ready.statements.load, &id).await?;
            let found = rows.first().and_then(|row| decode(row));
            Ok(Err(Committed::Fenced(found)))
        }
    }
}

/// Writes a record over one that is there, within a transaction: of this id, where it has one.
async fn write_record<S: Session>(
    ready: &Ready,
    session: &mut S,
    record: &Final,
    xid: Option<Xid>,
) -> Result<Written, PostgresError> {
    let complete = RecordWrite::Complete(record.completion.clone());
    for write in record.claim.iter().chain([&complete]) {
        let statement = statement_of(write).map_err(|_| Problem::Refused)?;
        let statement = statement(&ready.statements);
        let statement = match xid {
            Some(xid) => Cow::Owned(statement::within(xid, statement)),
            None => Cow::Borrowed(statement),
        };
        let values = request::values(&[write]);
        let rows = session.query(&statement, &values).await?;
        let answer = rows.first().and_then(|row| answer(write, row));
        let answer = answer.unwrap_or(Answer::Refused(None));
        if let Answer::Refused(found) = answer {
            return Ok(Err(Committed::Fenced(found)));
        }
    }
    Ok(Ok(()))
}

/// Returns the values that insert the record that a commit leaves where none was.
fn inserted(record: &Final) -> Result<Vec<Value>, PostgresError> {
    let left = transition_to_final(None, record).ok_or(Problem::Refused)?;
    Ok(arrays([whole(&record.completion.id, &left)]))
}

fn committed(answer: Answer) -> Committed {
    match answer {
        Answer::Applied(_) => Committed::Applied,
        Answer::Refused(found) => Committed::Fenced(found),
    }
}

/// Runs the business writes; says which one was refused.
async fn write_all<S: Session>(
    session: &mut S,
    tables: &Tables,
    writes: &[Write],
) -> Result<Written, PostgresError> {
    let statements = writes.iter().enumerate();
    let statements = statements.filter_map(|(place, write)| Some((place, write.body::<Sql>()?)));
    for (place, sql) in statements {
        let met = match sql.execute(session, tables).await {
            Ok(rows) if sql.affects.is_some_and(|expected| expected != rows) => Met::Rows(rows),
            Ok(_) => continue,
            Err(error) if error.problem() == Problem::Constraint => Met::Constraint(error),
            Err(error) => return Err(error),
        };
        let refusal = Refusal::new(place, Some(Box::new(met)));
        return Ok(Err(Committed::Refused(refusal)));
    }
    Ok(Ok(()))
}

/// Commits, or rolls back and answers why.
async fn end<C: Connection>(
    mut connection: C,
    written: Written,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    let end = if written.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    let ended = timeout_at(deadline, connection.session()?.batch(end)).await;
    match (written, ended) {
        (Ok(()), Ok(Ok(()))) => {
            connection.reuse();
            Ok(Committed::Applied)
        }
        (Ok(()), Ok(Err(error))) => Err(error.of_statement().into()),
        (Ok(()), Err(_)) => Err(StoreError::Timeout),
        // Nothing was written, whatever became of the connection.
        (Err(refused), ended) => {
            if matches!(ended, Ok(Ok(()))) {
                connection.reuse();
            }
            Ok(refused)
        }
    }
}
