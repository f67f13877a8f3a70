//! Ends an attempt under the fence: stores its outcome, or releases its key.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use crate::engine::abandoned::OnDrop;
use crate::engine::claim::Claim;
use crate::engine::error::{Error, Obstacle};
use crate::engine::fence::{Hold, is_mine};
use crate::engine::pace::Turns;
use crate::engine::persist::{is_rejected_for_now, persist};
use crate::engine::time::Moment;
use crate::engine::{Engine, Replayed, Request, events};
use crate::protocol::Settled;
use crate::protocol::record::{
    Completion, Failure, NOT_STARTED, Omission, RecordWrite, Release, StoredOutcome, error_kind,
};
use crate::store::{Answer, StoreError};

/// The disposition says how a run is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// The work is done: store its outcome and replay it to duplicates. The outcome is JSON text;
    /// or the reason why there is none to be kept. A text that is no JSON is not kept.
    Complete(Result<String, Omission>),
    /// The work failed, and no retry will fix it: store the failure and replay it to duplicates.
    Fail(Failure),
    /// A retry may run at once. `Some` names the kind of the error that the work ended with; `None`
    /// where it ended well.
    Release(Option<Cow<'static, str>>),
}

impl Disposition {
    /// Returns the disposition of a handler's error: a failure where no retry will fix it, a release
    /// otherwise.
    pub(crate) fn of_error<E: Display + 'static>(error: &E, is_permanent: bool) -> Self {
        if is_permanent {
            Self::Fail(Failure::of(error))
        } else {
            Self::Release(Some(error_kind::<E>().into()))
        }
    }
}

/// The end of a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended {
    /// The disposition was carried out.
    Done,
    /// The work is done, and its outcome could not be recorded: a duplicate may run again when the
    /// lease is over.
    Unrecorded(StoreError),
    /// Nothing protects the run, so only the writes that were handed to the claim were carried out.
    Unprotected,
    /// Another attempt finished first, and this is its outcome.
    Replay(Replayed),
}

impl Engine {
    /// Stores a success, under the fence.
    pub(super) async fn complete(
        &self,
        request: &Request,
        hold: &Hold,
        outcome: Result<String, Omission>,
    ) -> Result<Settled, StoreError> {
        let (mut completion, large) = self.completed(request, hold, outcome);
        if let Some(text) = large {
            let left = || self.leave(request, hold, completion.clone().into(), Some(text.clone()));
            let unless_dropped = OnDrop::new(left);
            let until = completion.expiration;
            let outcome = Box::pin(self.pack(request, hold, &text, until)).await;
            unless_dropped.disarm();
            completion.outcome = outcome;
        }
        self.finish(request, hold, completion).await
    }

    /// Stores a failure that no retry will fix, under the fence. Failures are short, so they are
    /// kept whatever the limit.
    pub(super) async fn fail(
        &self,
        request: &Request,
        hold: &Hold,
        claim: &Claim,
        failure: &Failure,
    ) -> Result<Settled, StoreError> {
        let mut completion = self.failure_of(request, &hold.owner, failure);
        request.keep_longer(&mut completion, claim.is_to_be_kept());
        self.finish(request, hold, completion).await
    }

    /// Sends a completion for as long as the attempt's time allows, since giving up leaves an
    /// effect that a duplicate would repeat. Without an answer it is left to the next call.
    pub(super) async fn finish(
        &self,
        request: &Request,
        hold: &Hold,
        completion: Completion,
    ) -> Result<Settled, StoreError> {
        let began = self.moment();
        let mut write = RecordWrite::Complete(completion);
        let mut answer = self.send(request, hold, &write, began).await;
        if let (Err(StoreError::TooLarge), RecordWrite::Complete(completion)) =
            (&answer, &mut write)
        {
            completion.outcome = StoredOutcome::Omitted(Omission::TooLarge);
            answer = self.send(request, hold, &write, self.moment()).await;
        }
        let RecordWrite::Complete(completion) = write else {
            return Ok(Settled::Lost);
        };
        if answer.is_ok() {
            self.free_key(&request.id, &hold.owner);
        }
        let finished = answer.map(|answer| match answer {
            Answer::Applied(_) => Settled::Recorded,
            Answer::Refused(found) => request.settle(&completion, found.as_ref()),
        });
        self.note_permission(&finished);
        request.meter.completed_in(began.instant.elapsed());
        events::finished(request, hold.attempt, &completion, &finished);
        finished
    }

