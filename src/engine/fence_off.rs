//! Fences off a key: keeps the sends of a commit without a claim that got no answer from applying
//! later.

use crate::engine::fence::is_mine;
use crate::engine::pace::Turns;
use crate::engine::persist::persist;
use crate::engine::{Engine, Request, events};
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::{Basis, Found, Owner, RELEASED, RecordWrite, Takeover};
use crate::store::{Answer, StoreError};

/// Says what became of a commit without a claim.
#[derive(Debug)]
pub(super) enum FencedOff {
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
    /// Writes a released record on the basis of the commit: where no record was, or over the version
    /// that it would have taken over. If that applies, no send of the commit has applied, and none
    /// can: its basis is gone for as long as a request can be late.
    pub(super) async fn fence_off(
        &self,
        request: &Request,
        basis: &Basis,
        found: Option<&Found>,
        until: EpochMillis,
    ) -> FencedOff {
        let Ok(tombstone) = Owner::random() else {
            return FencedOff::Unknown;
        };
        let (claim, over) = match basis {
            // The claim's own release ends the sends of a commit under a claim.
            Basis::Claimed => return FencedOff::Unknown,
            Basis::Absent(claim) => (claim, None),
            Basis::Version { seen, mode, claim } => (claim, Some((seen.clone(), *mode))),
        };
        let now = self.moment();
        let mut released = self.new_claim(request, &tombstone, claim.attempt, now.time);
        released.lease = RELEASED;
        // A record that is bound to a payload stays bound to it, and no other one is.
        let resumes = |(_, mode): &(_, Takeover)| *mode != Takeover::Fresh;
        let kept = found.filter(|_| over.as_ref().is_some_and(resumes));
        let kept = kept.and_then(|found| found.content.as_ref().ok());
        released.fingerprint = kept.and_then(|record| record.fingerprint.clone());
        let write = match over {
            None => RecordWrite::Create(released),
            Some((seen, mode)) => RecordWrite::TakeOver {
                seen,
                mode,
                claim: released,
            },
        };
        let deadline = request.store_deadline(now, until, self.settings.store_timeout);
        // The other half is for the read, where this write can't be made.
        let half = now.instant + (deadline - now.instant) / 2;
        let send = || self.write(request, &write, half);
        let answer = persist(
            Turns::End(&self.pace, &request.id),
            half,
            StoreError::is_transient,
            send,
        )
        .await;
        match answer {
            Ok(Answer::Refused(found)) if is_mine(found.as_ref(), &claim.owner) => {
                FencedOff::Committed
            }
            // Refused by the record that an earlier send of this very write left.
            Ok(Answer::Refused(found)) if !is_mine(found.as_ref(), &tombstone) => {
                FencedOff::Met(found)
            }
            Ok(_) => {
                events::released(request, claim.attempt, Some("not committed"));
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
