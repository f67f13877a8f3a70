//! Defects on purpose. A checker that finds none of them checks nothing.

use std::fmt;

use crate::values::Write;

macro_rules! mutations {
    ($($mutation:ident: $words:literal,)*) => {
        /// A defect of the protocol, or of something that it relies on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $($mutation,)*
        }

        impl fmt::Display for Mutation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$mutation => $words,)*
                })
            }
        }
    };
}

mutations! {
    None: "as it is",
    CompleteWithoutFence: "no fence on complete",
    ReleaseWithoutFence: "no fence on release",
    TakeoverComparesOwnerOnly: "a takeover compares the owner only",
    TakeoverNeverApplies: "a takeover compares what never stands",
    ReleaseDeletes: "a release deletes",
    OwnerReused: "an owner is reused by the next attempt",
    LeaseWithoutMargin: "a lease is written without its margin",
    ExpiresBeforeItsLease: "a record in progress expires before its lease",
    BelievesWithoutComparing: "`completed by me` is believed without comparing the outcome",
    CommitWithoutFence: "no fence on commit",
    RenewWithoutFence: "no fence on renew",
    RenewalShortens: "a late renewal shortens the lease",
    GoesOnUnrenewed: "a handler goes on after a lease that was not renewed",
    AmendWithoutFence: "no fence on a step's note",
    JournalLost: "a takeover loses the journal",
    LatePendingUndoes: "a late `PENDING` undoes a `CONFIRMED`",
    PendingFiresAnyway: "a pending step fires again, whatever its policy says",
    ClaimlessOverAnything: "a transaction without a claim commits over a record",
    LateWithoutEnd: "a transaction may be late without end",
    HiddenRetries: "a send without an answer is repeated, and hidden",
    InterveneWithoutGuard: "an intervention compares nothing",
    RedactionInProgress: "a redaction puts the record in progress first",
}

impl Mutation {
    /// Returns whether a write has lost its fence.
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
