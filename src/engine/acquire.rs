//! How a run gets its claim: decide and set, at most three times.

use std::time::Duration;

use crate::claim::Hold;
use crate::clock::EpochMillis;
use crate::engine::patience::{Wait, persist};
use crate::engine::{Engine, LEAST_STORE_TIME, Moment, Request};
use crate::error::{Error, StoreError};
use crate::observe;
use crate::protocol::{Asking, Decision, decide};
use crate::record::{Found, NewClaim, Owner, Record, Takeover, Version};
use crate::settings::InFlight;
use crate::store::{Answer, Store};

/// After so many lost races the key is plainly being worked on.
pub(super) const MAX_ROUNDS: u32 = 3;

/// What became of the wish to run.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// The claim is ours: run the handler.
    Run(Hold),
    /// An earlier outcome, or failure, is final: replay it.
    Replay(Box<Record>),
}

enum Set<'a> {
    Create,
    TakeOver(&'a Version, Takeover),
}

impl<S: Store> Engine<S> {
    /// The claim, or what stands in its way.
    pub(crate) async fn acquire<E>(&self, request: &Request) -> Result<Acquired, Error<E>> {
        let began = self.moment();
        let acquired = self.try_acquire(request, began).await;
        request.meter.claimed_in(began.instant.elapsed());
        acquired
    }

    async fn try_acquire<E>(
        &self,
        request: &Request,
        mut now: Moment,
    ) -> Result<Acquired, Error<E>> {
        let owner = self.owners.next()?;
        let mut wait = match self.settings.in_flight {
            InFlight::FailFast => None,
            InFlight::WaitUpTo(limit) => Some(Wait::up_to(self.patience(request, limit))),
        };
        let mut found = None;
        if request.read_first {
            // The read only saves a write that would fail. Without it, the claim itself finds out.
            found = Box::pin(self.look(request)).await.unwrap_or_default();
            now = self.moment();
        }
        let mut rounds = 0;
        loop {
            request.meet(found.as_ref(), now.time);
            let asking = Asking {
                owner: &owner,
                fingerprint: request.fingerprint.as_ref(),
                now: now.time,
            };
            let (set, attempt, keeps_fingerprint) =
                match decide(found.as_ref(), asking, &self.settings.rules) {
                    Decision::Create => (Set::Create, 1, false),
                    Decision::TakeOver {
                        seen,
                        mode,
                        attempt,
                    } => {
                        let keeps = mode == Takeover::Resume && has_fingerprint(found.as_ref());
                        (Set::TakeOver(seen, mode), attempt, keeps)
                    }
                    Decision::Mine(record) => {
                        return self.start(request, Hold::of_record(&owner, record)).await;
                    }
                    Decision::Replay(record) | Decision::ReplayFailure(record) => {
                        return Ok(Acquired::Replay(Box::new(record.clone())));
                    }
                    other => {
                        if matches!(other, Decision::InFlight { .. })
                        && let Some(wait) = &mut wait
                        && Box::pin(wait.pause()).await
                        // A store that fails meanwhile changes nothing: somebody holds the claim.
                        && let Ok(seen) = Box::pin(self.look(request)).await
                        {
                            found = seen;
                            now = self.moment();
                            rounds = 0;
                            continue;
                        }
                        return Err(obstacle(&other, now.time));
                    }
                };
            if rounds == MAX_ROUNDS {
                return Err(Error::InFlight {
                    retry_after: Duration::ZERO,
                });
            }
            rounds += 1;
            let claim = self.claim(request, &owner, attempt, now.time);
            let answer = match self.set(&claim, set, now).await {
                Ok(answer) => answer,
                Err(error) => {
                    let hold = Hold::of_claim(&claim, true);
                    Box::pin(self.give_up(request, &hold, &error)).await;
                    return Err(error.into());
                }
            };
            match answer {
                Answer::Applied(taken_over) => {
                    let mut hold = Hold::of_claim(&claim, keeps_fingerprint);
                    match taken_over.map(|found| found.content).transpose() {
                        // The reply has what the predecessor wrote up to the takeover; what was read before may not.
                        Ok(record) => {
                            let journal = record.map(|record| record.journal);
                            hold.journal = journal.unwrap_or_default();
                        }
                        Err(reason) => {
                            Box::pin(self.release(request, &hold, None)).await;
                            return Err(Error::Unreadable(reason));
                        }
                    }
                    return self.start(request, hold).await;
                }
                Answer::Refused(other) => found = other,
            }
            now = self.moment();
        }
    }

