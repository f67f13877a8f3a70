//! Applies each conditional write to the record that it meets. The functions are pure.
//!
//! [`MemoryStore`](crate::store::MemoryStore) is this function and a lock, the model of the
//! protocol is this function and a checker, and a store of your own may be this function and a
//! transaction of its database.

use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::journal::StepEntry;
use crate::protocol::record::{
    Completion, Ended, Final, Intervention, NewClaim, Owner, RELEASED, Record, RecordWrite,
    Release, Status, Takeover, Version,
};

/// Returns the record that a write leaves, given the one that it meets; `None` where its condition
/// does not hold, so that nothing changes.
///
/// ```
/// use lambda_idempotency::protocol::{record::{Record, RecordWrite, Status}, transition};
///
/// fn is_fenced(met: &Record, late: RecordWrite) -> bool {
///     transition(Some(met), &late).is_none()
/// }
/// ```
pub fn transition(met: Option<&Record>, write: &RecordWrite) -> Option<Record> {
    match write {
        RecordWrite::Create(claim) => met.is_none().then(|| Record::claimed(claim)),
        RecordWrite::TakeOver { seen, mode, claim } => take_over(met, seen, *mode, claim),
        RecordWrite::Renew {
            owner,
            lease,
            expiration,
            ..
        } => renew(met, owner, *lease, *expiration),
        RecordWrite::Amend {
            owner, step, entry, ..
        } => amend(met, owner, step, entry),
        RecordWrite::Complete(completion) => complete(met, completion),
        RecordWrite::Release(release) => self::release(met, release),
        RecordWrite::Intervene(intervention) => intervene(met, intervention),
    }
}

/// Returns the record that a [`Store::commit`](crate::store::Store::commit) leaves, given the one that
/// it meets; `None` where the condition of its claim, or the fence, does not hold.
pub fn transition_to_final(met: Option<&Record>, record: &Final) -> Option<Record> {
    match &record.claim {
        None => complete(met, &record.completion),
        Some(claim) => complete(Some(&transition(met, claim)?), &record.completion),
    }
}

fn take_over(
    met: Option<&Record>,
    seen: &Version,
    mode: Takeover,
    claim: &NewClaim,
) -> Option<Record> {
    let met = met.filter(|record| Version::of(record) == *seen)?;
    let mut record = Record::claimed(claim);
    if mode == Takeover::Resume {
        record.last_error.clone_from(&met.last_error);
    }
    if mode != Takeover::Fresh {
        record.journal.clone_from(&met.journal);
    }
    Some(record)
}

/// Completes under the fence.
fn complete(met: Option<&Record>, completion: &Completion) -> Option<Record> {
    let mut record = held(met, &completion.owner)?.clone();
    record.complete(completion);
    Some(record)
}

/// Renews under the fence, and never to a shorter lease.
fn renew(
    met: Option<&Record>,
    owner: &Owner,
    lease: EpochMillis,
    expiration: EpochSeconds,
) -> Option<Record> {
    let held = held(met, owner)?;
    if held.lease.is_none_or(|known| known >= lease) {
        return None;
    }
    let mut record = held.clone();
    record.lease = Some(lease);
    record.expiration = expiration;
    Some(record)
}

/// Amends under the fence, and never to an older entry of a step.
fn amend(met: Option<&Record>, owner: &Owner, step: &str, entry: &StepEntry) -> Option<Record> {
    let held = held(met, owner)?;
    if !held.journal.takes(step, entry) {
        return None;
    }
    let mut record = held.clone();
    record.journal.put(step, entry.clone());
    Some(record)
}

