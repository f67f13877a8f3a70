//! What each write of the [`Store`](super::Store) contract makes of what stands under its key. Pure.
//!
//! Each function is given the record that a write meets, and gives the one that it leaves; `None` means that the condition does not hold,
//! and that nothing changes. [`MemoryStore`](super::MemoryStore) is these functions and a lock, the model of the protocol is these functions
//! and a checker, and a store of your own may be these functions and whatever makes them atomic.

use crate::record::{
    Amendment, Completion, NewClaim, Owner, RELEASED, Record, Release, Renewal, Status, Takeover,
    Version,
};

/// [`Store::create`](super::Store::create): if no record exists.
pub fn create(met: Option<&Record>, claim: &NewClaim) -> Option<Record> {
    met.is_none().then(|| Record::claimed(claim))
}

/// [`Store::take_over`](super::Store::take_over): if the record is still exactly `seen`.
pub fn take_over(
    met: Option<&Record>,
    seen: &Version,
    claim: &NewClaim,
    mode: Takeover,
) -> Option<Record> {
    let met = met.filter(|record| Version::of(record) == *seen)?;
    let mut record = Record::claimed(claim);
    if mode == Takeover::Resume {
        record.last_error.clone_from(&met.last_error);
        record.journal.clone_from(&met.journal);
    }
    Some(record)
}

/// [`Store::complete`](super::Store::complete): under the fence.
pub fn complete(met: Option<&Record>, completion: &Completion) -> Option<Record> {
    let mut record = held(met, &completion.owner)?.clone();
    record.complete(completion);
    Some(record)
}

/// [`Store::renew`](super::Store::renew): under the fence, and never to a shorter lease.
pub fn renew(met: Option<&Record>, renewal: &Renewal) -> Option<Record> {
    let held = held(met, &renewal.owner)?;
    if held.lease.is_none_or(|lease| lease >= renewal.lease) {
        return None;
    }
    let mut record = held.clone();
    record.lease = Some(renewal.lease);
    record.expiration = renewal.expiration;
    Some(record)
}

/// [`Store::amend`](super::Store::amend): under the fence, and never to an older entry of a step.
pub fn amend(met: Option<&Record>, amendment: &Amendment) -> Option<Record> {
    let mut record = held(met, &amendment.owner)?.clone();
    if let Some(note) = &amendment.step {
        if !record.journal.takes(note) {
            return None;
        }
        record.journal.put(note.clone());
    }
    if let Some(kind) = &amendment.last_error {
        record.last_error = Some(kind.clone());
    }
    Some(record)
}

/// [`Store::release`](super::Store::release): under the fence.
pub fn release(met: Option<&Record>, release: &Release) -> Option<Record> {
    let mut record = held(met, &release.owner)?.clone();
    record.owner = Some(release.tombstone.clone());
    record.lease = Some(RELEASED);
    if let Some(kind) = &release.last_error {
        record.last_error = Some(kind.clone());
    }
    if release.forget_fingerprint {
        record.fingerprint = None;
    }
    Some(record)
}

/// The fence: in progress, and held by this owner.
fn held<'a>(met: Option<&'a Record>, owner: &Owner) -> Option<&'a Record> {
    met.filter(|record| record.status == Status::InProgress && record.owner.as_ref() == Some(owner))
}
