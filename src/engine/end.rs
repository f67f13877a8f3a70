//! Ends a run: keeps its outcome or releases its key, under the fence, and reads an outcome back.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, mem};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::Instant;

use crate::engine::abandoned::OnDrop;
use crate::engine::begin::Protection;
use crate::engine::claim::{Claim, Hold};
use crate::engine::error::{Error, Obstacle};
use crate::engine::metrics::Count;
use crate::engine::pace::Turns;
use crate::engine::request::{LONGEST, Moment, Times, ending};
use crate::engine::{Engine, Request, events};
use crate::protocol::clock::EpochSeconds;
use crate::protocol::packed::{LargeOutcome, PackedOutcome, Place};
use crate::protocol::record::{
    Completion, Failure, Found, NOT_STARTED, Omission, Owner, Record, RecordWrite, Release, Status,
    StoredOutcome,
};
use crate::protocol::{Settled, settle};
use crate::store::transaction::Refusal;
use crate::store::{Answer, StoreError};

#[cfg(test)]
mod tests;

#[cfg(feature = "http")]
use crate::engine::request::{LEAST_RETENTION, SHORTEST_RETENTION};

/// A begun request has its own run, or the outcome of an earlier one.
#[derive(Debug)]
pub enum Begun {
    /// The request is to be done: do the work, then [`end`](Run::end) the run.
    Run(Run),
    /// The work was done before, with this outcome.
    Replay(Replayed),
}

/// The right to do a request's work once. [`Idempotency::begin`](crate::Idempotency::begin) gives
/// it.
///
/// # Cancellation
///
/// A run that is dropped without its [`end`](Self::end) counts as one whose work was ended before it
/// returned. The engine's next call releases its key, and a retry runs again; under
/// [`OnCrash::Interrupt`](crate::OnCrash::Interrupt) nothing is sent, and the lease runs out.
#[must_use = "a run that is dropped holds its key until the engine's next call"]
pub struct Run {
    pub(super) engine: Arc<Engine>,
    pub(super) claim: Claim,
    pub(super) protection: Protection,
    /// The instant that ends each store call of the run; `None` where none is set.
    pub(super) store_end: Option<Instant>,
}

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

impl Run {
    /// Returns the claim: keys for effects outside, steps, writes, and the time that is left.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Makes the disposition of work that is done. The outcome of a run that nothing protects stays
    /// unmade: no record keeps it.
    pub(crate) fn completion(
        &self,
        outcome: impl FnOnce() -> Result<String, Omission>,
    ) -> Disposition {
        Disposition::Complete(if self.claim.is_protected() {
            outcome()
        } else {
            Ok(String::new())
        })
    }

    /// Sets how long the outcome of this run is kept. Without a claim, never so short that a late
    /// copy of the commit could outlive it.
    #[cfg(feature = "http")]
    pub(crate) fn keep_for(&mut self, retention: Duration) {
        let retention = retention.max(SHORTEST_RETENTION);
        match &mut self.protection {
            Protection::Claimed(request, _) => request.retention = retention,
            Protection::Claimless(request, _) => {
                request.retention = retention.max(LEAST_RETENTION);
            }
            Protection::Shadow(_) | Protection::None => {}
        }
    }

    /// Ends the run.
    ///
    /// # Errors
    ///
    /// The reason why the disposition was not carried out: the lease was lost to another attempt, a
    /// step was interrupted, a transaction did not commit, or the outcome could not be recorded
    /// where the [policy](crate::Unrecorded) makes that an error.
    ///
    /// # Cancellation
    ///
    /// The disposition stands once the future was polled. Where it is dropped before the store has
    /// answered, the engine's next call sends the completion, the failure or the release. A
    /// transaction isn't sent again: its outcome is unknown, and the next call sends a release,
    /// which is refused if the transaction committed.
    pub async fn end(self, disposition: Disposition) -> Result<Ended, Obstacle> {
        let disposition = match disposition {
            Disposition::Complete(Ok(text))
                if serde_json::from_str::<IgnoredAny>(&text).is_err() =>
            {
                Disposition::Complete(Err(Omission::NotSerializable))
            }
            disposition => disposition,
        };
        self.ended(disposition).await
    }

