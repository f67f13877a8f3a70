//! Commits an outcome together with business writes, in one transaction: under the fence of a claim, or
//! without a claim.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::abandoned::OnDrop;
use crate::engine::claim::Claim;
use crate::engine::error::{Error, Obstacle, unanswered};
use crate::engine::fence::{Hold, is_mine};
use crate::engine::finish::{Disposition, Ended};
use crate::engine::metrics::Count;
use crate::engine::pace::Turns;
use crate::engine::persist::{is_rejected_for_now, persist};
use crate::engine::request::MAX_ROUNDS;
use crate::engine::settings::InFlight;
use crate::engine::{Engine, LEAST_STORE_TIME, Request, events};
use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::Journal;
use crate::protocol::record::{
    Completion, Final, Found, Omission, Owner, RELEASED, Record, RecordWrite, StoredOutcome,
    Takeover,
};
use crate::protocol::{Asking, Decision, Settled, decide};
use crate::store::transaction::{Commit, Committed, Unwritten, Write};
use crate::store::{Answer, StoreError};

/// The longest time for the sends of a commit without a record: only the request's token tells them
/// apart, and DynamoDB
/// [remembers it for 10 minutes](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html).
const LONGEST_BY_TOKEN: Duration = Duration::from_mins(5);

/// The last error of a claim whose commit has not applied.
pub(super) const NOT_COMMITTED: &str = "not committed";

/// The answer to a commit, and whether it speaks for all sends of it.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) answer: Result<Committed, StoreError>,
    /// A send got no answer: it may have applied, or still apply, even if a later send was
    /// answered.
    pub(super) is_silent: bool,
}

/// What a record proves about an unconfirmed transaction.
enum Proof {
    /// It committed, or a successor took its place.
    Settled(Settled),
    NotCommitted,
    Nothing,
}

impl Engine {
    /// Commits a success and the business writes. Where they are not written, the claim is
    /// released.
    ///
    /// Dropped before the commit was answered, it leaves a release: where the commit has applied,
    /// the record is final and refuses it; where the commit arrives later, it meets a tombstone and
    /// is refused. The writes themselves are not left: nobody would learn whether their conditions
    /// held.
    pub(super) async fn commit(
        &self,
        request: &Request,
        hold: &Hold,
        claim: &Claim,
        outcome: Result<String, Omission>,
        writes: Vec<Write>,
    ) -> Result<Settled, Obstacle> {
        let left = || {
            claim.lose();
            self.leave_release(request, hold, NOT_COMMITTED);
        };
        let unless_dropped = OnDrop::new(left);
        let mut record = Final {
            completion: self.completion_of(request, hold, outcome).await,
            claim: None,
        };
        let until = hold.lease - self.settings.skew_margin;
        let token = hold.owner.as_str().to_owned();
        let began = Instant::now();
        let end = self.store_end(request, self.moment());
        let sent = self.send_final(&mut record, token, &writes, until, end);
        let Sent { answer, is_silent } = sent.await;
        unless_dropped.disarm();
        if matches!(answer, Ok(Committed::Refused(_)) | Err(_)) {
            // A retry may run at once. Tasks that the handler has spawned go on, and ask whether they may.
            claim.lose();
        } else {
            self.free_key(&request.id, &hold.owner);
        }
        let committed = match answer {
            Ok(Committed::Applied) => Ok(Settled::Recorded),
            Ok(Committed::Fenced(found)) => Ok(request.settle(&record.completion, found.as_ref())),
            Ok(Committed::Refused(refusal)) => {
                let reason = "a condition failed";
                match self.prove(request, hold, &record, reason, is_silent).await {
                    // An earlier send came later, and its conditions held.
                    Proof::Settled(Settled::Recorded) => Ok(Settled::Recorded),
                    Proof::Nothing if is_silent => Err(Error::OutcomeUnknown(unanswered())),
                    _ => Err(Error::Refused(refusal.asked(writes))),
                }
            }
            Err(error) => {
                match self
                    .prove(request, hold, &record, NOT_COMMITTED, is_silent)
                    .await
                {
                    Proof::Settled(settled) => Ok(settled),
                    Proof::Nothing if is_silent => Err(Error::OutcomeUnknown(error)),
                    // Each send was answered, and none of them applied.
                    Proof::Nothing | Proof::NotCommitted => Err(Error::NotCommitted(error)),
                }
            }
        };
        if matches!(committed, Ok(Settled::Recorded)) {
            self.permission.granted();
        }
        request.meter.completed_in(began.elapsed());
        events::committed(request, hold.attempt, &record.completion, &committed);
        committed
    }

