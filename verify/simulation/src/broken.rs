//! Defects on purpose: each takes one condition away, and has to be noticed.

use lambda_idempotency::EpochSeconds;
use lambda_idempotency::protocol::record::{
    Completion, Ended, Intervention, NewClaim, RELEASED, Record, RecordWrite, Release, Status,
    Takeover, Version,
};

use crate::scenario::MARGIN;

macro_rules! mutations {
    ($($(#[$what:meta])* $mutation:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            None,
            $($(#[$what])* $mutation,)*
        }

        impl Mutation {
            pub const ALL: &'static [Self] = &[$(Self::$mutation,)*];
        }
    };
}

mutations! {
    /// A completion applies whoever holds the claim.
    CompletionWithoutFence,
    /// A transaction commits whoever holds the claim.
    CommitWithoutFence,
    /// A release applies whoever holds the claim.
    ReleaseWithoutFence,
    /// A renewal applies whoever holds the claim.
    RenewalWithoutFence,
    /// A renewal is answered, and forgotten.
    RenewalForgotten,
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
    /// A release is answered, and forgotten.
    ReleaseForgotten,
    /// A transaction whose condition fails is written, and refused all the same.
    RefusedAndWritten,
    /// A transaction that arrives late applies whoever holds the claim.
    LateCommitWithoutFence,
    /// The store sends a transaction again by itself, so that the engine doesn't hear of a send that got no answer.
    HiddenRetries,
    /// The write that keeps late transactions from applying is answered, and forgotten.
    FenceForgotten,
    /// Clocks stand still for long, so that handlers start when the time of their claims is over.
    ClocksThatStandStill,
    /// An operator's write compares nothing.
    InterventionWithoutGuard,
    /// A redaction puts the record in progress first, as releases do.
    RedactionInProgress,
}

impl Mutation {
    /// Returns whether a transaction applies although another holds the claim.
    pub fn spares_fence(self, late: bool) -> bool {
        self == Self::CommitWithoutFence || (late && self == Self::LateCommitWithoutFence)
    }

    /// Returns whether every transaction's first reply is lost: only a transaction without a reply shows the defect.
    pub fn loses_replies(self) -> bool {
        matches!(self, Self::HiddenRetries | Self::FenceForgotten)
    }

    /// Returns whether a write is answered, and forgotten.
    pub fn forgets(self, write: &RecordWrite) -> bool {
        match self {
            Self::CompletionForgotten => matches!(write, RecordWrite::Complete(_)),
            Self::ReleaseForgotten => matches!(write, RecordWrite::Release(_)),
            Self::FenceForgotten => fences_off(write),
            Self::RenewalForgotten => matches!(write, RecordWrite::Renew { .. }),
            _ => false,
        }
    }

    /// Returns the distance that clocks jump, in milliseconds.
    pub fn jumps(self) -> i64 {
        match self {
            Self::ClocksThatStandStill => 30_000,
            _ => 1,
        }
    }

    /// The write as it is sent, on a table whose record is `current`.
    pub fn write(self, write: &RecordWrite, current: Option<&Record>) -> RecordWrite {
        match write {
            RecordWrite::Create(claim) => self.claim(claim).into(),
            RecordWrite::TakeOver { seen, mode, claim } => {
                let (seen, claim) = self.takeover(seen, claim, current);
                let mode = match self {
                    Self::JournalForgotten => Takeover::Fresh,
                    _ => *mode,
                };
                RecordWrite::TakeOver { seen, mode, claim }
            }
            RecordWrite::Complete(completion) => self.completion(completion, current).into(),
            RecordWrite::Release(release) => self.release(release, current).into(),
            RecordWrite::Renew { .. } => self.renewal(write, current),
            RecordWrite::Intervene(intervention) => self.intervention(intervention, current).into(),
            other => other.clone(),
        }
    }

    fn claim(self, claim: &NewClaim) -> NewClaim {
        let mut claim = claim.clone();
        match self {
            Self::LeaseWithoutMargin => claim.lease.0 -= MARGIN,
            Self::EarlyExpiration => claim.expiration = EpochSeconds(claim.started_at.0 / 1_000),
            _ => {}
        }
        claim
    }

    fn takeover(
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

    fn completion(self, completion: &Completion, current: Option<&Record>) -> Completion {
        let mut completion = completion.clone();
        if self == Self::CompletionWithoutFence
            && let Some(holder) = in_progress(current).and_then(|record| record.owner.clone())
        {
            completion.owner = holder;
        }
        completion
    }

    fn release(self, release: &Release, current: Option<&Record>) -> Release {
        let mut release = release.clone();
        if self == Self::ReleaseWithoutFence
            && let Some(holder) = in_progress(current).and_then(|record| record.owner.clone())
        {
            release.owner = holder;
        }
        release
    }

    fn intervention(self, intervention: &Intervention, current: Option<&Record>) -> Intervention {
        let mut intervention = intervention.clone();
        match (self, current) {
            (Self::InterventionWithoutGuard, Some(record)) => {
                intervention.seen = Version::of(record);
                let newer = intervention.steps.iter().map(|(name, entry)| {
                    let known = record.journal.get(name);
                    let next = known.map_or(1, |known| known.revision + 1);
                    let mut entry = entry.clone();
                    entry.revision = entry.revision.max(next);
                    (name, entry)
                });
                intervention.steps = newer.collect();
            }
            (Self::RedactionInProgress, _) if matches!(intervention.end, Ended::Final { .. }) => {
                intervention.end = Ended::Released { last_error: None };
            }
            _ => {}
        }
        intervention
    }

    fn renewal(self, renewal: &RecordWrite, current: Option<&Record>) -> RecordWrite {
        let mut renewal = renewal.clone();
        if self == Self::RenewalWithoutFence
            && let RecordWrite::Renew { owner, .. } = &mut renewal
            && let Some(holder) = in_progress(current).and_then(|record| record.owner.clone())
        {
            *owner = holder;
        }
        renewal
    }
}

/// Returns whether it writes a released record, over which no transaction without a claim can apply.
pub fn fences_off(write: &RecordWrite) -> bool {
    match write {
        RecordWrite::Create(claim) | RecordWrite::TakeOver { claim, .. } => claim.lease == RELEASED,
        _ => false,
    }
}

fn in_progress(record: Option<&Record>) -> Option<&Record> {
    record.filter(|record| record.status == Status::InProgress)
}