    /// Ends the run with an outcome that is known to be JSON.
    pub(crate) async fn ended(mut self, disposition: Disposition) -> Result<Ended, Obstacle> {
        self.note_late();
        let protection = self.take_protection();
        let Self {
            engine,
            claim,
            store_end,
            ..
        } = &self;
        // Boxed, but for the way that most runs go.
        match protection {
            Protection::Claimed(request, hold) => {
                engine.end_claimed(request, hold, claim, disposition).await
            }
            Protection::Claimless(request, attempt) => {
                Box::pin(engine.end_claimless(request, *attempt, claim, disposition)).await
            }
            Protection::Shadow(shadow) => {
                Box::pin(engine.end_shadow(shadow, claim, disposition, *store_end)).await
            }
            Protection::None => {
                Box::pin(engine.end_unprotected(claim, &disposition, *store_end)).await
            }
        }
    }

    /// Reports work that went on after the deadline of its invocation.
    fn note_late(&self) {
        let (Protection::Claimed(request, _) | Protection::Claimless(request, _)) =
            &self.protection
        else {
            return;
        };
        let deadline = request.options.deadline;
        let late = deadline.and_then(|deadline| self.claim.now().0.checked_sub(deadline.0));
        if let Some(late_ms) = late.filter(|late| *late >= 0) {
            events::deadline_outlived(request, &self.claim, late_ms);
        }
    }

    /// Ends a run whose work panicked: the claim is released, unless crashed attempts wait for a
    /// person.
    pub async fn panicked(self) {
        self.crashed("panic").await;
    }

    /// Ends a run whose work was ended before it returned, as one whose work panicked; one whose key
    /// another attempt has is left to that one. Returns the reason.
    pub(crate) async fn timed_out(mut self, times: Option<Times>) -> Obstacle {
        let is_lost = self.claim.is_lost();
        let error = if is_lost {
            Error::LeaseLost
        } else {
            Error::TimedOut
        };
        if let Protection::Claimed(request, _) | Protection::Claimless(request, _) =
            &self.protection
        {
            events::refused(request, &error);
        }
        if is_lost {
            drop(self.take_protection());
        }
        ending(times, self.crashed("timed out")).await;
        error
    }

    /// Ends a run whose work didn't return: what it did is not known.
    async fn crashed(mut self, last_error: &'static str) {
        match self.take_protection() {
            Protection::Claimed(request, mut hold) => {
                hold.keeps_fingerprint = true;
                self.engine.follow(&self.claim, &mut hold);
                // The tasks that the handler has spawned go on, and ask whether they may.
                self.claim.lose();
                self.engine.end_crashed(&request, &hold, last_error).await;
            }
            Protection::Shadow(Some(shadow)) => {
                let released = Disposition::Release(Some(last_error.into()));
                self.engine.note(*shadow, &released).await;
            }
            Protection::Claimless(request, attempt) => {
                let engine = &self.engine;
                let end = engine.end_claimless_crashed(&request, *attempt, &self.claim);
                Box::pin(end).await;
            }
            Protection::Shadow(None) | Protection::None => {}
        }
    }

    /// Returns the run, unless the time of its handler is over before the work begins: a handler that
    /// is begun then would be ended at its first await.
    pub(crate) async fn in_time(self, times: Option<Times>) -> Result<Self, Obstacle> {
        if times.is_none_or(|times| Instant::now() < times.end) {
            return Ok(self);
        }
        ending(times, async { drop(self.too_late().await) }).await;
        Err(Error::TooLate)
    }

    /// Ends a run whose time was over before its work could begin.
    pub(crate) async fn too_late(self) -> Result<Ended, Obstacle> {
        if let Protection::Claimed(request, _) | Protection::Claimless(request, _) =
            &self.protection
        {
            request.meter.count(Count::TooLate);
        }
        self.not_started().await
    }