    /// Ends the claim of a transaction that wasn't confirmed, and finds out whether it committed.
    /// Only the fence proves that: a release that applies proves that it has not committed, and
    /// never will; the completed record proves that it has. Where a send was silent, the release is
    /// sent until it is answered, for as long as the time allows.
    async fn prove(
        &self,
        request: &Request,
        hold: &Hold,
        record: &Final,
        last_error: &str,
        is_silent: bool,
    ) -> Proof {
        let Some(release) = Self::new_release(request, hold, Some(last_error)) else {
            return Proof::Nothing;
        };
        let again: fn(&StoreError) -> bool = if is_silent {
            StoreError::is_transient
        } else {
            is_rejected_for_now
        };
        let found = match self.send_release(request, hold, &release, again).await {
            Ok(Answer::Applied(_)) => return Proof::NotCommitted,
            Ok(Answer::Refused(found)) => found,
            Err(_) => return Proof::Nothing,
        };
        // An earlier send of this very release applied.
        if is_mine(found.as_ref(), &release.tombstone) {
            return Proof::NotCommitted;
        }
        let met = found.as_ref().and_then(Found::record);
        match request.settle(&record.completion, found.as_ref()) {
            Settled::Recorded => Proof::Settled(Settled::Recorded),
            // A successor took over what was still in progress: this transaction had not committed,
            // and can't any more.
            lost if met.is_some_and(|met| met.attempt > hold.attempt) => Proof::Settled(lost),
            _ => Proof::Nothing,
        }
    }

    /// Sends a final record, alone or with business writes, until it is answered. An outcome that
    /// turns out too large for the store is left out, so that a success can't fail for ever.
    async fn send_final(
        &self,
        record: &mut Final,
        mut token: String,
        writes: &[Write],
        until: EpochMillis,
        end: Option<Instant>,
    ) -> Sent {
        let first = self
            .send_commit(Some(record), &token, writes, until, end)
            .await;
        if !matches!(first.answer, Err(StoreError::TooLarge)) {
            return first;
        }
        record.completion.outcome = StoredOutcome::Omitted(Omission::TooLarge);
        // Another request has another token.
        token.push('o');
        let second = self
            .send_commit(Some(record), &token, writes, until, end)
            .await;
        Sent {
            is_silent: first.is_silent || second.is_silent,
            ..second
        }
    }

    /// Sends a commit until it is answered, and leaves time to find out what became of it where no
    /// answer comes; none of it lasts beyond `end`. The store sends it once for each call, so each
    /// send without an answer is seen here.
    pub(super) async fn send_commit(
        &self,
        record: Option<&Final>,
        token: &str,
        writes: &[Write],
        until: EpochMillis,
        end: Option<Instant>,
    ) -> Sent {
        let longest = match record {
            Some(_) => Duration::MAX,
            None => LONGEST_BY_TOKEN,
        };
        let deadline = self
            .moment()
            .store_deadline(until - LEAST_STORE_TIME, longest, end);
        let commit = Commit::new(token, record, writes);
        let silent = AtomicBool::new(false);
        let send = || async {
            let answer = self.store.commit(commit, deadline).await;
            let is_silent = matches!(&answer, Err(error) if error.may_have_applied());
            silent.fetch_or(is_silent, Ordering::Relaxed);
            answer
        };
        // Without a record, a store that doesn't honour tokens would apply both sends.
        let again: fn(&StoreError) -> bool = if record.is_some() || self.store.honours_tokens() {
            StoreError::is_transient
        } else {
            is_rejected_for_now
        };
        let answer = persist(Turns::Elsewhere, deadline, again, send).await;
        Sent {
            answer,
            is_silent: silent.into_inner(),
        }
    }
}

