//! Makes the lease of a claim, and renews it while the work goes on.

use std::time::Duration;

use tokio::time::timeout_at;

use crate::engine::claim::Claim;
use crate::engine::fence::{Hold, is_mine};
use crate::engine::metrics::Count;
use crate::engine::pace::Turns;
use crate::engine::persist::persist;
use crate::engine::time::{LONGEST, Moment};
use crate::engine::{Engine, Request, events};
use crate::protocol::OnCrash;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::record::{Found, NewClaim, Owner, RecordWrite};
use crate::store::{Answer, StoreError};

/// The renewals in the time of one lease: two may fail before it is over.
const RENEWALS: u32 = 3;

/// The least pause between two renewals.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// The least pause before a renewal that failed is sent again.
const LEAST_RETRY: Duration = Duration::from_millis(100);

/// A renewal that begins so much later than its turn is warned of: something blocks the thread.
const LATE: Duration = Duration::from_millis(500);

impl Engine {
    /// Makes the claim that is written: each send of it carries the same times and the same owner.
    pub(super) fn new_claim(
        &self,
        request: &Request,
        owner: &Owner,
        attempt: u32,
        now: EpochMillis,
    ) -> NewClaim {
        let margin = self.settings.skew_margin;
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
        let rules = &self.settings;
        let pause = rules.on_crash.pause().unwrap_or_default();
        (lease + pause + request.retention.max(rules.skew_margin)).ceil_seconds()
    }

    /// Takes over what became of the claim: the end of a lease that was renewed, until which the writes
    /// that end it are sent, and whether an effect may exist outside.
    pub(super) fn follow(&self, claim: &Claim, hold: &mut Hold) {
        hold.keeps_fingerprint |= claim.has_derived() || claim.has_steps();
        if let Some(until) = claim.until() {
            hold.lease = until + self.settings.skew_margin;
        }
    }

    /// Counts work that didn't return: what it did is not known. Tells whether the key is released.
    pub(super) fn crash(&self, request: &Request, hold: &mut Hold, claim: &Claim) -> bool {
        request.meter.count(Count::Failures);
        self.follow(claim, hold);
        hold.keeps_fingerprint = true;
        self.settings.on_crash == OnCrash::RunAgain
    }

    /// Renews the claim's lease again and again from a moment on, and returns when the lease is
    /// over: its limit is reached, it could not be renewed, or the fence was lost.
    pub(super) async fn renew(
        &self,
        request: &Request,
        hold: &Hold,
        claim: &Claim,
        lease: Duration,
        mut now: Moment,
    ) {
        let pause = (lease / RENEWALS).clamp(LEAST_PAUSE, LONGEST);
        // A third of the lease after the claim, which may have been answered late.
        let left = claim.time().map_or(Duration::ZERO, |(until, _)| {
            until.saturating_since(now.time)
        });
        let early = lease.saturating_sub(pause);
        let mut turn = if request.options.deadline.is_some() {
            // Most work ends long before its deadline, and is never renewed.
            now.instant + left.saturating_sub(early.min(left / RENEWALS))
        } else {
            // A clock that was put back shows more than the lease.
            now.instant + left.min(lease).saturating_sub(early)
        };
        while let Some((until, limit)) = claim.time() {
            let end = now.instant + until.saturating_since(now.time).min(LONGEST);
            let wake = if until < limit { turn.min(end) } else { end };
            // The claim may be over earlier: the clock goes faster, or another attempt has taken over.
            let _ = timeout_at(wake, claim.over()).await;
            now = claim.moment();
            let late = now.instant.saturating_duration_since(wake);
            if late >= LATE {
                events::renewal_late(request, hold, late);
            }
            let left = until.saturating_since(now.time);
            if claim.is_lost() || now.time >= limit {
                return;
            }
            if !left.is_zero() && now.instant < turn {
                continue;
            }
            let next = (now.time + lease).min(limit);
            if next <= until {
                turn = now.instant + pause;
                continue;
            }
            match self
                .renew_until(request, hold, now, (until, next), pause)
                .await
            {
                Ok(true) => {
                    claim.set_time(next);
                    self.hold_key(&request.id, &hold.owner, next + self.settings.skew_margin);
                    turn = now.instant + pause;
                }
                Ok(false) => {
                    events::renewal_refused(request, hold);
                    return claim.lose();
                }
                Err(error) => {
                    events::renewal_failed(request, hold, &error);
                    // The work waited for this renewal, which was the last one.
                    if left.is_zero() {
                        return;
                    }
                    turn = now.instant + pause.min((left / 2).max(LEAST_RETRY));
                    now = claim.moment();
                    turn = turn.max(now.instant);
                }
            }
        }
    }

    /// Sends a renewal of a lease from its one end to another; `false` where the fence was lost.
    async fn renew_until(
        &self,
        request: &Request,
        hold: &Hold,
        now: Moment,
        (until, next): (EpochMillis, EpochMillis),
        limit: Duration,
    ) -> Result<bool, StoreError> {
        let stored = next + self.settings.skew_margin;
        let renewal = RecordWrite::Renew {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            lease: stored,
            expiration: self.expiration(request, stored),
        };
        let deadline = self.store_deadline(request, now, until, limit);
        let send = || self.store.write(&renewal, deadline);
        let turns = Turns::End(&self.pace, &request.id);
        Ok(
            match persist(turns, deadline, StoreError::is_transient, send).await? {
                Answer::Applied(_) => true,
                // An earlier send of the same renewal applied.
                Answer::Refused(met) => has_lease(met.as_ref(), &hold.owner, stored),
            },
        )
    }
}

/// Returns whether the record that was met has the owner of this renewal, and its lease or a longer
/// one.
fn has_lease(met: Option<&Found>, owner: &Owner, lease: EpochMillis) -> bool {
    let record = met.and_then(Found::record);
    is_mine(met, owner) && record.is_some_and(|record| record.lease.is_some_and(|met| met >= lease))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::clock::EpochSeconds;
    use crate::protocol::key::RecordId;
    use crate::protocol::record::{NewClaim, Record};

    #[test]
    fn a_lease_that_is_its_own_and_as_long_or_longer_is_renewed() {
        let met = |owner: &str, lease| {
            let (id, owner) = (RecordId::unkeyed("1"), Owner::from_stored(owner));
            let (start, end) = (EpochMillis(0), EpochSeconds(9));
            let claim = NewClaim::new(id, owner, start, EpochMillis(lease), end);
            Found::readable(Record::claimed(&claim))
        };
        let own = Owner::from_stored("own");
        let has = |met: Option<Found>| has_lease(met.as_ref(), &own, EpochMillis(2_000));
        assert!(has(Some(met("own", 2_000))));
        assert!(has(Some(met("own", 2_001))), "a later renewal came first");
        assert!(!has(Some(met("own", 1_999))));
        assert!(!has(Some(met("another", 2_000))));
        assert!(!has(None));
    }
}
