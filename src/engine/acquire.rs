//! How a run gets its claim: decide and set, at most three times.

use std::time::Duration;

use crate::claim::Hold;
use crate::clock::EpochMillis;
use crate::engine::patience::{Wait, persist};
use crate::engine::{Engine, LEAST_STORE_TIME, Request};
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
    /// The claim, or what stands in its way. `found` becomes the record that was met last.
    pub(crate) async fn acquire<E>(
        &self,
        request: &Request,
        found: &mut Option<Found>,
    ) -> Result<Acquired, Error<E>> {
        let owner = Owner::random()?;
        let mut wait = match self.settings.in_flight {
            InFlight::FailFast => None,
            InFlight::WaitUpTo(limit) => Some(Wait::up_to(self.patience(request, limit))),
        };
        if request.read_first {
            // The read only saves a write that would fail. Without it, the claim itself finds out.
            *found = self.look(request).await.unwrap_or_default();
        }
        let mut rounds = 0;
        loop {
            let now = self.clock.now();
            let asking = Asking {
                owner: &owner,
                fingerprint: request.fingerprint.as_ref(),
                now,
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
                        let hold = Hold::of_record(&owner, record);
                        return self.start(request, hold, found.as_ref()).await;
                    }
                    Decision::Replay(record) | Decision::ReplayFailure(record) => {
                        return Ok(Acquired::Replay(record.clone()));
                    }
                    Decision::InFlight { until } => {
                        if let Some(wait) = &mut wait
                        && wait.pause().await
                        // A store that fails meanwhile changes nothing: somebody holds the claim.
                        && let Ok(seen) = self.look(request).await
                        {
                            *found = seen;
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
                    Decision::Unreadable(reason) => {
                        return Err(Error::Unreadable(reason.to_owned()));
                    }
                };
            if rounds == MAX_ROUNDS {
                return Err(Error::InFlight {
                    retry_after: Duration::ZERO,
                });
            }
            rounds += 1;
            let claim = self.claim(request, &owner, attempt, now);
            let answer = match self.set(&claim, set).await {
                Ok(answer) => answer,
                Err(error) => {
                    self.give_up(request, &Hold::of_claim(&claim, true), &error)
                        .await;
                    return Err(error.into());
                }
            };
            match answer {
                Answer::Applied(()) => {
                    return self
                        .start(
                            request,
                            Hold::of_claim(&claim, keeps_fingerprint),
                            found.as_ref(),
                        )
                        .await;
                }
                Answer::Refused(other) => *found = other,
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
    async fn start<E>(
        &self,
        request: &Request,
        hold: Hold,
        found: Option<&Found>,
    ) -> Result<Acquired, Error<E>> {
        if self.clock.now() >= hold.lease - self.settings.rules.skew_margin {
            self.release(request, &hold, None).await;
            return Err(Error::TooLate);
        }
        observe::claimed(request, &hold, found);
        Ok(Acquired::Run(hold))
    }
}

/// A crashed attempt, or one that was released with its fingerprint, may have had an effect with this payload.
fn has_fingerprint(found: Option<&Found>) -> bool {
    found
        .and_then(|found| found.content.as_ref().ok())
        .is_some_and(|record| record.fingerprint.is_some())
}