/// One attempt without a claim.
#[derive(Debug)]
pub(super) struct Unclaimed {
    pub(super) owner: Owner,
    /// The time when the attempt must be done.
    pub(super) until: EpochMillis,
    pub(super) started_at: EpochMillis,
    /// The record that a hinted redelivery read.
    pub(super) found: Option<Found>,
}

/// The result of an attempt without a claim.
#[derive(Debug)]
enum Applied {
    /// The commit was sent, with this result.
    Sent(Result<Settled, Obstacle>),
    /// An earlier outcome, or failure, is final and is replayed.
    Replay(Box<Record>),
}

impl Engine {
    /// Makes the hold that an attempt without a claim would have.
    pub(super) fn hold_of(&self, attempt: &Unclaimed) -> Hold {
        Hold {
            owner: attempt.owner.clone(),
            attempt: 1,
            lease: attempt.until + self.settings.skew_margin,
            keeps_fingerprint: false,
            journal: Journal::default(),
            began: self.moment(),
        }
    }

    /// Describes the record that an attempt's own transaction will write.
    pub(super) fn unwritten(&self, request: &Request, attempt: &Unclaimed) -> Unwritten {
        let wait = match self.settings.in_flight {
            InFlight::FailFast => Duration::ZERO,
            InFlight::WaitUpTo(limit) => self.longest_wait(request, limit),
        };
        let generation = self.keys_of(request, attempt, attempt.started_at);
        Unwritten {
            id: request.id.clone(),
            owner: attempt.owner.clone(),
            expiration: (attempt.started_at + request.retention).ceil_seconds(),
            fingerprint: request.fingerprint.clone(),
            rules: self.settings.rules(),
            wait,
            deadline: request.options.deadline,
            clock: Arc::clone(&self.clock),
            met: Mutex::default(),
            generation: generation.into(),
        }
    }

    /// Returns the generation of the keys that the record, as it was found, lets an attempt derive.
    fn keys_of(&self, request: &Request, attempt: &Unclaimed, now: EpochMillis) -> u32 {
        let asking = Asking::new(&attempt.owner, request.fingerprint.as_ref(), now);
        let found = attempt.found.as_ref();
        decide(found, asking, &self.settings.rules()).key_generation(found)
    }

    /// Compares the keys that a run without a claim has derived with those of this generation, and tells
    /// whether they differ. If so, each later attempt reads its record first.
    fn compare_keys(&self, claim: &Claim, generation: u32) -> bool {
        let derived = claim.derived_generation();
        let differs = derived.is_some_and(|derived| derived != generation);
        if differs {
            self.reads_first.store(true, Ordering::Relaxed);
        }
        differs
    }

    /// Ends a run without a claim whose work didn't return: nothing is written.
    pub(super) async fn end_claimless_crashed(
        &self,
        request: &Request,
        mut attempt: Unclaimed,
        claim: &Claim,
    ) {
        if claim.derived_generation().is_some()
            && let Ok(found) = self.look(request).await
        {
            attempt.found = found;
            self.compare_keys(claim, self.keys_of(request, &attempt, self.clock.now()));
        }
    }

