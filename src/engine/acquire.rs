//! Acquires the claim of a run: decides and sets, at most three times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::claim::Hold;
use crate::engine::error::{Error, Obstacle};
use crate::engine::moment::{LEAST_STORE_TIME, Moment};
use crate::engine::pace::Turns;
use crate::engine::permission::ClaimRight;
use crate::engine::persist::{Wait, is_rejected_for_now, persist};
use crate::engine::settings::InFlight;
use crate::engine::unsent::OnDrop;
use crate::engine::{Engine, Request, events};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::record::{
    EntropyError, Found, NOT_STARTED, NewClaim, Owner, Record, RecordWrite, Release, Takeover,
    Version, WITHOUT_REPLY,
};
use crate::protocol::{Asking, Decision, decide};
use crate::store::{Answer, StoreError};

/// The number of lost races after which another attempt holds the key.
pub(super) const MAX_ROUNDS: u32 = 3;

/// The reason why no claim is made while completions are refused.
const NO_COMPLETION: &str = "a completion was refused for lack of permission, so that each delivery would repeat its effect: allow the \
     function to update records; until then one claim a minute is made";

/// The answer to a request that wants to run.
#[derive(Debug)]
pub(super) enum Acquired {
    /// The claim is this attempt's, and the handler runs.
    Claimed(Hold),
    /// An earlier outcome, or failure, is final and is replayed.
    Replay(Box<Record>),
}

impl Engine {
    /// Acquires the claim, or returns the obstacle.
    pub(super) async fn acquire(&self, request: &Request) -> Result<Acquired, Obstacle> {
        let began = self.moment();
        let acquired = self.try_acquire(request, began).await;
        request.meter.claimed_in(began.instant.elapsed());
        acquired
    }