    /// Ends a run whose work didn't begin: the attempt doesn't count.
    pub(crate) async fn not_started(self) -> Result<Ended, Obstacle> {
        self.end(Disposition::Release(Some(NOT_STARTED.into())))
            .await
    }
}

impl Run {
    /// Takes the protection away, whose end then is the caller's task.
    fn take_protection(&mut self) -> Protection {
        mem::replace(&mut self.protection, Protection::None)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        match self.take_protection() {
            Protection::Claimed(request, mut hold) => {
                self.engine.leave_dropped(&request, &mut hold, &self.claim);
            }
            Protection::Claimless(..) => {
                drop(self.engine.derived_keys(&self.claim));
            }
            Protection::Shadow(_) | Protection::None => {}
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

/// The state of the fence after a final write.
#[derive(Debug)]
pub(super) enum Fence {
    /// It held: the record has this attempt's outcome.
    Held,
    /// The lease ran out, and the record has a successor's outcome.
    Superseded(Box<Record>),
    /// The lease ran out, and another attempt holds the key.
    Lost,
}

/// Reads the state of the fence from the record that refused a completion.
pub(super) fn fence(request: &Request, completion: &Completion, found: Option<&Found>) -> Fence {
    match settle(found, completion, request.fingerprint.as_ref()) {
        Settled::Recorded => Fence::Held,
        Settled::Superseded(record) => Fence::Superseded(Box::new(record.clone())),
        Settled::Lost => Fence::Lost,
    }
}

/// The reason why a transaction is not known to have committed.
#[derive(Debug)]
pub(super) enum Uncommitted {
    /// A business condition failed: nothing was written.
    Refused(Refusal),
    /// It is certain that nothing was written.
    NotCommitted(StoreError),
    /// Nothing proves whether it committed.
    Unknown(StoreError),
}

impl From<Uncommitted> for Obstacle {
    fn from(uncommitted: Uncommitted) -> Self {
        match uncommitted {
            Uncommitted::Refused(refusal) => Self::Refused(refusal),
            Uncommitted::NotCommitted(error) => Self::NotCommitted(error),
            Uncommitted::Unknown(error) => Self::OutcomeUnknown(error),
        }
    }
}

/// Makes the error of a commit whose last answer is not an error, while an earlier send of it got
/// no answer.
pub(super) fn unanswered() -> StoreError {
    StoreError::Unavailable("a send of the transaction got no answer, and may still arrive".into())
}

/// Tells whether a record is this owner's own.
pub(super) fn is_mine(found: Option<&Found>, owner: &Owner) -> bool {
    found.is_some_and(|found| found.version.owner.as_deref() == Some(owner.as_str()))
}

impl Engine {
    /// Stores a success, under the fence.
    pub(super) async fn complete(
        &self,
        request: &Request,
        hold: &Hold,
        outcome: Result<String, Omission>,
    ) -> Result<Fence, StoreError> {
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

    /// Makes the completion of a success.
    pub(super) async fn completion_of(
        &self,
        request: &Request,
        hold: &Hold,
        outcome: Result<String, Omission>,
    ) -> Completion {
        let (mut completion, large) = self.completed(request, hold, outcome);
        if let Some(text) = large {
            let until = completion.expiration;
            completion.outcome = Box::pin(self.pack(request, hold, &text, until)).await;
        }
        completion
    }

    /// Makes the completion of a success, and returns the text of an outcome that is over the
    /// inline limit beside it.
    fn completed(
        &self,
        request: &Request,
        hold: &Hold,
        outcome: Result<String, Omission>,
    ) -> (Completion, Option<String>) {
        let (outcome, large) = match outcome {
            Ok(text) if text.len() <= self.settings.inline_limit => {
                (StoredOutcome::Inline(text), None)
            }
            Ok(text) => (StoredOutcome::Omitted(Omission::NotKept), Some(text)),
            Err(reason) => (StoredOutcome::Omitted(reason), None),
        };
        let completion = self.completion(request, &hold.owner, Status::Completed, outcome);
        (completion, large)
    }

    /// Stores a failure that no retry will fix, under the fence. Failures are short, so they are
    /// kept whatever the limit.
    pub(super) async fn fail(&self, request: &Request, hold: &Hold, failure: &Failure) {
        let completion = self.failure_of(request, &hold.owner, failure);
        // The caller has the failure already; an event reports what became of the record.
        let _ = self.finish(request, hold, completion).await;
    }

    /// Stores a failure for this long.
    pub(super) async fn fail_for(
        &self,
        request: &Request,
        hold: &Hold,
        failure: &Failure,
        retention: Duration,
    ) {
        let mut completion = self.failure_of(request, &hold.owner, failure);
        completion.expiration = (completion.completed_at + retention).ceil_seconds();
        let _ = self.finish(request, hold, completion).await;
    }

    /// Makes the completion of a failure.
    pub(super) fn failure_of(
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

    /// Sends a completion for as long as the attempt's time allows, since giving up leaves an
    /// effect that a duplicate would repeat.
    pub(super) async fn finish(
        &self,
        request: &Request,
        hold: &Hold,
        completion: Completion,
    ) -> Result<Fence, StoreError> {
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
            return Ok(Fence::Lost);
        };
        self.note_permission(&answer);
        let finished = match answer {
            Ok(Answer::Applied(_)) => Ok(Fence::Held),
            Ok(Answer::Refused(found)) => Ok(fence(request, &completion, found.as_ref())),
            Err(error) => Err(error),
        };
        request.meter.completed_in(began.instant.elapsed());
        events::finished(request, hold.attempt, &completion, &finished);
        finished
    }

    /// Notes whether the function has the permission to complete.
    pub(super) fn note_permission(&self, answer: &Result<Answer, StoreError>) {
        match answer {
            Ok(_) => self.permission.granted(),
            Err(StoreError::Denied(_)) => self.permission.refused(self.clock.now()),
            Err(_) => {}
        }
    }

    /// Makes a completion, whose time is fixed before the first send.
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
        let expiration = (completed_at + retention).ceil_seconds();
        let (id, owner) = (request.id.clone(), owner.clone());
        Completion {
            status,
            ..Completion::new(id, owner, outcome, completed_at, expiration)
        }
    }

    async fn send(
        &self,
        request: &Request,
        hold: &Hold,
        completion: &RecordWrite,
        now: Moment,
    ) -> Result<Answer, StoreError> {
        let until = hold.lease - self.settings.rules.skew_margin;
        // Nothing depends on what is only observed, and a finished answer waits meanwhile.
        let limit = match self.observed {
            Some(_) => self.settings.store_timeout,
            None => Duration::MAX,
        };
        let deadline = request.store_deadline(now, until, limit);
        let send = || self.write(request, completion, deadline);
        let unless_dropped = OnDrop::new(|| self.leave(request, hold, completion.clone(), None));
        let answer = persist(
            Turns::End(&self.pace, &request.id),
            deadline,
            StoreError::is_transient,
            send,
        )
        .await;
        unless_dropped.disarm();
        answer
    }

    /// Ends the lease, so that a retry runs at once. If that fails, the lease runs out by itself.
    /// Another payload may use the key from then on, unless this attempt or one before it may have
    /// had an effect.
    pub(super) async fn release(&self, request: &Request, hold: &Hold, last_error: Option<&str>) {
        match Owner::random() {
            Ok(tombstone) => {
                let again = is_rejected_for_now;
                let release = self.release_as(tombstone, request, hold, last_error, again);
                // An event reports what became of the record.
                let _ = release.await;
            }
            Err(error) => events::release_failed(request, hold.attempt, &error),
        }
    }

    /// Ends the lease with this tombstone, and returns the store's answer. `again` selects the
    /// errors after which the release is sent again.
    pub(super) async fn release_as(
        &self,
        tombstone: Owner,
        request: &Request,
        hold: &Hold,
        last_error: Option<&str>,
        again: fn(&StoreError) -> bool,
    ) -> Result<Answer, StoreError> {
        let release = Release {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            tombstone,
            last_error: last_error.map(str::to_owned),
            forget_fingerprint: !hold.keeps_fingerprint,
        };
        let until = hold.lease - self.settings.rules.skew_margin;
        let timeout = self.settings.store_timeout;
        let deadline = request.store_deadline(self.moment(), until, timeout);
        let release = RecordWrite::Release(release);
        let send = || self.write(request, &release, deadline);
        let unless_dropped = OnDrop::new(|| self.leave(request, hold, release.clone(), None));
        let answer = persist(Turns::End(&self.pace, &request.id), deadline, again, send).await;
        unless_dropped.disarm();
        match &answer {
            // Refused: another attempt holds the key, or an earlier send of this release applied.
            Ok(_) => {
                events::released(request, hold.attempt, last_error);
            }
            Err(error) => events::release_failed(request, hold.attempt, error),
        }
        answer
    }
}

/// The attempt that a replayed outcome comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// The time when the request was first processed; `None` where the record doesn't have it
    /// (another library wrote it).
    pub processed_at: Option<SystemTime>,
    /// The attempt that processed it.
    pub attempt: u32,
}

/// The outcome of an earlier attempt, as its record keeps it.
#[derive(Debug)]
pub struct Replayed {
    request: Box<Request>,
    record: Box<Record>,
    /// The text of an outcome that the record has compressed.
    unpacked: Option<String>,
    /// A successor wrote it while this run's own work was done.
    is_successors: bool,
}

/// The text of an outcome that the request does not ask for.
const NOTHING: &str = "null";

impl Replayed {
    /// Returns the attempt that the outcome comes from.
    pub fn replay(&self) -> Replay {
        Replay {
            processed_at: self.record.completed_at.map(Into::into),
            attempt: self.record.attempt,
        }
    }

    /// Gives the outcome's JSON text.
    pub fn into_json(mut self) -> String {
        events::replayed(&self.request, &self.record);
        match (self.unpacked, self.record.outcome.take()) {
            (Some(text), _) | (None, Some(StoredOutcome::Inline(text))) => text,
            _ => NOTHING.to_owned(),
        }
    }

    /// Decodes the outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] where it doesn't decode as `T`; [`Error::LeaseLost`] where this run's
    /// own work was done, too, and a successor's outcome doesn't decode.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Obstacle> {
        self.give(decode(self.json()))
    }

    /// Decodes the outcome in two steps: from JSON, and then by `from`.
    #[cfg(feature = "http")]
    pub(crate) fn decode_with<K: DeserializeOwned, T, F: std::fmt::Display>(
        &self,
        from: impl FnOnce(K) -> Result<T, F>,
    ) -> Result<T, Obstacle> {
        let kept = decode(self.json());
        self.give(
            kept.and_then(|kept| from(kept).map_err(|error| Error::Unreadable(error.to_string()))),
        )
    }

    fn json(&self) -> &str {
        match (&self.unpacked, &self.record.outcome) {
            (Some(text), _) | (None, Some(StoredOutcome::Inline(text))) => text,
            _ => NOTHING,
        }
    }

    fn give<T>(&self, decoded: Result<T, Obstacle>) -> Result<T, Obstacle> {
        match decoded {
            Ok(value) => {
                events::replayed(&self.request, &self.record);
                Ok(value)
            }
            Err(_) if self.is_successors => Err(Error::LeaseLost),
            Err(error) => {
                events::refused(&self.request, &error);
                Err(error)
            }
        }
    }
}

impl Engine {
    /// Gives the outcome that an earlier attempt left. Where it is a successor's, this attempt's
    /// own work was done, and an outcome that can't be given back means a lost lease.
    pub(super) async fn replay(
        &self,
        request: Box<Request>,
        record: Box<Record>,
        is_successors: bool,
    ) -> Result<Replayed, Obstacle> {
        match self.unpacked(&request, &record).await {
            Ok(unpacked) => Ok(Replayed {
                request,
                record,
                unpacked,
                is_successors,
            }),
            Err(error) if !is_successors => {
                events::refused(&request, &error);
                Err(error)
            }
            Err(error @ Error::OutcomeOmitted { .. }) => Err(error),
            Err(_) => Err(Error::LeaseLost),
        }
    }