    pub(super) async fn end_claimless(
        &self,
        request: Box<Request>,
        mut attempt: Unclaimed,
        claim: &Claim,
        disposition: Disposition,
    ) -> Result<Ended, Obstacle> {
        // Tasks that the handler has spawned go on, and ask whether they may.
        let unless_committed = OnDrop::new(|| claim.lose());
        let mut writes = claim.collected().close();
        if !matches!(disposition, Disposition::Complete(_)) {
            // An open transaction among them holds the record's place.
            writes.clear();
        }
        if let Some((found, met_at)) = claim.unwritten().and_then(Unwritten::take_met) {
            attempt.found = Some(found);
            // The record counts as it was when the transaction met it, whatever the handler made of it,
            // unless a later transaction holds the place.
            if writes.is_empty() {
                let record = self.record_in_the_way(&request, &attempt, met_at);
                let record = record.inspect_err(|error| events::refused(&request, error));
                if let Some(record) = record.transpose() {
                    self.compare_keys(claim, self.keys_of(&request, &attempt, met_at));
                    return self
                        .replay(request, record?, false)
                        .await
                        .map(Ended::Replay);
                }
            }
        }
        attempt.until = self.commit_until(&request, attempt.until);
        let earlier = match disposition {
            Disposition::Complete(outcome) => {
                let hold = self.hold_of(&attempt);
                let completion = self.completion_of(&request, &hold, outcome).await;
                let applied = self.apply(&request, attempt, claim, completion, writes);
                let applied = applied.await;
                match applied.inspect_err(|error| events::refused(&request, error))? {
                    Applied::Sent(sent) => {
                        let settled = sent?;
                        unless_committed.disarm();
                        return self.conclude(request, claim, settled).await;
                    }
                    Applied::Replay(record) => Some(record),
                }
            }
            Disposition::Fail(failure) => {
                let failure = self.failure_of(&request, &attempt.owner, &failure);
                let applied = self.apply(&request, attempt, claim, failure, Vec::new());
                match applied.await {
                    Ok(Applied::Replay(record)) => Some(record),
                    // The key is another attempt's, or the failure was found under keys that are derived
                    // no more: the caller may not take it for the end.
                    Err(error @ Error::InFlight { .. }) => {
                        events::refused(&request, &error);
                        return Err(error);
                    }
                    // It is counted where it is reported.
                    Ok(Applied::Sent(Err(Error::Refused(_) | Error::NotCommitted(_)))) => None,
                    // Not stored, it fails again, which changes nothing.
                    Ok(Applied::Sent(_)) | Err(_) => {
                        request.meter.count(Count::Failures);
                        None
                    }
                }
            }
            // A duplicate may fail because the original has succeeded: it gets the original's
            // outcome.
            Disposition::Release(_) => {
                let looked = self.look(&request).await.map(|found| {
                    let now = self.clock.now();
                    attempt.found = found;
                    self.compare_keys(claim, self.keys_of(&request, &attempt, now));
                    self.record_in_the_way(&request, &attempt, now)
                });
                match looked {
                    Ok(Ok(earlier)) => earlier,
                    Ok(Err(error @ Error::Mismatch)) => {
                        events::refused(&request, &error);
                        return Err(error);
                    }
                    Ok(Err(_)) | Err(_) => None,
                }
            }
        };
        match earlier {
            Some(record) => self.replay(request, record, false).await.map(Ended::Replay),
            None => Ok(Ended::Done),
        }
    }

    /// Returns the time by which a run without a claim must have committed: a handler that outlived its
    /// lease, or its deadline, needs time to commit, too.
    fn commit_until(&self, request: &Request, until: EpochMillis) -> EpochMillis {
        if request.options.deadline.is_some() && !self.settings.work_goes_on(&request.options) {
            return until;
        }
        until.max(self.clock.now() + self.settings.store_timeout)
    }

    /// Returns the record that was found, where it is final at this time; `None` where the attempt may
    /// write its own.
    pub(super) fn record_in_the_way(
        &self,
        request: &Request,
        attempt: &Unclaimed,
        now: EpochMillis,
    ) -> Result<Option<Box<Record>>, Obstacle> {
        let asking = Asking::new(&attempt.owner, request.fingerprint.as_ref(), now);
        match decide(attempt.found.as_ref(), asking, &self.settings.rules()) {
            Decision::Create | Decision::TakeOver { .. } => Ok(None),
            Decision::Replay(record) | Decision::ReplayFailure(record) => {
                Ok(Some(Box::new(record.clone())))
            }
            other => Err(self.obstacle_of(request, attempt.found.as_ref(), &other, now)),
        }
    }

