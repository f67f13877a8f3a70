//! The contract of [`Store`]: single requests and groups.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::mem::discriminant;

use lambda_idempotency::protocol::packed::{LargeOutcome, Place};
use lambda_idempotency::protocol::record::{Found, RecordWrite};
use lambda_idempotency::store::transaction::{Commit, Committed, Write, WriteError};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{RecordId, StoreError};
use tokio::time::Instant;

use super::PostgresStore;
use super::request::{answer, statement_of};
use crate::columns::decode;
use crate::driver::Pool;
use crate::error::{PostgresError, Problem};
use crate::sql::admit;
use crate::store::single::Over;
use crate::value::{Cell, Value, arrays};

impl<P: Pool> Store for PostgresStore<P> {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let statement = statement_of(write)?;
        loop {
            let rows = self.send(statement, &[write], deadline).await?;
            if let Some(answer) = rows
                .first()
                .map(Vec::as_slice)
                .and_then(|row| answer(write, row))
            {
                return Ok(answer);
            }
            // A create met a record that this statement couldn't see yet.
            if let Some(found) = self.load(write.id(), deadline).await? {
                return Ok(Answer::Refused(Some(found)));
            }
        }
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        let mut found = self.loaded(std::slice::from_ref(id), deadline).await?;
        Ok(found.pop().flatten())
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let mut answers = BTreeMap::new();
        for (place, first) in writes.iter().enumerate() {
            if answers.contains_key(&place) {
                continue;
            }
            let statement = match statement_of(first) {
                Ok(statement) => statement,
                Err(unknown) => {
                    answers.insert(place, Err(unknown));
                    continue;
                }
            };
            let alike = writes.iter().enumerate();
            let alike = alike.filter(|(_, write)| discriminant(*write) == discriminant(first));
            let (places, group): (Vec<_>, Vec<_>) = alike.unzip();
            let rows = self.send(statement, &group, deadline).await;
            let size = group.len();
            for (row, (place, write)) in places.into_iter().zip(group).enumerate() {
                let answer = match &rows {
                    Ok(rows) => {
                        let answer = rows.get(row).and_then(|row| answer(write, row));
                        // A create met a record that this statement couldn't see yet.
                        answer.ok_or(StoreError::NotSent)
                    }
                    Err(error) => Err(copy(error, size)),
                };
                answers.insert(place, answer);
            }
        }
        answers.into_values().collect()
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        match self.loaded(ids, deadline).await {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(error) => ids.iter().map(|_| Err(copy(&error, ids.len()))).collect(),
        }
    }

    fn admission(&self) -> Option<fn(&[Write], &Write) -> Result<(), WriteError>> {
        Some(admit::<P>)
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        self.commit_once(commit, deadline).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        // The commit of an open transaction writes it.
        if !self.inner.open.leave(outcome) {
            let values = kept(outcome);
            let rows = self.query(Over::Beside, |all| &all.keep, &values, deadline);
            rows.await?;
        }
        Ok(Place::Entry(outcome.owner.clone()))
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Place::Entry(owner) = place else {
            return Ok(None);
        };
        let values = [Value::from(id.as_str()), owner.as_str().into()];
        let rows = self.query(Over::Pool, |all| &all.fetch, &values, deadline);
        let cell = rows.await?.into_iter().flatten().next();
        Ok(cell.and_then(|cell| match cell {
            Cell::Bytes(content) => Some(content),
            _ => None,
        }))
    }
}

impl<P: Pool> PostgresStore<P> {
    async fn loaded(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Result<Vec<Option<Found>>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let values = arrays(ids.iter().map(|id| vec![id.as_str().into()]));
        let rows = self.query(Over::Pool, |all| &all.load, &values, deadline);
        let rows = rows.await?;
        Ok(rows.iter().map(|row| decode(row)).collect())
    }
}

/// The values that keep an outcome.
pub(super) fn kept(outcome: &LargeOutcome) -> [Value; 4] {
    [
        outcome.id.as_str().into(),
        outcome.owner.as_str().into(),
        outcome.content.clone().into(),
        outcome.expiration.0.into(),
    ]
}

/// Copies the error of a group of this size for one of the requests. Where another one may be the cause, the
/// caller sends the request alone: one row that is locked holds up a whole statement, and the server refuses
/// it for one value.
fn copy(error: &StoreError, size: usize) -> StoreError {
    let own = error.source();
    let own = own.and_then(|own| own.downcast_ref::<PostgresError>());
    let is_locked = own.is_some_and(|own| own.problem() == Problem::Locked);
    let is_rejected = matches!(error, StoreError::Rejected(_));
    if is_rejected && error.may_have_applied() {
        return StoreError::NotSent.uncertain();
    }
    if size > 1 && (is_locked || is_rejected) {
        return StoreError::NotSent;
    }
    match (own, error) {
        (Some(own), _) => own.clone().into(),
        (None, StoreError::NotSent) => StoreError::NotSent,
        (None, StoreError::Conflict) => StoreError::Conflict,
        (None, _) => StoreError::Timeout,
    }
}