    /// Returns the outcome's text, where the record has it compressed; `None` where the record has
    /// it as text.
    async fn unpacked(
        &self,
        request: &Request,
        record: &Record,
    ) -> Result<Option<String>, Obstacle> {
        let is_failure = record.status == Status::Failed;
        let omitted = |reason| Error::OutcomeOmitted {
            reason,
            completed_at: record.completed_at.map(Into::into),
        };
        let unpacked = match &record.outcome {
            Some(StoredOutcome::Inline(text)) if is_failure => {
                return Err(Error::Failed(decode(text)?));
            }
            Some(StoredOutcome::Inline(_)) => return Ok(None),
            Some(StoredOutcome::Packed(packed)) => {
                self.unpack(request, packed).await?.map_err(omitted)?
            }
            // A failure that lost its words is a failure still: it must not pass for something
            // done.
            _ if is_failure => return Err(Error::Failed(Failure::unknown())),
            Some(StoredOutcome::Omitted(reason)) => return Err(omitted(*reason)),
            None => {
                let reason = "a final record without an outcome";
                return Err(Error::Unreadable(reason.to_owned()));
            }
        };
        if is_failure {
            return Err(Error::Failed(decode(&unpacked)?));
        }
        Ok(Some(unpacked))
    }
}

/// Decodes an outcome. The error names the column alone: the parser's message may quote the
/// outcome.
fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Obstacle> {
    serde_json::from_str(text).map_err(|error| {
        Error::Unreadable(format!(
            "the stored outcome no longer decodes as {} (column {})",
            std::any::type_name::<T>(),
            error.column()
        ))
    })
}

/// Makes pauses from 20 ms to 1 s, doubled each time, with jitter, without end.
fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times()
}

