//! The fence: an attempt writes under the name of its owner, and learns whether it still holds the
//! record.

use crate::engine::time::Moment;
use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::Journal;
use crate::protocol::record::{Found, NewClaim, Owner, Record};

/// A hold protects a claim: each write under the fence names its owner.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) owner: Owner,
    pub(crate) attempt: u32,
    /// The lease as stored, with the skew margin.
    pub(crate) lease: EpochMillis,
    /// An earlier attempt may have had an effect, so that no other payload may use the key.
    pub(crate) keeps_fingerprint: bool,
    /// The steps that earlier attempts began.
    pub(crate) journal: Journal,
    /// The moment before its first send.
    pub(super) began: Moment,
}

impl Hold {
    pub(super) fn of_claim(claim: &NewClaim, keeps_fingerprint: bool, began: Moment) -> Self {
        Self {
            owner: claim.owner.clone(),
            attempt: claim.attempt,
            lease: claim.lease,
            keeps_fingerprint,
            journal: Journal::default(),
            began,
        }
    }

    /// Takes the hold from the record that an earlier send of the same claim left.
    pub(super) fn of_record(
        owner: &Owner,
        record: &Record,
        keeps_fingerprint: bool,
        began: Moment,
    ) -> Self {
        Self {
            owner: owner.clone(),
            attempt: record.attempt,
            lease: record.lease.unwrap_or_default(),
            keeps_fingerprint,
            journal: record.journal.clone(),
            began,
        }
    }
}

/// Returns whether a record is this owner's own.
pub(super) fn is_mine(found: Option<&Found>, owner: &Owner) -> bool {
    found.is_some_and(|found| found.version.owner.as_deref() == Some(owner.as_str()))
}
