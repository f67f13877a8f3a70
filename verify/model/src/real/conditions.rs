//! `protocol::transition`, or what a defect makes of it.

use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::journal::Journal as RealJournal;
use lambda_idempotency::protocol::record::{
    Ended, Final, Intervention, Omission, Owner, Record, RecordWrite, Release, Status,
    StoredOutcome, Takeover, Version,
};
use lambda_idempotency::protocol::{transition, transition_to_final};

use super::translate::{
    STEP_NAMES, completion, entry, id, lease_end, millis, new_claim, notes, owner, seconds, version,
};
use crate::mutation::Mutation;
use crate::values::{Act, Claim, Completion, Entry, Journal, Name, Renewal, Seen, Tick, Write};

/// Returns the record that a write leaves.
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
        Write::Create(claim) => transition(met.record, &new_claim(claim).into()),
        Write::TakeOver { seen, fresh, claim } => met.take_over(seen, fresh, claim),
        Write::Complete(sent) => transition(met.record, &met.completion(sent).into()),
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
            transition(met.record, &release.into())
        }
        Write::Intervene {
            seen,
            owner: name,
            act,
            expiration,
            steps,
        } => met.intervene(seen, name, act, expiration, steps),
        Write::Read(_) => None,
    }
}

/// The record that a write meets, and the defect that the write has.
#[derive(Clone, Copy)]
struct Met<'a> {
    record: Option<&'a Record>,
    mutation: Mutation,
    unfenced: bool,
}

impl Met<'_> {
    /// Returns the owner that a write names. Without a fence, the holder of the record is as good as the sender.
    fn owner(self, name: Name) -> Owner {
        let holder = self.record.filter(|_| self.unfenced);
        let holder = holder.and_then(|record| record.owner.clone());
        holder.unwrap_or_else(|| owner(name))
    }

    fn completion(self, sent: Completion) -> lambda_idempotency::protocol::record::Completion {
        let mut completion = completion(sent);
        completion.owner = self.owner(sent.owner);
        completion
    }

    /// Returns the version that a takeover compares, and the mode that says what it keeps.
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
        let mut left = transition(
            self.record,
            &RecordWrite::TakeOver {
                seen,
                mode,
                claim: new_claim(claim),
            },
        )?;
        if self.mutation == Mutation::JournalLost {
            left.journal = RealJournal::default();
        }
        Some(left)
    }

    fn commit(self, sent: Completion) -> Option<Record> {
        let record = Final {
            completion: self.completion(sent),
            claim: None,
        };
        transition_to_final(self.record, &record)
    }

    fn apply(self, over: Option<(Seen, bool)>, claim: Claim, sent: Completion) -> Option<Record> {
        let claim = new_claim(claim);
        let claim = match over {
            None => RecordWrite::Create(claim),
            Some((seen, fresh)) => {
                let (seen, mode) = self.takeover(seen, fresh);
                RecordWrite::TakeOver { seen, mode, claim }
            }
        };
        let record = Final {
            completion: completion(sent),
            claim: Some(claim),
        };
        let sees = self.mutation != Mutation::ClaimlessOverAnything;
        let met = self.record.filter(|_| sees);
        transition_to_final(met, &record)
    }

    fn renew(self, sent: Renewal) -> Option<Record> {
        let lease = lease_end(sent.lease, sent.number);
        let owner = self.owner(sent.owner);
        let renewal = RecordWrite::Renew {
            id: id(),
            owner,
            lease,
            expiration: seconds(sent.expiration),
        };
        if self.mutation != Mutation::RenewalShortens {
            return transition(self.record, &renewal);
        }
        let mut shorter = self.record.cloned();
        if let Some(record) = &mut shorter {
            record.lease = Some(EpochMillis(lease.0 - 1));
        }
        transition(shorter.as_ref(), &renewal)
    }

    fn intervene(
        self,
        seen: Seen,
        name: Name,
        act: Act,
        expiration: Tick,
        steps: Journal,
    ) -> Option<Record> {
        let seen = match self.record.map(Version::of) {
            Some(current) if self.mutation == Mutation::InterveneWithoutGuard => current,
            _ => version(seen),
        };
        let end = match act {
            Act::Redact if self.mutation != Mutation::RedactionInProgress => Ended::Final {
                status: Status::Completed,
                outcome: StoredOutcome::Omitted(Omission::Redacted),
                completed_at: millis(0),
            },
            _ => Ended::Released { last_error: None },
        };
        let write = Intervention {
            id: id(),
            seen,
            owner: owner(name),
            expiration: seconds(expiration),
            steps: notes(steps).collect(),
            end,
        };
        transition(self.record, &write.into())
    }

    fn amend(self, owner: Name, step: u8, noted: Entry) -> Option<Record> {
        let name = STEP_NAMES[usize::from(step)].to_owned();
        let mut entry = entry(noted).expect("a state");
        if self.mutation == Mutation::LatePendingUndoes {
            let known = self.record.and_then(|record| record.journal.get(&name));
            let next = known.map_or(1, |known| known.revision + 1);
            entry.revision = entry.revision.max(next);
        }
        let amendment = RecordWrite::Amend {
            id: id(),
            owner: self.owner(owner),
            step: name,
            entry,
        };
        transition(self.record, &amendment)
    }
}
