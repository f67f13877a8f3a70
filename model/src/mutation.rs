//! Defects on purpose. A checker that finds none of them checks nothing.

use std::fmt;

/// What is wrong with the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    CompleteWithoutFence,
    ReleaseWithoutFence,
    TakeoverComparesOwnerOnly,
    ReleaseDeletes,
    OwnerReused,
    LeaseWithoutMargin,
    ExpiresBeforeItsLease,
    BelievesWithoutComparing,
    CommitWithoutFence,
}

impl Mutation {
    pub const ALL: [Self; 9] = [
        Self::CompleteWithoutFence,
        Self::ReleaseWithoutFence,
        Self::TakeoverComparesOwnerOnly,
        Self::ReleaseDeletes,
        Self::OwnerReused,
        Self::LeaseWithoutMargin,
        Self::ExpiresBeforeItsLease,
        Self::BelievesWithoutComparing,
        Self::CommitWithoutFence,
    ];
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "as it is",
            Self::CompleteWithoutFence => "no fence on complete",
            Self::ReleaseWithoutFence => "no fence on release",
            Self::TakeoverComparesOwnerOnly => "a takeover compares the owner only",
            Self::ReleaseDeletes => "a release deletes",
            Self::OwnerReused => "an owner is reused by the next attempt",
            Self::LeaseWithoutMargin => "a lease is written without its margin",
            Self::ExpiresBeforeItsLease => "a record in progress expires before its lease",
            Self::BelievesWithoutComparing => {
                "`completed by me` is believed without comparing the outcome"
            }
            Self::CommitWithoutFence => "no fence on commit",
        })
    }
}