/// Releases under the fence.
fn release(met: Option<&Record>, release: &Release) -> Option<Record> {
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

/// Intervenes over exactly what was seen, and never with an older entry of a step.
fn intervene(met: Option<&Record>, intervention: &Intervention) -> Option<Record> {
    let met = met.filter(|record| Version::of(record) == intervention.seen)?;
    let mut steps = intervention.steps.iter();
    if !steps.all(|(name, entry)| met.journal.takes(name, entry)) {
        return None;
    }
    let mut record = met.clone();
    record.owner = Some(intervention.owner.clone());
    record.expiration = intervention.expiration;
    for (name, entry) in intervention.steps.iter() {
        record.journal.put(name, entry.clone());
    }
    match &intervention.end {
        Ended::Released { last_error } => {
            record.status = Status::InProgress;
            record.lease = Some(RELEASED);
            record.outcome = None;
            record.completed_at = None;
            if let Some(kind) = last_error {
                record.last_error = Some(kind.clone());
            }
        }
        Ended::Final {
            status,
            outcome,
            completed_at,
        } => {
            record.status = *status;
            record.lease = None;
            record.outcome = Some(outcome.clone());
            record.completed_at = Some(*completed_at);
        }
    }
    Some(record)
}

/// Checks the fence: returns a record that is in progress and held by this owner.
fn held<'a>(met: Option<&'a Record>, owner: &Owner) -> Option<&'a Record> {
    met.filter(|record| record.status == Status::InProgress && record.owner.as_ref() == Some(owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fingerprint::Fingerprint;
    use crate::protocol::key::Key;
    use crate::protocol::key::Namespace;
    use crate::protocol::record::StoredOutcome;

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

    fn final_of(owner: &str, claim: Option<RecordWrite>) -> Final {
        let NewClaim { id, owner: own, .. } = self::claim(owner);
        Final {
            completion: Completion {
                id,
                owner: own,
                status: Status::Completed,
                outcome: StoredOutcome::Inline(owner.to_owned()),
                completed_at: EpochMillis(1_500),
                expiration: EpochSeconds(10),
            },
            claim,
        }
    }

    #[test]
    fn a_commit_under_a_claim_needs_the_fence() {
        let held = Record::claimed(&claim("me"));
        let left = transition_to_final(Some(&held), &final_of("me", None)).unwrap();
        assert_eq!(left.outcome, Some(StoredOutcome::Inline("me".to_owned())));
        for (met, owner) in [(Some(&held), "other"), (Some(&left), "me"), (None, "me")] {
            assert_eq!(transition_to_final(met, &final_of(owner, None)), None);
        }
    }

    #[test]
    fn a_release_keeps_the_payload_and_the_last_error_unless_it_says_otherwise() {
        let mut held = Record::claimed(&claim("me"));
        held.fingerprint = Some(Fingerprint::bytes(b"payload"));
        held.last_error = Some("timed out".to_owned());
        let plain = Release {
            id: claim("me").id,
            owner: Owner::from_stored("me"),
            tombstone: Owner::from_stored("no one"),
            last_error: None,
            forget_fingerprint: false,
        };
        let left = release(Some(&held), &plain).unwrap();
        assert_eq!(left.fingerprint, held.fingerprint);
        assert_eq!(left.last_error, held.last_error);
        let forgetting = Release {
            forget_fingerprint: true,
            last_error: Some("panic".to_owned()),
            ..plain
        };
        let left = release(Some(&held), &forgetting).unwrap();
        assert_eq!(left.fingerprint, None);
        assert_eq!(left.last_error, forgetting.last_error);
    }

    #[test]
    fn a_commit_without_a_claim_needs_what_it_saw() {
        let nothing = final_of("me", Some(claim("me").into()));
        let left = transition_to_final(None, &nothing).unwrap();
        assert_eq!((left.status, left.lease), (Status::Completed, None));
        assert_eq!(transition_to_final(Some(&left), &nothing), None);

        let over = RecordWrite::TakeOver {
            seen: Version::of(&left),
            mode: Takeover::Fresh,
            claim: claim("other"),
        };
        let over = final_of("other", Some(over));
        let mut changed = left.clone();
        changed.expiration = EpochSeconds(11);
        assert!(transition_to_final(Some(&left), &over).is_some());
        assert_eq!(transition_to_final(Some(&changed), &over), None);
        assert_eq!(transition_to_final(None, &over), None);
    }
}
