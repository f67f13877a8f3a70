//! How a claim ends together with business writes: one transaction, under the fence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::claim::Hold;
use crate::clock::EpochMillis;
use crate::engine::finish::settled;
use crate::engine::patience::persist;
use crate::engine::{Engine, Finished, LEAST_STORE_TIME, Request};
use crate::error::StoreError;
use crate::observe;
use crate::record::{Found, Omission, Owner, StoredOutcome};
use crate::store::{Answer, Store};
use crate::transaction::{Basis, Commit, Committed, Final, Refusal, Write};

/// What became of a transaction.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It committed, or the fence was lost and nothing was written. Never `Unrecorded`.
    Finished(Finished),
    /// A business condition failed: nothing was written.
    Refused(Refusal),
    /// It is certain that nothing was written.
    NotCommitted(StoreError),
    /// Nothing proves whether it committed.
    Unknown(StoreError),
}

/// What the record says of a transaction that wasn't confirmed.
enum Proof {
    /// It committed, or a successor took its place.
    Ended(Finished),
    NotCommitted,
    Nothing,
}

impl<S: Store> Engine<S> {
    /// Commits a success and the business writes. Where they are not written, the claim is released.
    pub(crate) async fn commit<T: Serialize>(
        &self,
        request: &Request,
        hold: &Hold,
        value: &T,
        writes: Vec<Write>,
    ) -> Ended {
        let mut record = Final {
            completion: self.completion_of(request, hold, value).await,
            basis: Basis::Claimed,
        };
        let until = hold.lease - self.settings.rules.skew_margin;
        let token = hold.owner.as_str().to_owned();
        let began = Instant::now();
        let ended = match self.send_final(&mut record, token, &writes, until).await {
            Ok(Committed::Applied) => Ended::Finished(Finished::Recorded),
            Ok(Committed::Fenced(found)) => {
                Ended::Finished(settled(request, &record.completion, found.as_ref()))
            }
            Ok(Committed::Refused(refusal)) => {
                match self
                    .prove(request, hold, &record, "a condition failed")
                    .await
                {
                    // An earlier send came later, and its conditions held.
                    Proof::Ended(finished @ Finished::Recorded) => Ended::Finished(finished),
                    _ => Ended::Refused(refusal.asked(writes)),
                }
            }
            Err(error) => match self.prove(request, hold, &record, "not committed").await {
                Proof::Ended(finished) => Ended::Finished(finished),
                Proof::NotCommitted => Ended::NotCommitted(error),
                Proof::Nothing => Ended::Unknown(error),
            },
        };
        request.meter.completed_in(began.elapsed());
        observe::committed(request, hold.attempt, &record.completion, &ended);
        ended
    }

    /// Ends the claim of a transaction that wasn't confirmed, and tells what became of it. Only the fence can tell: a release that
    /// applies proves that it has not committed, and never will; the completed record proves that it has.
    async fn prove(
        &self,
        request: &Request,
        hold: &Hold,
        record: &Final,
        last_error: &str,
    ) -> Proof {
        let Ok(tombstone) = Owner::random() else {
            return Proof::Nothing;
        };
        let released = self.release_as(tombstone.clone(), request, hold, Some(last_error));
        let found = match released.await {
            Ok(Answer::Applied(())) => return Proof::NotCommitted,
            Ok(Answer::Refused(found)) => found,
            Err(_) => return Proof::Nothing,
        };
        // An earlier send of this very release applied.
        if is_mine(found.as_ref(), &tombstone) {
            return Proof::NotCommitted;
        }
        let met = found.as_ref().and_then(|found| found.content.as_ref().ok());
        match settled(request, &record.completion, found.as_ref()) {
            Finished::Recorded => Proof::Ended(Finished::Recorded),
            // A successor took over what was still in progress: this transaction had not committed, and can't any more.
            lost if met.is_some_and(|met| met.attempt > hold.attempt) => Proof::Ended(lost),
            _ => Proof::Nothing,
        }
    }

    /// Sends a final record, alone or with business writes, until it is answered. An outcome that turns out too large for an item is
    /// left out, so that a success can't fail for ever.
    pub(super) async fn send_final(
        &self,
        record: &mut Final,
        mut token: String,
        writes: &[Write],
        until: EpochMillis,
    ) -> Result<Committed, StoreError> {
        let answer = self.send_all(Some(record), &token, writes, until).await;
        if !matches!(answer, Err(StoreError::TooLarge)) {
            return answer;
        }
        record.completion.outcome = StoredOutcome::Omitted(Omission::TooLarge);
        // Another request has another token.
        token.push('o');
        self.send_all(Some(record), &token, writes, until).await
    }

    /// Leaves time to find out, should no answer come.
    async fn send_all(
        &self,
        record: Option<&Final>,
        token: &str,
        writes: &[Write],
        until: EpochMillis,
    ) -> Result<Committed, StoreError> {
        let deadline = self
            .moment()
            .store_deadline(until - LEAST_STORE_TIME, Duration::MAX);
        let commit = Commit {
            token,
            record,
            writes,
        };
        // A send without an answer may have applied, whatever a later one is told.
        let silent = AtomicBool::new(false);
        let send = || async {
            let answer = self.store.commit(commit, deadline).await;
            let is_silent = matches!(&answer, Err(error) if error.is_unreachable());
            silent.fetch_or(is_silent, Ordering::Relaxed);
            answer
        };
        match persist(deadline, StoreError::is_transient, send).await {
            Err(error @ (StoreError::Unavailable(_) | StoreError::TooLarge)) => Err(error),
            Err(error) if silent.into_inner() => Err(StoreError::Unavailable(error.into())),
            answer => answer,
        }
    }

    /// Commits business writes without a record, for a run that nothing protects: all of them, or none.
    pub(crate) async fn commit_unprotected(
        &self,
        writes: Vec<Write>,
        deadline: Option<EpochMillis>,
    ) -> Result<(), Ended> {
        let owner = Owner::random()
            .map_err(|error| Ended::NotCommitted(StoreError::Rejected(error.into())))?;
        let until = deadline.unwrap_or(self.clock.now() + self.settings.lease);
        match self.send_all(None, owner.as_str(), &writes, until).await {
            Ok(Committed::Applied) => Ok(()),
            Ok(Committed::Refused(refusal)) => Err(Ended::Refused(refusal.asked(writes))),
            Ok(Committed::Fenced(_)) => Err(Ended::Finished(Finished::Lost)),
            Err(error) => Err(doubtful(error)),
        }
    }
}

/// Without a claim there is nothing to release, so that only a refusal in the store's own words proves anything.
pub(super) fn doubtful(error: StoreError) -> Ended {
    if error.is_transient() {
        Ended::Unknown(error)
    } else {
        Ended::NotCommitted(error)
    }
}

/// Whether a record is this owner's own.
pub(super) fn is_mine(found: Option<&Found>, owner: &Owner) -> bool {
    found.is_some_and(|found| found.version.owner.as_deref() == Some(owner.as_str()))
}