    /// Returns the obstacle that the record means which was found. One of no attempt stands for a record
    /// that no store shows yet: nobody knows its lease, so that no message is hidden until then.
    fn obstacle_of(
        &self,
        request: &Request,
        found: Option<&Found>,
        decision: &Decision<'_>,
        now: EpochMillis,
    ) -> Obstacle {
        let record = found.and_then(Found::record);
        if request.options.is_batch() && record.is_some_and(|record| record.attempt == 0) {
            return self.in_flight(request, Duration::ZERO);
        }
        self.obstacle(request, decision, now)
    }

    /// Writes the outcome and the business writes, if the record has no other outcome; where its commit
    /// meets a claim, it waits as a run with a claim does. Where a send of any round was silent, the key
    /// is fenced off before it is said that nothing was written.
    ///
    /// Nothing is written where the record gives other keys than those that the handler derived: the
    /// next attempt reads the record first.
    async fn apply(
        &self,
        request: &Request,
        attempt: Unclaimed,
        claim: &Claim,
        mut completion: Completion,
        writes: Vec<Write>,
    ) -> Result<Applied, Obstacle> {
        let Unclaimed {
            owner,
            mut until,
            started_at,
            mut found,
        } = attempt;
        let mut wait = self.wait(request);
        let (mut has_silent, mut round) = (false, 0);
        while round < MAX_ROUNDS {
            let now = self.clock.now();
            // The record of another attempt may have expired since: nothing would refuse a second commit.
            if now >= started_at + request.retention {
                return Ok(uncommitted(request, &completion, has_silent));
            }
            let asking = Asking::new(&owner, request.fingerprint.as_ref(), now);
            let decision = decide(found.as_ref(), asking, &self.settings.rules());
            let generation = decision.key_generation(found.as_ref());
            let keys_differ = self.compare_keys(claim, generation);
            request.keep_longer(&mut completion, decision.is_to_be_kept(found.as_ref()));
            let (over, number) = match decision {
                Decision::Create | Decision::TakeOver { .. } if keys_differ => {
                    return Err(self.in_flight(request, Duration::ZERO));
                }
                Decision::Create => (None, 1),
                Decision::TakeOver {
                    seen,
                    mode,
                    attempt,
                } => (Some((seen.clone(), mode)), attempt),
                Decision::Replay(record) | Decision::ReplayFailure(record) => {
                    return Ok(Applied::Replay(Box::new(record.clone())));
                }
                other => {
                    let obstacle = self.obstacle_of(request, found.as_ref(), &other, now);
                    // The handler's open transaction met it, and has waited itself. It stays open no longer.
                    if round == 0 {
                        return Err(obstacle);
                    }
                    // It keeps its place: a drain waits for its commit.
                    let seen = self.look_again(request, &obstacle, &mut wait, None);
                    found = seen.await.ok_or(obstacle)?;
                    until = self.commit_until(request, until);
                    continue;
                }
            };
            let claim = self.new_claim(request, &owner, number, started_at);
            let claim = Some(RecordWrite::claim(claim, over));
            let mut record = Final { completion, claim };
            let token = format!("{}-{round}", owner.as_str());
            round += 1;
            let end = self.store_end(request, self.moment());
            let sent = self.send_final(&mut record, token, &writes, until, end);
            let Sent { answer, is_silent } = sent.await;
            has_silent |= is_silent;
            let state = match &answer {
                Ok(Committed::Applied) => FencedOff::Committed,
                // An earlier send committed, and its reply was lost: nothing but a commit of this
                // attempt writes its owner.
                Ok(Committed::Fenced(other)) if is_mine(other.as_ref(), &owner) => {
                    FencedOff::Committed
                }
                Ok(Committed::Fenced(other)) => FencedOff::Met(other.clone()),
                _ if has_silent => {
                    let claim = record.claim.as_ref();
                    let fenced = self.fence_off(request, claim, found.as_ref(), until);
                    Box::pin(fenced).await
                }
                _ => FencedOff::Never,
            };
            let error_of = |answer: Result<_, _>| answer.err().unwrap_or_else(unanswered);
            let sent = match (state, answer) {
                (FencedOff::Committed, _) => Ok(Settled::Recorded),
                (FencedOff::Met(other), _) => {
                    found = other;
                    completion = record.completion;
                    continue;
                }
                (FencedOff::Never, Ok(Committed::Refused(refusal))) => {
                    Err(Error::Refused(refusal.asked(writes)))
                }
                (FencedOff::Never, answer) => Err(Error::NotCommitted(error_of(answer))),
                (FencedOff::Unknown, answer) => Err(Error::OutcomeUnknown(error_of(answer))),
            };
            events::committed(request, number, &record.completion, &sent);
            return Ok(Applied::Sent(sent));
        }
        if has_silent {
            return Ok(uncommitted(request, &completion, has_silent));
        }
        Err(self.in_flight(request, Duration::ZERO))
    }
}

