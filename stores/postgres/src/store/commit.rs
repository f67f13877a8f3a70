//! Commits the record together with business writes.

use lambda_idempotency::StoreError;
use lambda_idempotency::protocol::record::{Basis, Final, Found, RecordWrite};
use lambda_idempotency::protocol::transition_to_final;
use lambda_idempotency::store::transaction::{Commit, Committed, Refusal, Write};
use lambda_idempotency::store::{Answer, Store};
use tokio::time::{Instant, timeout_at};

use super::request::{Kind, answer, whole};
use super::{PostgresStore, within};
use crate::driver::{Connection, Pool};
use crate::error::{PostgresError, Problem};
use crate::sql::{Met, Sql};
use crate::transaction::{Footing, Slot};
use crate::value::Value;

/// What the record's own statement found.
enum Fence {
    Passed,
    /// It found this instead.
    Met(Option<Found>),
}

impl<P: Pool> PostgresStore<P> {
    pub(super) async fn commit_once(
        &self,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        if let Some(slot) = commit.writes.iter().find_map(Write::body::<Slot<P>>) {
            return self.commit_open(slot, commit, deadline).await;
        }
        if commit.writes.is_empty() {
            return self.commit_record(commit.record, deadline).await;
        }
        let work = async {
            let mut connection = self.connect().await?;
            if let Fence::Met(found) = self.begin_with(&mut connection, commit.record).await? {
                return Ok((connection, Err(Committed::Fenced(found))));
            }
            let written = write_all(&mut connection, commit.writes).await?;
            Ok((connection, written.map_or(Ok(()), Err)))
        };
        let (connection, written) = within(deadline, work).await?;
        end::<P>(connection, written, deadline).await
    }

    /// Writes a record without business writes, in one statement where one will do.
    async fn commit_record(
        &self,
        record: Option<&Final>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let answer = match record {
            None => return Ok(Committed::Applied),
            Some(record) => match &record.basis {
                Basis::Claimed => {
                    let write = RecordWrite::Complete(record.completion.clone());
                    self.write(&write, deadline).await?
                }
                Basis::Absent(claim) => {
                    let Some(left) = transition_to_final(None, record) else {
                        return Ok(Committed::Fenced(None));
                    };
                    let values = whole(&claim.id, &left);
                    let insert = &self.statements().insert;
                    let rows = self.query(insert, &values, deadline).await?;
                    let write = RecordWrite::Create(claim.clone());
                    match rows.first().and_then(|row| answer(&write, row)) {
                        Some(answer) => answer,
                        None => Answer::Refused(self.load(&claim.id, deadline).await?),
                    }
                }
                _ => {
                    let work = async {
                        let mut connection = self.connect().await?;
                        let fence = self.begin_with(&mut connection, Some(record)).await?;
                        Ok((connection, fence))
                    };
                    let (connection, fence) = within(deadline, work).await?;
                    let written = match fence {
                        Fence::Passed => Ok(()),
                        Fence::Met(found) => Err(Committed::Fenced(found)),
                    };
                    return end::<P>(connection, written, deadline).await;
                }
            },
        };
        Ok(match answer {
            Answer::Applied(_) => Committed::Applied,
            Answer::Refused(found) => Committed::Fenced(found),
        })
    }

    /// Begins a transaction whose first statement is the record's own: it is the fence, and keeps the
    /// row until the commit.
    async fn begin_with(
        &self,
        connection: &mut P::Connection,
        record: Option<&Final>,
    ) -> Result<Fence, PostgresError> {
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
        let Some(record) = record else {
            connection.batch(begin).await?;
            return Ok(Fence::Passed);
        };
        match &record.basis {
            Basis::Absent(claim) => {
                let Some(left) = transition_to_final(None, record) else {
                    return Ok(Fence::Met(None));
                };
                let values = whole(&claim.id, &left);
                let insert = &self.statements().insert;
                let rows = connection.begin(begin, insert, &values).await?;
                let write = RecordWrite::Create(claim.clone());
                match rows.first().and_then(|row| answer(&write, row)) {
                    Some(Answer::Applied(_)) => Ok(Fence::Passed),
                    Some(Answer::Refused(found)) => Ok(Fence::Met(found)),
                    None => {
                        let id = [Value::from(claim.id.as_str())];
                        let rows = connection.query(&self.statements().lock, &id).await?;
                        let found = rows.first().and_then(|row| crate::columns::decode(row));
                        Ok(Fence::Met(found))
                    }
                }
            }
            _ => {
                connection.batch(begin).await?;
                self.write_record(connection, record).await
            }
        }
    }

