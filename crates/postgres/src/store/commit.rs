//! Commits the record together with business writes.

use lambda_idempotency::StoreError;
use lambda_idempotency::protocol::record::{Basis, Final, NewClaim, RecordWrite};
use lambda_idempotency::protocol::transition_to_final;
use lambda_idempotency::store::transaction::{Commit, Committed, Refusal, Write};
use lambda_idempotency::store::{Answer, Store};
use tokio::time::{Instant, timeout_at};

use super::request::{Kind, answer, whole};
use super::{PostgresStore, within};
use crate::columns::decode;
use crate::driver::{Connection, Pool, Session};
use crate::error::{PostgresError, Problem};
use crate::sql::{Met, Sql};
use crate::transaction::Slot;
use crate::value::{Value, arrays};

mod open;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// What keeps a transaction from committing: `Err` of what is written in it.
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
        match commit.record.map(|record| (record, &record.basis)) {
            None if commit.writes.is_empty() => Ok(Committed::Applied),
            Some((record, Basis::Claimed)) if commit.writes.is_empty() => {
                let write = RecordWrite::Complete(record.completion.clone());
                Ok(committed(self.write(&write, deadline).await?))
            }
            Some((record, Basis::Absent(claim))) if commit.writes.is_empty() => {
                self.insert_final(record, claim, deadline).await
            }
            _ => {
                let work = async {
                    let mut connection = self.connect().await?;
                    let written = self.write_commit(&mut connection, commit).await?;
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
        claim: &NewClaim,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let values = inserted(record, claim)?;
        let insert = &self.statements().insert;
        let rows = self.query(insert, &values, deadline).await?;
        let write = RecordWrite::Create(claim.clone());
        match rows.first().and_then(|row| answer(&write, row)) {
            Some(answer) => Ok(committed(answer)),
            None => Ok(Committed::Fenced(self.load(&claim.id, deadline).await?)),
        }
    }

    /// Writes all of a commit in a transaction: first the record, which is the fence and keeps its row
    /// until the end.
    async fn write_commit(
        &self,
        connection: &mut P::Connection,
        commit: Commit<'_>,
    ) -> Result<Written, PostgresError> {
        let fenced = match commit.record.map(|record| (record, &record.basis)) {
            None => connection.session()?.batch(BEGIN).await.map(|()| Ok(())),
            Some((record, Basis::Absent(claim))) => {
                self.begin_with_insert(connection, record, claim).await
            }
            Some((record, _)) => {
                connection.session()?.batch(BEGIN).await?;
                self.write_record(connection, record).await
            }
        };
        match fenced? {
            Ok(()) => write_all(connection, commit.writes).await,
            refused => Ok(refused),
        }
    }

    async fn begin_with_insert(
        &self,
        connection: &mut P::Connection,
        record: &Final,
        claim: &NewClaim,
    ) -> Result<Written, PostgresError> {
        let values = inserted(record, claim)?;
        let insert = &self.statements().insert;
        let rows = connection.session()?.begin(BEGIN, insert, &values).await?;
        let write = RecordWrite::Create(claim.clone());
        match rows.first().and_then(|row| answer(&write, row)) {
            Some(Answer::Applied(_)) => Ok(Ok(())),
            Some(Answer::Refused(found)) => Ok(Err(Committed::Fenced(found))),
            // It met a record that this statement couldn't see yet.
            None => {
                let id = [Value::from(claim.id.as_str())];
                let rows = connection
                    .session()?
                    .query(&self.statements().lock, &id)
                    .await?;
                let found = rows.first().and_then(|row| decode(row));
                Ok(Err(Committed::Fenced(found)))
            }
        }
    }

    /// Writes a record over one that is there, within a transaction.
    async fn write_record(
        &self,
        connection: &mut P::Connection,
        record: &Final,
    ) -> Result<Written, PostgresError> {
        let take_over = match &record.basis {
            Basis::Version { seen, mode, claim } => Some(RecordWrite::TakeOver {
                seen: seen.clone(),
                mode: *mode,
                claim: claim.clone(),
            }),
            _ => None,
        };
        let complete = RecordWrite::Complete(record.completion.clone());
        for write in take_over.into_iter().chain([complete]) {
            let kind = Kind::of(&write).map_err(|_| Problem::Refused)?;
            let (statement, values) = kind.request(self.statements(), &[&write]);
            let rows = connection.session()?.query(statement, &values).await?;
            let answer = rows.first().and_then(|row| answer(&write, row));
            let answer = answer.unwrap_or(Answer::Refused(None));
            if let Answer::Refused(found) = answer {
                return Ok(Err(Committed::Fenced(found)));
            }
        }
        Ok(Ok(()))
    }
}

/// Returns the values that insert the record that a commit leaves where none was.
fn inserted(record: &Final, claim: &NewClaim) -> Result<Vec<Value>, PostgresError> {
    let left = transition_to_final(None, record).ok_or(Problem::Refused)?;
    Ok(arrays([whole(&claim.id, &left)]))
}

fn committed(answer: Answer) -> Committed {
    match answer {
        Answer::Applied(_) => Committed::Applied,
        Answer::Refused(found) => Committed::Fenced(found),
    }
}

/// Runs the business writes; says which one was refused.
async fn write_all<C: Connection>(
    connection: &mut C,
    writes: &[Write],
) -> Result<Written, PostgresError> {
    let statements = writes.iter().enumerate();
    let statements = statements.filter_map(|(place, write)| Some((place, write.body::<Sql>()?)));
    for (place, sql) in statements {
        let met = match connection
            .session()?
            .execute(&sql.statement, &sql.values)
            .await
        {
            Ok(rows) if sql.affects.is_some_and(|expected| expected != rows) => Met::Rows(rows),
            Ok(_) => continue,
            Err(error) if error.problem() == Problem::Constraint => Met::Constraint(error),
            Err(error) => return Err(error.of_statement()),
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