/// Ends a run without a claim that sends its commit no more: one that was silent may have applied.
fn uncommitted(request: &Request, completion: &Completion, has_silent: bool) -> Applied {
    let sent = Err(if has_silent {
        Error::OutcomeUnknown(unanswered())
    } else {
        Error::NotCommitted(StoreError::NotSent)
    });
    events::committed(request, 1, completion, &sent);
    Applied::Sent(sent)
}

/// The state of a commit without a claim after its last send.
#[derive(Debug)]
enum FencedOff {
    /// No send of it applied, and none can any more.
    Never,
    /// A send of it applied.
    Committed,
    /// It met this record of another attempt, or none where one was.
    Met(Option<Found>),
    /// Nothing proves what became of it.
    Unknown,
}

impl Engine {
    /// Writes a released record instead of the commit's claim: where no record was, or over the
    /// version that it would have taken over. If that applies, no send of the commit has applied, and
    /// none can: its claim is refused for as long as a request can be late.
    async fn fence_off(
        &self,
        request: &Request,
        claim: Option<&RecordWrite>,
        found: Option<&Found>,
        until: EpochMillis,
    ) -> FencedOff {
        // The claim's own release ends the sends of a commit under a claim.
        let (Ok(tombstone), Some(mut write)) = (Owner::random(), claim.cloned()) else {
            return FencedOff::Unknown;
        };
        // A record that is bound to a payload stays bound to it, and no other one is.
        let kept = found.filter(|_| match &write {
            RecordWrite::TakeOver { mode, .. } => *mode != Takeover::Fresh,
            _ => false,
        });
        let kept = kept.and_then(Found::record);
        let (RecordWrite::Create(claim) | RecordWrite::TakeOver { claim, .. }) = &mut write else {
            return FencedOff::Unknown;
        };
        let now = self.moment();
        let mut released = self.new_claim(request, &tombstone, claim.attempt, now.time);
        released.lease = RELEASED;
        released.fingerprint = kept.and_then(|record| record.fingerprint.clone());
        let claim = std::mem::replace(claim, released);
        let deadline = self.store_deadline(request, now, until, self.settings.store_timeout);
        // The other half is for the read, where this write can't be made.
        let half = now.instant + (deadline - now.instant) / 2;
        let send = || self.write(request, &write, half);
        let turns = Turns::End(&self.pace, &request.id);
        let answer = persist(turns, half, StoreError::is_transient, send).await;
        match answer {
            Ok(Answer::Refused(found)) if is_mine(found.as_ref(), &claim.owner) => {
                FencedOff::Committed
            }
            // Refused by the record that an earlier send of this very write left.
            Ok(Answer::Refused(found)) if !is_mine(found.as_ref(), &tombstone) => {
                FencedOff::Met(found)
            }
            Ok(_) => {
                events::released(request, claim.attempt, Some(NOT_COMMITTED));
                FencedOff::Never
            }
            Err(error) => {
                events::release_failed(request, claim.attempt, &error);
                match self.read(request, deadline).await {
                    Ok(found) if is_mine(found.as_ref(), &claim.owner) => FencedOff::Committed,
                    _ => FencedOff::Unknown,
                }
            }
        }
    }
}