    /// Writes a record over one that is there, within a transaction.
    async fn write_record(
        &self,
        connection: &mut P::Connection,
        record: &Final,
    ) -> Result<Fence, PostgresError> {
        let complete = RecordWrite::Complete(record.completion.clone());
        let mut writes = vec![complete];
        if let Basis::Version { seen, mode, claim } = &record.basis {
            let take_over = RecordWrite::TakeOver {
                seen: seen.clone(),
                mode: *mode,
                claim: claim.clone(),
            };
            writes.insert(0, take_over);
        }
        for write in writes {
            let Ok(kind) = Kind::of(&write) else {
                return Err(Problem::Refused.into());
            };
            let (statement, values) = kind.request(self.statements(), &[&write]);
            let rows = connection.query(statement, &values).await?;
            match rows.first().and_then(|row| answer(&write, row)) {
                Some(Answer::Applied(_)) => {}
                Some(Answer::Refused(found)) => return Ok(Fence::Met(found)),
                None => return Ok(Fence::Met(None)),
            }
        }
        Ok(Fence::Passed)
    }

    /// Ends the transaction that the handler has worked in.
    async fn commit_open(
        &self,
        slot: &Slot<P>,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> Result<Committed, StoreError> {
        let mut connection = slot.close()?;
        let unlike = match (commit.record.map(|record| &record.basis), slot.footing()) {
            // The engine has not heard of the record that is locked, or has heard of one that is gone:
            // it decides by what is there, and commits again.
            (Some(Basis::Absent(_)), Footing::Locked(found)) => Some(Some(found.clone())),
            (Some(Basis::Version { .. }), Footing::Place) => Some(None),
            _ => None,
        };
        if let Some(found) = unlike {
            slot.put_back(connection)?;
            return Ok(Committed::Fenced(found));
        }
        let work = async {
            let fence = match (commit.record, slot.footing()) {
                (Some(record), Footing::Place) => self.settle(&mut connection, record).await?,
                (Some(record), _) => self.write_record(&mut connection, record).await?,
                (None, _) => {
                    // `COMMIT` doesn't say that a statement had failed.
                    connection.query("SELECT true", &[]).await?;
                    Fence::Passed
                }
            };
            if let Fence::Met(found) = fence {
                return Ok((connection, Err(Committed::Fenced(found))));
            }
            let written = write_all(&mut connection, commit.writes).await?;
            Ok((connection, written.map_or(Ok(()), Err)))
        };
        let (connection, written) = within(deadline, work).await.map_err(once_only)?;
        end::<P>(connection, written, deadline)
            .await
            .map_err(once_only)
    }

    /// Writes the record into the place that the transaction took when it began.
    async fn settle(
        &self,
        connection: &mut P::Connection,
        record: &Final,
    ) -> Result<Fence, PostgresError> {
        let Some(left) = transition_to_final(None, record) else {
            return Ok(Fence::Met(None));
        };
        let values = whole(&record.completion.id, &left);
        let settled = connection
            .execute(&self.statements().settle, &values)
            .await?;
        // The handler has ended the transaction itself.
        if settled != 1 {
            return Err(Problem::Over.into());
        }
        Ok(Fence::Passed)
    }
}

/// The transaction is gone: the engine must not send its commit again as it does where another was in
/// the way.
fn once_only(error: StoreError) -> StoreError {
    match error {
        StoreError::Conflict => PostgresError::rejected(Problem::Conflict),
        StoreError::Throttled(source) => StoreError::Rejected(source),
        error => error,
    }
}

/// Runs the business writes; says what was refused.
async fn write_all<C: Connection>(
    connection: &mut C,
    writes: &[Write],
) -> Result<Option<Committed>, PostgresError> {
    let statements = writes.iter().enumerate();
    let statements = statements.filter_map(|(place, write)| Some((place, write.body::<Sql>()?)));
    for (place, sql) in statements {
        let refused = match connection.execute(&sql.statement, &sql.values).await {
            Ok(rows) if sql.affects.is_some_and(|expected| expected != rows) => Met::Rows(rows),
            Ok(_) => continue,
            Err(error) if error.is_constraint() => Met::Constraint(error),
            Err(error) => return Err(error.of_statement()),
        };
        let refusal = Refusal::new(place, Some(Box::new(refused)));
        return Ok(Some(Committed::Refused(refusal)));
    }
    Ok(None)
}

/// Commits, or rolls back and answers why.
async fn end<P: Pool>(
    mut connection: P::Connection,
    written: Result<(), Committed>,
    deadline: Instant,
) -> Result<Committed, StoreError> {
    let (end, answer) = match written {
        Ok(()) => ("COMMIT", Committed::Applied),
        Err(refused) => ("ROLLBACK", refused),
    };
    match timeout_at(deadline, connection.batch(end)).await {
        Ok(Ok(())) => {
            connection.reuse();
            Ok(answer)
        }
        // Nothing was written, whatever became of the connection.
        _ if end == "ROLLBACK" => Ok(answer),
        Ok(Err(error)) if error.is_constraint() => Err(error.of_statement().into()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(StoreError::Timeout),
    }
}
