//! Defects on purpose: each takes one condition away, and has to be noticed.

use lambda_idempotency::EpochSeconds;
use lambda_idempotency::record::{Completion, NewClaim, Record, Release, Status, Version};

use crate::scenario::MARGIN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// A completion applies whoever holds the claim.
    CompletionWithoutFence,
    /// A transaction commits whoever holds the claim.
    CommitWithoutFence,
    /// A release applies whoever holds the claim.
    ReleaseWithoutFence,
    /// A takeover compares nothing.
    TakeoverWithoutVersion,
    /// A lease is written without its margin.
    LeaseWithoutMargin,
    /// A record in progress expires before its lease.
    EarlyExpiration,
    /// A takeover starts to count again.
    AttemptsForgotten,
    /// A takeover starts without the journal.
    JournalForgotten,
    /// A completion is answered, and forgotten.
    CompletionForgotten,
    /// A transaction whose condition fails is written, and refused all the same.
    RefusedAndWritten,
    /// A transaction that arrives late applies whoever holds the claim.
    LateCommitWithoutFence,
    /// Clocks stand still for long, so that handlers start when the time of their claims is over.
    ClocksThatStandStill,
}

impl Mutation {
    pub const ALL: [Self; 12] = [
        Self::CompletionWithoutFence,
        Self::CommitWithoutFence,
        Self::ReleaseWithoutFence,
        Self::TakeoverWithoutVersion,
        Self::LeaseWithoutMargin,
        Self::EarlyExpiration,
        Self::AttemptsForgotten,
        Self::JournalForgotten,
        Self::CompletionForgotten,
        Self::RefusedAndWritten,
        Self::LateCommitWithoutFence,
        Self::ClocksThatStandStill,
    ];

    /// Whether a transaction applies although another holds the claim.
    pub fn spares_fence(self, late: bool) -> bool {
        self == Self::CommitWithoutFence || (late && self == Self::LateCommitWithoutFence)
    }

    /// How far clocks jump, in milliseconds.
    pub fn jumps(self) -> i64 {
        match self {
            Self::ClocksThatStandStill => 30_000,
            _ => 1,
        }
    }

    pub fn claim(self, claim: &NewClaim) -> NewClaim {
        let mut claim = claim.clone();
        match self {
            Self::LeaseWithoutMargin => claim.lease.0 -= MARGIN,
            Self::EarlyExpiration => claim.expiration = EpochSeconds(claim.started_at.0 / 1_000),
            _ => {}
        }
        claim
    }

    pub fn takeover(
        self,
        seen: &Version,
        claim: &NewClaim,
        current: Option<&Record>,
    ) -> (Version, NewClaim) {
        let (mut seen, mut claim) = (seen.clone(), self.claim(claim));
        match (self, current) {
            (Self::TakeoverWithoutVersion, Some(record)) => seen = Version::of(record),
            (Self::AttemptsForgotten, _) => claim.attempt = 1,
            _ => {}
        }
        (seen, claim)
    }

    pub fn completion(self, completion: &Completion, current: Option<&Record>) -> Completion {
        let mut completion = completion.clone();
        if self == Self::CompletionWithoutFence
            && let Some(holder) = in_progress(current).and_then(|record| record.owner.clone())
        {
            completion.owner = holder;
        }
        completion
    }

    pub fn release(self, release: &Release, current: Option<&Record>) -> Release {
        let mut release = release.clone();
        if self == Self::ReleaseWithoutFence
            && let Some(holder) = in_progress(current).and_then(|record| record.owner.clone())
        {
            release.owner = holder;
        }
        release
    }
}

fn in_progress(record: Option<&Record>) -> Option<&Record> {
    record.filter(|record| record.status == Status::InProgress)
}
