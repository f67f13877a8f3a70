//! How a run gets its claim: decide and set, at most three times.

use std::time::Duration;

use crate::claim::Hold;
use crate::clock::EpochMillis;
use crate::engine::patience::{Wait, persist};
use crate::engine::{Engine, Request};
use crate::error::{Error, StoreError};
use crate::observe;
use crate::protocol::{Asking, Decision, decide};
use crate::record::{Found, NewClaim, Owner, Record, Takeover, Version};
use crate::settings::InFlight;
use crate::store::{Answer, Store};

/// After so many lost races the key is plainly being worked on.
const MAX_ROUNDS: u32 = 3;

/// What became of the wish to run.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// The claim is ours: run the handler.
    Run(Hold),
    /// An earlier outcome, or failure, is final: replay it.
    Replay(Record),
}

enum Set<'a> {
    Create,
    TakeOver(&'a Version, Takeover),
}

impl<S: Store> Engine<S> {
    /// The claim, or what stands in its way.
    pub(crate) async fn acquire<E>(&self, request: &Request) -> Result<Acquired, Error<E>> {
        let owner = Owner::random()?;
        let mut wait = match self.settings.in_flight {
            InFlight::FailFast => None,
            InFlight::WaitUpTo(limit) => Some(Wait::up_to(self.patience(request, limit))),
        };
        let mut found = None;
        if request.read_first {
            found = self.look(request).await?;
        }
        let mut rounds = 0;
        loop {
            let now = self.clock.now();
            let asking = Asking {
                owner: &owner,
                fingerprint: request.fingerprint.as_ref(),
                now,
            };
            let (set, attempt) = match decide(found.as_ref(), asking, &self.settings.rules) {
                Decision::Create => (Set::Create, 1),
                Decision::TakeOver {
                    seen,
                    mode,
                    attempt,
                } => (Set::TakeOver(seen, mode), attempt),
                Decision::Mine(record) => {
                    return self.start(request, Hold::of_record(&owner, record)).await;
                }
                Decision::Replay(record) | Decision::ReplayFailure(record) => {
                    return Ok(Acquired::Replay(record.clone()));
                }
                Decision::InFlight { until } => {
                    if let Some(wait) = &mut wait
                        && wait.pause().await
                    {
                        found = self.look(request).await?;
                        rounds = 0;
                        continue;
                    }
                    return Err(Error::InFlight {
                        retry_after: until.saturating_since(now),
                    });
                }
                Decision::Mismatch => return Err(Error::Mismatch),
                Decision::Interrupted { since } => {
                    return Err(Error::Interrupted {
                        since: since.into(),
                    });
                }
                Decision::Exhausted { attempts } => return Err(Error::Exhausted { attempts }),
                Decision::Unreadable(reason) => return Err(Error::Unreadable(reason.to_owned())),
            };
            if rounds == MAX_ROUNDS {
                return Err(Error::InFlight {
                    retry_after: Duration::ZERO,
                });
            }
            rounds += 1;
            let claim = self.claim(request, &owner, attempt, now);
            match self.set(&claim, set).await? {
                Answer::Applied(()) => return self.start(request, Hold::of_claim(&claim)).await,
                Answer::Refused(other) => found = other,
            }
        }
    }

    /// The write, frozen: each send of it carries the same times and the same owner.
    fn claim(&self, request: &Request, owner: &Owner, attempt: u32, now: EpochMillis) -> NewClaim {
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
    async fn set(&self, claim: &NewClaim, set: Set<'_>) -> Result<Answer, StoreError> {
        let until = claim.lease - self.settings.rules.skew_margin;
        let deadline = self.store_deadline(until, self.settings.store_timeout);
        let again =
            |error: &StoreError| matches!(error, StoreError::Throttled | StoreError::Conflict);
        match set {
            Set::Create => persist(deadline, again, || self.store.create(claim, deadline)).await,
            Set::TakeOver(seen, mode) => {
                let send = || self.store.take_over(seen, claim, mode, deadline);
                match persist(deadline, again, send).await? {
                    Answer::Applied(_) => Ok(Answer::Applied(())),
                    Answer::Refused(found) => Ok(Answer::Refused(found)),
                }
            }
        }
    }

    async fn look(&self, request: &Request) -> Result<Option<Found>, StoreError> {
        let until = self.run_until(request, self.clock.now());
        let deadline = self.store_deadline(until, self.settings.store_timeout);
        self.store.load(&request.id, deadline).await
    }

    /// A claim whose reply came after its own lease is not run: somebody else may hold the key by now.
    async fn start<E>(&self, request: &Request, hold: Hold) -> Result<Acquired, Error<E>> {
        if self.clock.now() >= hold.lease {
            self.release(request, &hold, None).await;
            return Err(Error::TooLate);
        }
        observe::claimed(request, &hold);
        Ok(Acquired::Run(hold))
    }
}