    async fn send(
        &self,
        request: &Request,
        hold: &Hold,
        completion: &RecordWrite,
        now: Moment,
    ) -> Result<Answer, StoreError> {
        let until = hold.lease - self.settings.skew_margin;
        // Nothing depends on what is only observed, and a finished answer waits meanwhile.
        let limit = match self.observed {
            Some(_) => self.settings.store_timeout,
            None => Duration::MAX,
        };
        let deadline = self.store_deadline(request, now, until, limit);
        let send = || self.write(request, completion, deadline);
        let unless_answered = OnDrop::new(|| self.leave(request, hold, completion.clone(), None));
        let turns = Turns::End(&self.pace, &request.id);
        let answer = persist(turns, deadline, StoreError::is_transient, send).await;
        if !answer.as_ref().is_err_and(StoreError::is_transient) {
            unless_answered.disarm();
        }
        answer
    }

    /// Ends the handler's run by what became of its completion: with its own outcome, with a
    /// successor's, or with a lost lease.
    pub(super) async fn conclude(
        &self,
        request: Box<Request>,
        claim: &Claim,
        settled: Settled,
    ) -> Result<Ended, Obstacle> {
        if settled != Settled::Recorded {
            claim.lose();
        }
        match settled {
            Settled::Recorded => Ok(Ended::Done),
            Settled::Superseded(record) => {
                let replayed = self.replay(request, record, true);
                Box::pin(replayed).await.map(Ended::Replay)
            }
            Settled::Lost => Err(Error::LeaseLost),
        }
    }

    /// Ends the lease, so that a retry runs at once. If that has no answer, the next call tries again.
    /// Another payload may use the key from then on, unless this attempt or one before it may have
    /// had an effect.
    pub(super) async fn release(&self, request: &Request, hold: &Hold, last_error: Option<&str>) {
        if let Some(release) = Self::new_release(request, hold, last_error) {
            let sent = self.send_release(request, hold, &release, is_rejected_for_now);
            // An event reports what became of the record.
            let _ = sent.await;
        }
    }

    /// Ends the lease with this release, and returns the store's answer. `again` selects the
    /// errors after which it is sent again; without an answer it is left to the next call.
    pub(super) async fn send_release(
        &self,
        request: &Request,
        hold: &Hold,
        release: &Release,
        again: fn(&StoreError) -> bool,
    ) -> Result<Answer, StoreError> {
        let last_error = release.last_error.as_deref();
        let until = hold.lease - self.settings.skew_margin;
        let timeout = self.settings.store_timeout;
        let deadline = self.store_deadline(request, self.moment(), until, timeout);
        let write = RecordWrite::Release(release.clone());
        let send = || self.write(request, &write, deadline);
        let is_released = |answer: &Answer| match answer {
            Answer::Applied(_) => true,
            // An earlier send of this release applied; else another attempt holds the key.
            Answer::Refused(found) => is_mine(found.as_ref(), &release.tombstone),
        };
        let unless_answered = OnDrop::new(|| self.leave(request, hold, write.clone(), None));
        let answer = persist(Turns::End(&self.pace, &request.id), deadline, again, send).await;
        if !answer.as_ref().is_err_and(StoreError::is_transient) {
            unless_answered.disarm();
        }
        if answer.is_ok() || last_error == Some(NOT_STARTED) {
            self.free_key(&request.id, &hold.owner);
        }
        match &answer {
            Ok(answer) if is_released(answer) => {
                events::released(request, hold.attempt, last_error);
            }
            Ok(_) => {}
            Err(error) => events::release_failed(request, hold.attempt, error),
        }
        answer
    }
}
