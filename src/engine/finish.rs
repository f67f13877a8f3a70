//! How a claim ends: completed, failed for good, or released.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Serialize;

use crate::claim::Hold;
use crate::engine::patience::persist;
use crate::engine::{Engine, Moment, Request};
use crate::error::StoreError;
use crate::observe;
use crate::protocol::{Settled, settle};
use crate::record::{
    Completion, Failure, Found, Omission, Owner, Record, Release, Status, StoredOutcome,
};
use crate::store::{Answer, Store};

/// What became of a completion.
#[derive(Debug)]
pub(crate) enum Finished {
    /// It stands in the record.
    Recorded,
    /// The lease ran out, and a successor's outcome stands instead.
    Superseded(Box<Record>),
    /// The lease ran out, and somebody else holds the key.
    Lost,
    /// The store didn't take it in time.
    Unrecorded(StoreError),
}

impl<S: Store> Engine<S> {
    /// Stores a success, under the fence.
    pub(crate) async fn complete<T: Serialize>(
        &self,
        request: &Request,
        hold: &Hold,
        value: &T,
    ) -> Finished {
        let completion = self.completion_of(request, hold, value).await;
        self.finish(request, hold, completion).await
    }

    /// A success in the form in which it is stored.
    pub(crate) async fn completion_of<T: Serialize>(
        &self,
        request: &Request,
        hold: &Hold,
        value: &T,
    ) -> Completion {
        // The value's own code runs here. If it panics, the handler has succeeded all the same.
        let text = catch_unwind(AssertUnwindSafe(|| serde_json::to_string(value)));
        let unfit = StoredOutcome::Omitted(Omission::NotSerializable);
        let mut completion = self.completion(request, &hold.owner, Status::Completed, unfit);
        match text {
            Ok(Ok(text)) if text.len() <= self.settings.inline_limit => {
                completion.outcome = StoredOutcome::Inline(text);
            }
            Ok(Ok(text)) => {
                let until = completion.expiration;
                completion.outcome = Box::pin(self.pack(request, hold, &text, until)).await;
            }
            Ok(Err(_)) | Err(_) => {}
        }
        completion
    }

    /// Stores a failure that no retry will mend, under the fence. Failures are short, so they are kept whatever the limit.
    pub(crate) async fn fail(&self, request: &Request, hold: &Hold, failure: &Failure) -> Finished {
        let completion = self.failure_of(request, &hold.owner, failure);
        self.finish(request, hold, completion).await
    }

    /// A failure in the form in which it is stored.
    pub(crate) fn failure_of(
        &self,
        request: &Request,
        owner: &Owner,
        failure: &Failure,
    ) -> Completion {
        let outcome = match serde_json::to_string(failure) {
            Ok(text) => StoredOutcome::Inline(text),
            Err(_) => StoredOutcome::Omitted(Omission::NotSerializable),
        };
        self.completion(request, owner, Status::Failed, outcome)
    }

    /// Tries for as long as the attempt's time allows, since giving up leaves an effect that a duplicate would repeat.
    async fn finish(&self, request: &Request, hold: &Hold, mut completion: Completion) -> Finished {
        let began = self.moment();
        let mut answer = self.send(hold, &completion, began).await;
        if let Err(StoreError::TooLarge) = answer {
            completion.outcome = StoredOutcome::Omitted(Omission::TooLarge);
            answer = self.send(hold, &completion, self.moment()).await;
        }
        let finished = match answer {
            Ok(Answer::Applied(())) => Finished::Recorded,
            Ok(Answer::Refused(found)) => settled(request, &completion, found.as_ref()),
            Err(error) => Finished::Unrecorded(error),
        };
        request.meter.completed_in(began.instant.elapsed());
        observe::finished(request, hold, &completion, &finished);
        finished
    }

    /// Frozen before the first send: each one says the same.
    fn completion(
        &self,
        request: &Request,
        owner: &Owner,
        status: Status,
        outcome: StoredOutcome,
    ) -> Completion {
        let completed_at = self.clock.now();
        let retention = match status {
            Status::Failed => self.settings.failure_retention,
            _ => request.retention,
        };
        Completion {
            id: request.id.clone(),
            owner: owner.clone(),
            status,
            outcome,
            completed_at,
            expiration: (completed_at + retention).ceil_seconds(),
        }
    }

    async fn send(
        &self,
        hold: &Hold,
        completion: &Completion,
        now: Moment,
    ) -> Result<Answer, StoreError> {
        let until = hold.lease - self.settings.rules.skew_margin;
        // Nothing depends on what is only observed, and a finished answer waits meanwhile.
        let limit = match self.observed {
            Some(_) => self.settings.store_timeout,
            None => Duration::MAX,
        };
        let deadline = now.store_deadline(until, limit);
        persist(deadline, StoreError::is_transient, || {
            self.store.complete(completion, deadline)
        })
        .await
    }

    /// Ends the lease, so that a retry runs at once. If that fails, the lease runs out by itself. Another payload may use the
    /// key from then on, unless this attempt or one before it may have had an effect.
    pub(crate) async fn release(&self, request: &Request, hold: &Hold, last_error: Option<&str>) {
        match Owner::random() {
            Ok(tombstone) => drop(self.release_as(tombstone, request, hold, last_error).await),
            Err(error) => observe::release_failed(request, hold, &error),
        }
    }

    /// The same, with what the store answered.
    pub(super) async fn release_as(
        &self,
        tombstone: Owner,
        request: &Request,
        hold: &Hold,
        last_error: Option<&str>,
    ) -> Result<Answer, StoreError> {
        let release = Release {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            tombstone,
            last_error: last_error.map(str::to_owned),
            forget_fingerprint: !hold.keeps_fingerprint,
        };
        let until = hold.lease - self.settings.rules.skew_margin;
        let deadline = self
            .moment()
            .store_deadline(until, self.settings.store_timeout);
        let again =
            |error: &StoreError| matches!(error, StoreError::Throttled | StoreError::Conflict);
        let answer = persist(deadline, again, || self.store.release(&release, deadline)).await;
        match &answer {
            // Refused: somebody else holds the key, or an earlier send of this release applied. Either way it is not ours.
            Ok(Answer::Applied(()) | Answer::Refused(_)) => {
                observe::released(request, hold, last_error);
            }
            Err(error) => observe::release_failed(request, hold, error),
        }
        answer
    }
}

/// What became of a completion whose fence didn't hold.
pub(super) fn settled(
    request: &Request,
    completion: &Completion,
    found: Option<&Found>,
) -> Finished {
    match settle(found, completion, request.fingerprint.as_ref()) {
        Settled::Recorded => Finished::Recorded,
        Settled::Superseded(record) => Finished::Superseded(Box::new(record.clone())),
        Settled::Lost => Finished::Lost,
    }
}