/// Sends the same request until it is answered, fails for a reason that `again` rules out, or the
/// deadline would pass. A store that answered by throttling until the deadline cut it off has
/// answered: its error is the result, not the timeout. A request that was sent once and got no answer
/// may have applied, whatever its last try met: that error is the result then.
pub(super) async fn persist<T, Fut>(
    turns: Turns<'_>,
    deadline: Instant,
    mut again: impl FnMut(&StoreError) -> bool,
    mut send: impl FnMut() -> Fut,
) -> Result<T, StoreError>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    let mut earlier = None;
    // Most requests are answered at once: the pauses are made for the second try.
    let mut left = None;
    loop {
        let Some(turn) = turns.next(deadline).await else {
            return Err(told(earlier, no_turn()));
        };
        let error = match send().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_throttled = matches!(error, StoreError::Throttled(_));
        let pause = again(&error).then(|| {
            let pauses = left.get_or_insert_with(|| Box::new(pauses().build()));
            let pause = pauses.next();
            pause.map(|pause| {
                if is_throttled {
                    turns.throttled(turn, pause)
                } else {
                    pause
                }
            })
        });
        match pause.flatten() {
            Some(pause) if Instant::now() + pause < deadline => {
                if error.is_unreachable() || (is_throttled && !is_silence(earlier.as_ref())) {
                    earlier = Some(error);
                }
                Box::pin(tokio::time::sleep(pause)).await;
            }
            _ => return Err(told(earlier, error)),
        }
    }
}

