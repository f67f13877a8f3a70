//! Defects on purpose. A checker that finds none of them checks nothing.

use std::fmt;

use crate::values::Write;

/// A defect of the protocol, or of something that it relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    CompleteWithoutFence,
    ReleaseWithoutFence,
    TakeoverComparesOwnerOnly,
    TakeoverNeverApplies,
    ReleaseDeletes,
    OwnerReused,
    LeaseWithoutMargin,
    ExpiresBeforeItsLease,
    BelievesWithoutComparing,
    CommitWithoutFence,
    RenewWithoutFence,
    RenewalShortens,
    GoesOnUnrenewed,
    AmendWithoutFence,
    JournalLost,
    LatePendingUndoes,
    PendingFiresAnyway,
    ClaimlessOverAnything,
    LateWithoutEnd,
    HiddenRetries,
    InterveneWithoutGuard,
    RedactionInProgress,
}

impl Mutation {
    /// Tells whether a write has lost its fence.
    pub fn unfences(self, write: &Write) -> bool {
        match self {
            Self::CompleteWithoutFence => matches!(write, Write::Complete(_)),
            Self::CommitWithoutFence => matches!(write, Write::Commit { .. }),
            Self::ReleaseWithoutFence => matches!(write, Write::Release { .. }),
            Self::RenewWithoutFence => matches!(write, Write::Renew(_)),
            Self::AmendWithoutFence => matches!(write, Write::Amend { .. }),
            _ => false,
        }
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "as it is",
            Self::CompleteWithoutFence => "no fence on complete",
            Self::ReleaseWithoutFence => "no fence on release",
            Self::TakeoverComparesOwnerOnly => "a takeover compares the owner only",
            Self::TakeoverNeverApplies => "a takeover compares what never stands",
            Self::ReleaseDeletes => "a release deletes",
            Self::OwnerReused => "an owner is reused by the next attempt",
            Self::LeaseWithoutMargin => "a lease is written without its margin",
            Self::ExpiresBeforeItsLease => "a record in progress expires before its lease",
            Self::BelievesWithoutComparing => {
                "`completed by me` is believed without comparing the outcome"
            }
            Self::CommitWithoutFence => "no fence on commit",
            Self::RenewWithoutFence => "no fence on renew",
            Self::RenewalShortens => "a late renewal shortens the lease",
            Self::GoesOnUnrenewed => "a handler goes on after a lease that was not renewed",
            Self::AmendWithoutFence => "no fence on a step's note",
            Self::JournalLost => "a takeover loses the journal",
            Self::LatePendingUndoes => "a late `PENDING` undoes a `CONFIRMED`",
            Self::PendingFiresAnyway => "a pending step fires again, whatever its policy says",
            Self::ClaimlessOverAnything => "a transaction without a claim commits over a record",
            Self::LateWithoutEnd => "a transaction may be late without end",
            Self::HiddenRetries => "a send without an answer is repeated, and hidden",
            Self::InterveneWithoutGuard => "an intervention compares nothing",
            Self::RedactionInProgress => "a redaction puts the record in progress first",
        })
    }
}
