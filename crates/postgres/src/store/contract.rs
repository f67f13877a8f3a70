//! The contract of [`Store`]: single requests and groups.

use std::collections::HashMap;
use std::error::Error as _;

use lambda_idempotency::protocol::packed::{LargeOutcome, Place};
use lambda_idempotency::protocol::record::{Found, RecordWrite};
use lambda_idempotency::store::transaction::{Commit, Committed, Write, WriteError};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{RecordId, StoreError};
use tokio::time::Instant;

use super::PostgresStore;
use super::request::{Kind, answer};
use crate::columns::decode;
use crate::driver::Pool;
use crate::error::{PostgresError, Problem};
use crate::sql::admit;
use crate::store::single::Over;
use crate::value::{Cell, Value, arrays};

impl<P: Pool> Store for PostgresStore<P> {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let kind = Kind::of(write)?;
        loop {
            let rows = self.send(kind, &[write], deadline).await?;
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
        let mut answers = HashMap::new();
        for kind in Kind::ALL {
            let is_one = |write: &RecordWrite| Kind::of(write).is_ok_and(|other| other == kind);
            let group = writes.iter().enumerate().filter(|(_, write)| is_one(write));
            let (places, group): (Vec<_>, Vec<_>) = group.unzip();
            if group.is_empty() {
                continue;
            }
            let rows = self.send(kind, &group, deadline).await;
            let is_group = group.len() > 1;
            for (row, (place, write)) in places.into_iter().zip(group).enumerate() {
                let answer = match &rows {
                    Ok(rows) => match rows.get(row).and_then(|row| answer(write, row)) {
                        Some(answer) => Ok(answer),
                        None => self.write(write, deadline).await,
                    },
                    // By itself it waits for no row but its own.
                    Err(error) if is_group && is_of_a_lock(error) => Err(StoreError::NotSent),
                    // The server refuses a whole statement for one of its rows.
                    Err(StoreError::Rejected(_)) if is_group => self.write(write, deadline).await,
                    Err(error) => Err(copy(error)),
                };
                answers.insert(place, answer);
            }
        }
        let answers = writes.iter().enumerate().map(|(place, write)| {
            let unknown = || Kind::of(write).and(Err(StoreError::Timeout));
            answers.remove(&place).unwrap_or_else(unknown)
        });
        answers.collect()
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        match self.loaded(ids, deadline).await {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(StoreError::Rejected(_)) if ids.len() > 1 => {
                let mut found = Vec::with_capacity(ids.len());
                for id in ids {
                    found.push(self.load(id, deadline).await);
                }
                found
            }
            Err(error) => ids.iter().map(|_| Err(copy(&error))).collect(),
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
            self.query(
                Over::Beside,
                |ready| &ready.statements.keep,
                &kept(outcome),
                deadline,
            )
            .await?;
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
        let rows = self
            .query(
                Over::Pool,
                |ready| &ready.statements.fetch,
                &values,
                deadline,
            )
            .await?;
        let cell = rows.into_iter().flatten().next();
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
        let rows = self
            .query(
                Over::Pool,
                |ready| &ready.statements.load,
                &values,
                deadline,
            )
            .await?;
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

/// Tells whether a row, or the table, was locked for too long.
fn is_of_a_lock(error: &StoreError) -> bool {
    let StoreError::Throttled(source) = error else {
        return false;
    };
    let own = source.downcast_ref::<PostgresError>();
    own.is_some_and(|own| own.problem() == Problem::Locked)
}

/// The answers to one group have one cause: each gets its kind and its words.
fn copy(error: &StoreError) -> StoreError {
    let words = || {
        Box::<dyn std::error::Error + Send + Sync>::from(
            error
                .source()
                .map_or_else(|| error.to_string(), ToString::to_string),
        )
    };
    match error {
        StoreError::Timeout => StoreError::Timeout,
        StoreError::NotSent => StoreError::NotSent,
        StoreError::Conflict => StoreError::Conflict,
        StoreError::TooLarge => StoreError::TooLarge,
        StoreError::Throttled(_) => StoreError::Throttled(words()),
        StoreError::Unavailable(_) => StoreError::Unavailable(words()),
        StoreError::Denied(_) => StoreError::Denied(words()),
        StoreError::Unauthenticated(_) => StoreError::Unauthenticated(words()),
        StoreError::Misconfigured(_) => StoreError::Misconfigured(words()),
        _ => StoreError::Rejected(words()),
    }
}