/// Returns the error that tells most of what became of a request: of an earlier try, or of the last.
fn told(earlier: Option<StoreError>, last: StoreError) -> StoreError {
    let is_cut_off = matches!(last, StoreError::Timeout | StoreError::NotSent);
    match earlier {
        Some(error) if error.is_unreachable() && last.is_transient() => error,
        Some(throttled) if is_cut_off && !throttled.is_unreachable() => throttled,
        _ => last,
    }
}

fn is_silence(error: Option<&StoreError>) -> bool {
    error.is_some_and(StoreError::is_unreachable)
}

/// The error of a request that was not sent: its turn would come too late.
fn no_turn() -> StoreError {
    StoreError::Throttled("the requests before this one take all the time that it has".into())
}

/// Tells whether the store has rejected the request, and may take it a moment later.
pub(super) fn is_rejected_for_now(error: &StoreError) -> bool {
    matches!(error, StoreError::Throttled(_) | StoreError::Conflict)
}

/// A wait for another attempt's outcome.
#[derive(Debug)]
pub(super) struct Wait {
    until: Instant,
    pauses: ExponentialBackoff,
}

impl Wait {
    pub(super) fn up_to(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit.min(LONGEST),
            pauses: pauses().build(),
        }
    }

    /// Sleeps before the next look; `false` when the limit is reached.
    pub(super) async fn pause(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.pauses.next() {
            Some(pause) if !left.is_zero() => {
                tokio::time::sleep(pause.min(left)).await;
                true
            }
            _ => false,
        }
    }
}

