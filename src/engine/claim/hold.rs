//! A hold has the fence of a claim: its owner, its attempt, its lease.

use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::Journal;
use crate::protocol::record::{NewClaim, Owner, Record};

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
}

impl Hold {
    pub(crate) fn of_claim(claim: &NewClaim, keeps_fingerprint: bool) -> Self {
        Self {
            owner: claim.owner.clone(),
            attempt: claim.attempt,
            lease: claim.lease,
            keeps_fingerprint,
            journal: Journal::default(),
        }
    }

    /// Takes the hold from the record that an earlier send of the same claim left.
    pub(crate) fn of_record(owner: &Owner, record: &Record) -> Self {
        Self {
            owner: owner.clone(),
            attempt: record.attempt,
            lease: record.lease.unwrap_or_default(),
            keeps_fingerprint: record.attempt > 1,
            journal: record.journal.clone(),
        }
    }
}
