//! What each write of the [`Store`](super::Store) contract makes of what stands under its key. Pure.
//!
//! Each function is given the record that a write meets, and gives the one that it leaves; `None` means that the condition does not hold,
//! and that nothing changes. [`MemoryStore`](super::MemoryStore) is these functions and a lock, the model of the protocol is these functions
//! and a checker, and a store of your own may be these functions and whatever makes them atomic.

use crate::record::{
    Amendment, Completion, NewClaim, Owner, RELEASED, Record, Release, Renewal, Status, Takeover,
    Version,
};
use crate::transaction::{Basis, Final};

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

/// The record of a [`Store::commit`](super::Store::commit): under the fence, or on the basis that stands in for a claim.
pub fn commit(met: Option<&Record>, record: &Final) -> Option<Record> {
    let claimed = match &record.basis {
        Basis::Claimed => return complete(met, &record.completion),
        Basis::Absent(claim) => create(met, claim)?,
        Basis::Version { seen, mode, claim } => take_over(met, seen, claim, *mode)?,
    };
    complete(Some(&claimed), &record.completion)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{EpochMillis, EpochSeconds};
    use crate::key::{Key, Namespace};
    use crate::record::StoredOutcome;

    fn claim(owner: &str) -> NewClaim {
        NewClaim {
            id: Key::new("op", "t")
                .resolve(&Namespace::new("n").unwrap(), 255)
                .unwrap(),
            owner: Owner::from_stored(owner),
            fingerprint: None,
            attempt: 1,
            lease: EpochMillis(2_000),
            expiration: EpochSeconds(9),
            started_at: EpochMillis(1_000),
        }
    }

    fn final_of(owner: &str, basis: Basis) -> Final {
        let claim = claim(owner);
        Final {
            completion: Completion {
                id: claim.id,
                owner: claim.owner,
                status: Status::Completed,
                outcome: StoredOutcome::Inline(owner.to_owned()),
                completed_at: EpochMillis(1_500),
                expiration: EpochSeconds(10),
            },
            basis,
        }
    }

    #[test]
    fn a_commit_under_a_claim_needs_the_fence() {
        let held = Record::claimed(&claim("me"));
        let left = commit(Some(&held), &final_of("me", Basis::Claimed)).unwrap();
        assert_eq!(left.outcome, Some(StoredOutcome::Inline("me".to_owned())));
        assert_eq!(
            commit(Some(&held), &final_of("other", Basis::Claimed)),
            None
        );
        assert_eq!(commit(Some(&left), &final_of("me", Basis::Claimed)), None);
        assert_eq!(commit(None, &final_of("me", Basis::Claimed)), None);
    }

    #[test]
    fn a_commit_without_a_claim_needs_what_it_saw() {
        let nothing = final_of("me", Basis::Absent(claim("me")));
        let left = commit(None, &nothing).unwrap();
        assert_eq!((left.status, left.lease), (Status::Completed, None));
        assert_eq!(commit(Some(&left), &nothing), None);

        let over = |seen: &Record| Basis::Version {
            seen: Version::of(seen),
            mode: Takeover::Fresh,
            claim: claim("other"),
        };
        let mut changed = left.clone();
        changed.expiration = EpochSeconds(11);
        assert!(commit(Some(&left), &final_of("other", over(&left))).is_some());
        assert_eq!(
            commit(Some(&changed), &final_of("other", over(&left))),
            None
        );
        assert_eq!(commit(None, &final_of("other", over(&left))), None);
    }
}