/// The time by which an outcome is kept longer than its record: a replay that was decided upon in
/// the record's last moment still finds it.
const GRACE: Duration = Duration::from_hours(1);

impl Engine {
    /// Compresses a text over the inline limit, and keeps it in the first place that takes it. The
    /// record can be completed with the result whatever happens.
    pub(super) async fn pack(
        &self,
        request: &Request,
        hold: &Hold,
        text: &str,
        expiration: EpochSeconds,
    ) -> StoredOutcome {
        if !request.options.wants_outcome {
            return StoredOutcome::Omitted(Omission::TooLarge);
        }
        let (packed, content) = PackedOutcome::pack(text);
        if content.len() <= self.settings.inline_limit {
            return StoredOutcome::Packed(packed(Place::Record(content)));
        }
        let until = expiration.to_millis() + self.settings.rules.skew_margin + GRACE;
        let outcome = LargeOutcome {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            content,
            expiration: until.ceil_seconds(),
        };
        // The completion that is to follow gets as much time as this.
        let end = hold.lease - self.settings.rules.skew_margin;
        let now = self.moment();
        let deadline = request.store_deadline(now, end, end.saturating_since(now.time) / 2);
        let keep = || self.store.keep(&outcome, deadline);
        match persist(Turns::Elsewhere, deadline, StoreError::is_transient, keep).await {
            Ok(place) => StoredOutcome::Packed(packed(place)),
            Err(StoreError::TooLarge) => StoredOutcome::Omitted(Omission::TooLarge),
            Err(error) => {
                events::not_kept(request, hold, &error);
                StoredOutcome::Omitted(Omission::NotKept)
            }
        }
    }

    /// Reads the JSON text of a compressed outcome, and verifies it.
    pub(super) async fn unpack(
        &self,
        request: &Request,
        packed: &PackedOutcome,
    ) -> Result<Result<String, Omission>, Obstacle> {
        if !request.options.wants_outcome {
            return Ok(Ok("null".to_owned()));
        }
        let content = match &packed.place {
            Place::Record(content) => Cow::Borrowed(content.as_slice()),
            place => {
                let now = self.moment();
                let until = self.run_until(request, now.time);
                let deadline = request.store_deadline(now, until, self.settings.store_timeout);
                let again = |error: &StoreError| matches!(error, StoreError::Throttled(_));
                let fetch = || self.store.fetch(&request.id, place, deadline);
                match persist(Turns::Elsewhere, deadline, again, fetch).await? {
                    Some(content) => Cow::Owned(content),
                    None => return Ok(Err(Omission::Lost)),
                }
            }
        };
        Ok(packed.unpack(&content).ok_or(Omission::Damaged))
    }
}