    /// The write, frozen: each send of it carries the same times and the same owner.
    pub(super) fn claim(
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
            expiration: (now + request.retention).max(lease + margin).ceil_seconds(),
            started_at: now,
        }
    }

    /// What the SDK has not retried already is retried here. A store that can't be reached is not: the caller hears of it.
    async fn set(
        &self,
        claim: &NewClaim,
        set: Set<'_>,
        now: Moment,
    ) -> Result<Answer<Option<Found>>, StoreError> {
        let until = claim.lease - self.settings.rules.skew_margin;
        let deadline = now.store_deadline(until, self.settings.store_timeout);
        let again =
            |error: &StoreError| matches!(error, StoreError::Throttled | StoreError::Conflict);
        match set {
            Set::Create => {
                let send = || self.store.create(claim, deadline);
                match persist(deadline, again, send).await? {
                    Answer::Applied(()) => Ok(Answer::Applied(None)),
                    Answer::Refused(found) => Ok(Answer::Refused(found)),
                }
            }
            Set::TakeOver(seen, mode) => {
                let send = || self.store.take_over(seen, claim, mode, deadline);
                match Box::pin(persist(deadline, again, send)).await? {
                    Answer::Applied(found) => Ok(Answer::Applied(Some(found))),
                    Answer::Refused(found) => Ok(Answer::Refused(found)),
                }
            }
        }
    }

    pub(super) async fn look(&self, request: &Request) -> Result<Option<Found>, StoreError> {
        let now = self.moment();
        let until = self.run_until(request, now.time);
        let deadline = now.store_deadline(until, self.settings.store_timeout);
        self.store.load(&request.id, deadline).await
    }

    /// A claim that may have applied although no reply came would hold the key until its lease is over: one short try to end it.
    async fn give_up(&self, request: &Request, hold: &Hold, error: &StoreError) {
        if error.is_unreachable() {
            let release = self.release(request, hold, Some("claim without a reply"));
            // Dropping it leaves what was there: a lease that runs out.
            let _ = tokio::time::timeout(LEAST_STORE_TIME, release).await;
        }
    }

    /// A claim whose reply came when its time was over is not run. The margin is not the attempt's to use: another machine's
    /// clock may have reached the lease already.
    async fn start<E>(&self, request: &Request, hold: Hold) -> Result<Acquired, Error<E>> {
        if self.clock.now() >= hold.lease - self.settings.rules.skew_margin {
            Box::pin(self.release(request, &hold, None)).await;
            return Err(Error::TooLate);
        }
        observe::claimed(request, &hold);
        Ok(Acquired::Run(hold))
    }
}

/// Why nothing runs, where something stands in the way.
pub(super) fn obstacle<E>(decision: &Decision<'_>, now: EpochMillis) -> Error<E> {
    match *decision {
        Decision::InFlight { until } => Error::InFlight {
            retry_after: until.saturating_since(now),
        },
        Decision::Mismatch => Error::Mismatch,
        Decision::Interrupted { since } => Error::Interrupted {
            since: since.into(),
        },
        Decision::Exhausted { attempts } => Error::Exhausted { attempts },
        Decision::Unreadable(reason) => Error::Unreadable(reason.to_owned()),
        // Nothing stands in the way, and yet it was not to be had.
        Decision::Create
        | Decision::Mine(_)
        | Decision::TakeOver { .. }
        | Decision::Replay(_)
        | Decision::ReplayFailure(_) => Error::InFlight {
            retry_after: Duration::ZERO,
        },
    }
}

/// A crashed attempt, or one that was released with its fingerprint, may have had an effect with this payload.
fn has_fingerprint(found: Option<&Found>) -> bool {
    found
        .and_then(|found| found.content.as_ref().ok())
        .is_some_and(|record| record.fingerprint.is_some())
}