    async fn try_acquire(&self, request: &Request, mut now: Moment) -> Result<Acquired, Obstacle> {
        let owner = self.new_owner(request)?;
        let mut wait = match self.settings.in_flight {
            InFlight::FailFast => None,
            InFlight::WaitUpTo(limit) => Some(Wait::up_to(self.longest_wait(request, limit))),
        };
        let mut found = None;
        let mut right = None;
        if request.options.read_first || self.permission.is_refused() {
            // The read only saves a write that would fail, and shows what may be replayed while no
            // claim is made. Without it, the claim itself finds out.
            found = Box::pin(self.look(request)).await.unwrap_or_default();
            now = self.moment();
        }
        let mut rounds = 0;
        loop {
            request.meet(found.as_ref(), now.time);
            let asking = Asking::new(&owner, request.fingerprint.as_ref(), now.time);
            let (over, attempt, keeps_fingerprint) =
                match decide(found.as_ref(), asking, &self.settings.rules) {
                    Decision::Create => (None, 1, false),
                    Decision::TakeOver {
                        seen,
                        mode,
                        attempt,
                    } => {
                        let keeps = mode != Takeover::Fresh && has_fingerprint(found.as_ref());
                        (Some((seen.clone(), mode)), attempt, keeps)
                    }
                    Decision::Mine(record) => {
                        let hold = Hold::of_record(&owner, record);
                        return self.start(request, hold, right).await;
                    }
                    Decision::Replay(record) | Decision::ReplayFailure(record) => {
                        return Ok(Acquired::Replay(Box::new(record.clone())));
                    }
                    other => {
                        if matches!(other, Decision::InFlight { .. })
                            && let Some(wait) = &mut wait
                            && let Some(seen) = Box::pin(self.look_again(request, wait)).await
                        {
                            found = seen;
                            now = self.moment();
                            rounds = 0;
                            continue;
                        }
                        return Err(self.obstacle(request, &other, now.time));
                    }
                };
            if rounds == MAX_ROUNDS {
                return Err(self.in_flight(request, Duration::ZERO));
            }
            if !request.options.has_place() {
                // A drain that gave up holds no places any more.
                let is_closed = !request.options.is_batch() && self.detached.is_draining();
                if is_closed || !request.options.takes_place().await {
                    return Err(self.in_flight(request, Duration::ZERO));
                }
                now = self.moment();
            }
            rounds += 1;
            right = right.or_else(|| self.permission.claim(now.time));
            if right.is_none() {
                return Err(StoreError::Denied(NO_COMPLETION.into()).into());
            }
            let claim = self.new_claim(request, &owner, attempt, now.time);
            let mut hold = Hold::of_claim(&claim, keeps_fingerprint);
            let is_silent = AtomicBool::new(false);
            // It may have applied although its reply was not waited for.
            let left = || {
                if is_silent.load(Ordering::Relaxed) {
                    self.leave_claimed(request, &hold);
                }
            };
            let unless_dropped = OnDrop::new(left);
            let answer = self.send_claim(request, claim, over, now, &is_silent).await;
            unless_dropped.disarm();
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    if is_silent.into_inner() {
                        // Under `FailOpen` the work runs without this claim, and with this payload.
                        hold.keeps_fingerprint = true;
                        Box::pin(self.give_up(request, &hold)).await;
                    }
                    return Err(error.into());
                }
            };
            match answer {
                Answer::Applied(left) => match left.map(|found| found.content).transpose() {
                    // The reply has what the predecessor wrote up to the takeover; what was read
                    // before may not.
                    Ok(record) => {
                        hold.journal = record.map(|record| record.journal).unwrap_or_default();
                        return self.start(request, hold, right).await;
                    }
                    Err(reason) => {
                        Box::pin(self.release(request, &hold, None)).await;
                        return Err(Error::Unreadable(reason));
                    }
                },
                Answer::Refused(other) => found = other,
            }
            now = self.moment();
        }
    }

    /// Makes the claim that is written: each send of it carries the same times and the same owner.
    pub(super) fn new_claim(
        &self,
        request: &Request,
        owner: &Owner,
        attempt: u32,
        now: EpochMillis,
    ) -> NewClaim {
        let margin = self.settings.rules.skew_margin;
        let lease = self.run_until(request, now) + margin;
        NewClaim {
            id: request.id.clone(),
            owner: owner.clone(),
            fingerprint: request.fingerprint.clone(),
            attempt,
            lease,
            expiration: self.expiration(request, lease),
            started_at: now,
        }
    }

    /// Returns when a record in progress expires: its retention counts from the end of the lease, so
    /// that what an attempt did is known for as long after it failed, or died, as after it succeeded.
    pub(super) fn expiration(&self, request: &Request, lease: EpochMillis) -> EpochSeconds {
        let rules = &self.settings.rules;
        let pause = rules.on_crash.pause().unwrap_or_default();
        (lease + pause + request.retention.max(rules.skew_margin)).ceil_seconds()
    }

    /// Sends the claim, and retries what the SDK does not retry. A store that can't be reached is
    /// not asked again: the caller gets the error. Notes whether a send began and had no answer, so
    /// that it may have applied.
    async fn send_claim(
        &self,
        request: &Request,
        claim: NewClaim,
        over: Option<(Version, Takeover)>,
        now: Moment,
        is_silent: &AtomicBool,
    ) -> Result<Answer, StoreError> {
        let until = claim.lease - self.settings.rules.skew_margin;
        let deadline = request.store_deadline(now, until, self.settings.store_timeout);
        let write = match over {
            None => RecordWrite::Create(claim),
            Some((seen, mode)) => RecordWrite::TakeOver { seen, mode, claim },
        };
        let send = async || {
            let was_silent = is_silent.swap(true, Ordering::Relaxed);
            let answer = self.write(request, &write, deadline).await;
            let is_answered = !answer.as_ref().is_err_and(StoreError::is_unreachable);
            is_silent.store(was_silent || !is_answered, Ordering::Relaxed);
            answer
        };
        persist(
            Turns::Begin(&self.pace, &request.id),
            deadline,
            is_rejected_for_now,
            send,
        )
        .await
    }

    pub(super) fn new_owner(&self, request: &Request) -> Result<Owner, EntropyError> {
        #[cfg(feature = "batch")]
        if let Some(batch) = &request.options.batch {
            return batch.owners.next();
        }
        let _ = request;
        self.owners.next()
    }

    /// Waits before it looks at the record of another attempt again; `None` where there is no more
    /// waiting.
    async fn look_again(&self, request: &Request, wait: &mut Wait) -> Option<Option<Found>> {
        if let Some(place) = &request.options.place {
            place.leave_to_wait();
        }
        // Nothing is claimed yet, and the caller that would get the outcome may have gone.
        if !wait.pause().await || request.options.called_by.has_gone() {
            return None;
        }
        // A store that fails meanwhile changes nothing: another attempt holds the claim.
        self.look(request).await.ok()
    }

    pub(super) async fn look(&self, request: &Request) -> Result<Option<Found>, StoreError> {
        let now = self.moment();
        let until = self.run_until(request, now.time);
        let deadline = request.store_deadline(now, until, self.settings.store_timeout);
        self.read(request, deadline).await
    }

    /// Tries once, for a short time, to end a claim that may have applied although no reply came, and
    /// leaves the rest to later calls. Left alone, it holds the key until its lease is over.
    async fn give_up(&self, request: &Request, hold: &Hold) {
        let Ok(tombstone) = Owner::random() else {
            return;
        };
        let sent = Release {
            last_error: Some(WITHOUT_REPLY.to_owned()),
            ..Release::new(request.id.clone(), hold.owner.clone(), tombstone.clone())
        };
        let again = is_rejected_for_now;
        let release = self.release_as(tombstone, request, hold, Some(WITHOUT_REPLY), again);
        // Where it has no answer by then, the next call sends it again.
        let Ok(answer) = tokio::time::timeout(LEAST_STORE_TIME, release).await else {
            return;
        };
        if let Ok(Answer::Refused(Some(_))) = answer {
            request.note_record();
        }
        if answer.as_ref().is_err_and(StoreError::is_transient) {
            self.leave(request, hold, sent.into(), None);
        } else if self.may_arrive(request, &sent, &answer) {
            self.leave_for_later(request, hold, sent, 0);
        }
    }

    /// Hands out a claim, or releases one whose reply came when its time was over. The margin is
    /// not the attempt's to use: another machine's clock may have reached the lease already.
    async fn start(
        &self,
        request: &Request,
        hold: Hold,
        right: Option<ClaimRight<'_>>,
    ) -> Result<Acquired, Obstacle> {
        if self.clock.now() >= hold.lease - self.settings.rules.skew_margin {
            Box::pin(self.release(request, &hold, Some(NOT_STARTED))).await;
            return Err(Error::TooLate);
        }
        if let Some(right) = right {
            right.spend();
        }
        events::claimed(request, &hold);
        Ok(Acquired::Claimed(hold))
    }

    /// Returns the obstacle that a decision means.
    pub(super) fn obstacle(
        &self,
        request: &Request,
        decision: &Decision<'_>,
        now: EpochMillis,
    ) -> Obstacle {
        match *decision {
            Decision::InFlight { until } => self.in_flight(request, until.saturating_since(now)),
            Decision::Mismatch => Error::Mismatch,
            Decision::Interrupted { since } => Error::Interrupted {
                since: since.into(),
            },
            Decision::Exhausted { attempts } => Error::Exhausted { attempts },
            Decision::Unreadable(reason) => Error::Unreadable(reason.to_owned()),
            // The key is free, but the claim was lost to other attempts in each round.
            Decision::Create
            | Decision::Mine(_)
            | Decision::TakeOver { .. }
            | Decision::Replay(_)
            | Decision::ReplayFailure(_) => self.in_flight(request, Duration::ZERO),
        }
    }

    /// Returns the obstacle of another attempt whose lease ends after this time. A message of a batch is
    /// not told to come earlier: each receive counts towards its queue's limit.
    pub(super) fn in_flight(&self, request: &Request, lease: Duration) -> Obstacle {
        let limit = if request.options.is_batch() {
            Duration::MAX
        } else {
            self.settings.max_retry_after
        };
        Error::InFlight {
            retry_after: lease.min(limit),
            lease,
        }
    }
}

/// Tells whether the record has a fingerprint: a crashed attempt, or one that was released with its
/// fingerprint, may have had an effect with this payload.
fn has_fingerprint(found: Option<&Found>) -> bool {
    found
        .and_then(|found| found.content.as_ref().ok())
        .is_some_and(|record| record.fingerprint.is_some())
}
