//! `store::transition`, or what a defect makes of it.

use lambda_idempotency::EpochMillis;
use lambda_idempotency::journal::{Journal, StepNote};
use lambda_idempotency::record::{
    Amendment, Owner, Record, Release, Renewal as RealRenewal, Status, Takeover, Version,
};
use lambda_idempotency::store::transition;
use lambda_idempotency::transaction::{Basis, Final};

use super::translate::{
    STEP_NAMES, completion, entry, id, lease_end, new_claim, owner, seconds, version,
};
use crate::mutation::Mutation;
use crate::values::{Claim, Completion, Entry, Name, Renewal, Seen, Write};

/// What a write makes of the record that it meets.
pub(super) fn transitioned(
    met: Option<&Record>,
    write: &Write,
    mutation: Mutation,
) -> Option<Record> {
    let unfenced = mutation.unfences(write);
    let mut in_progress = met.cloned();
    if let Some(record) = &mut in_progress {
        record.status = Status::InProgress;
    }
    let met = Met {
        record: if unfenced { in_progress.as_ref() } else { met },
        mutation,
        unfenced,
    };
    match *write {
        Write::Create(claim) => transition::create(met.record, &new_claim(claim)),
        Write::TakeOver { seen, fresh, claim } => met.take_over(seen, fresh, claim),
        Write::Complete(sent) => transition::complete(met.record, &met.completion(sent)),
        Write::Commit { completion, .. } => met.commit(completion),
        Write::Apply {
            over,
            claim,
            completion,
            ..
        } => met.apply(over, claim, completion),
        Write::Renew(renewal) => met.renew(renewal),
        Write::Amend { owner, step, entry } => met.amend(owner, step, entry),
        Write::Release {
            owner: holder,
            tombstone,
            forgets,
        } => {
            let release = Release {
                id: id(),
                owner: met.owner(holder),
                tombstone: owner(tombstone),
                last_error: None,
                forget_fingerprint: forgets,
            };
            transition::release(met.record, &release)
        }
        Write::Read(_) => None,
    }
}

/// What a write meets.
#[derive(Clone, Copy)]
struct Met<'a> {
    record: Option<&'a Record>,
    mutation: Mutation,
    unfenced: bool,
}

impl Met<'_> {
    /// Without a fence, whoever holds the record is as good as the sender.
    fn owner(self, name: Name) -> Owner {
        let holder = self.record.filter(|_| self.unfenced);
        let holder = holder.and_then(|record| record.owner.clone());
        holder.unwrap_or_else(|| owner(name))
    }

    fn completion(self, sent: Completion) -> lambda_idempotency::record::Completion {
        let mut completion = completion(sent);
        completion.owner = self.owner(sent.owner);
        completion
    }

    /// What a takeover compares, and what it keeps.
    fn takeover(self, seen: Seen, fresh: bool) -> (Version, Takeover) {
        let mut seen = version(seen);
        match (self.mutation, self.record.map(Version::of)) {
            (Mutation::TakeoverComparesOwnerOnly, Some(current)) if current.owner == seen.owner => {
                seen = current;
            }
            (Mutation::TakeoverNeverApplies, _) => seen.owner = None,
            _ => {}
        }
        let mode = if fresh {
            Takeover::Fresh
        } else {
            Takeover::Resume
        };
        (seen, mode)
    }

    fn take_over(self, seen: Seen, fresh: bool, claim: Claim) -> Option<Record> {
        let (seen, mode) = self.takeover(seen, fresh);
        let mut left = transition::take_over(self.record, &seen, &new_claim(claim), mode)?;
        if self.mutation == Mutation::JournalLost {
            left.journal = Journal::default();
        }
        Some(left)
    }

    fn commit(self, sent: Completion) -> Option<Record> {
        let record = Final {
            completion: self.completion(sent),
            basis: Basis::Claimed,
        };
        transition::commit(self.record, &record)
    }

    fn apply(self, over: Option<(Seen, bool)>, claim: Claim, sent: Completion) -> Option<Record> {
        let claim = new_claim(claim);
        let basis = match over {
            None => Basis::Absent(claim),
            Some((seen, fresh)) => {
                let (seen, mode) = self.takeover(seen, fresh);
                Basis::Version { seen, mode, claim }
            }
        };
        let completion = completion(sent);
        let sees = self.mutation != Mutation::ClaimlessOverAnything;
        let met = self.record.filter(|_| sees);
        transition::commit(met, &Final { completion, basis })
    }

    fn renew(self, sent: Renewal) -> Option<Record> {
        let lease = lease_end(sent.lease, sent.number);
        let renewal = RealRenewal {
            id: id(),
            owner: self.owner(sent.owner),
            lease,
            expiration: seconds(sent.expiration),
        };
        if self.mutation != Mutation::RenewalShortens {
            return transition::renew(self.record, &renewal);
        }
        let mut shorter = self.record.cloned();
        if let Some(record) = &mut shorter {
            record.lease = Some(EpochMillis(lease.0 - 1));
        }
        transition::renew(shorter.as_ref(), &renewal)
    }

    fn amend(self, owner: Name, step: u8, noted: Entry) -> Option<Record> {
        let name = STEP_NAMES[usize::from(step)].to_owned();
        let mut entry = entry(noted).expect("a state");
        if self.mutation == Mutation::LatePendingUndoes {
            let known = self.record.and_then(|record| record.journal.get(&name));
            let next = known.map_or(1, |known| known.revision + 1);
            entry.revision = entry.revision.max(next);
        }
        let amendment = Amendment {
            id: id(),
            owner: self.owner(owner),
            last_error: None,
            step: Some(StepNote { name, entry }),
        };
        transition::amend(self.record, &amendment)
    }
}
