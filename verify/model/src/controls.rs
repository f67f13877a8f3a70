//! Defects, each with a small scope that shows it.

use crate::mutation::Mutation;
use crate::scopes::{Form, Provider, Scope};

/// A defect, and a small scope that holds without it.
pub fn controls() -> Vec<(Mutation, Scope)> {
    let two = || Scope::of("1 key, 2 workers").clocks(&[0, 1]);
    let retries = || two().retries();
    let charging = |provider| retries().steps(1, provider);
    vec![
        (Mutation::CompleteWithoutFence, two()),
        (Mutation::ReleaseWithoutFence, two()),
        (Mutation::CommitWithoutFence, two().form(Form::Transaction)),
        (Mutation::TakeoverComparesOwnerOnly, two()),
        (Mutation::TakeoverNeverApplies, two()),
        (Mutation::ReleaseDeletes, two()),
        (
            Mutation::OwnerReused,
            retries().faults(|b| (b.crashes, b.copies) = (1, 1)),
        ),
        (Mutation::LeaseWithoutMargin, two()),
        (
            Mutation::ExpiresBeforeItsLease,
            two().renewing().faults(|b| b.sweeps = 1),
        ),
        (
            Mutation::BelievesWithoutComparing,
            two().faults(|b| (b.strangers, b.replies_lost) = (1, 1)),
        ),
        (
            Mutation::RenewWithoutFence,
            two().renewing().faults(|b| b.renewals = 1),
        ),
        (
            Mutation::RenewalShortens,
            two().renewing().faults(|b| (b.renewals, b.copies) = (2, 1)),
        ),
        (
            Mutation::GoesOnUnrenewed,
            two().renewing().ending().faults(|b| b.renewals = 1),
        ),
        (Mutation::AmendWithoutFence, charging(Provider::HonoursKeys)),
        (
            Mutation::JournalLost,
            charging(Provider::HonoursKeys).faults(|b| b.crashes = 1),
        ),
        (
            Mutation::LatePendingUndoes,
            charging(Provider::HonoursKeys).faults(|b| (b.crashes, b.copies) = (1, 1)),
        ),
        (
            Mutation::PendingFiresAnyway,
            charging(Provider::NoKeysInterrupt).faults(|b| b.crashes = 1),
        ),
        (Mutation::ClaimlessOverAnything, two().form(Form::Claimless)),
        (
            Mutation::HiddenRetries,
            two()
                .form(Form::Claimless)
                .faults(|b| (b.copies, b.refusals) = (1, 1)),
        ),
        (
            Mutation::LateWithoutEnd,
            two()
                .form(Form::Claimless)
                .faults(|b| (b.copies, b.sweeps) = (1, 1)),
        ),
        (
            Mutation::InterveneWithoutGuard,
            retries().faults(|b| b.interventions = 1),
        ),
        (
            Mutation::RedactionInProgress,
            retries().faults(|b| b.interventions = 1),
        ),
    ]
}
