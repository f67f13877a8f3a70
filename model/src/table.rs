//! A write meets the table: the library's own conditions, and an observer who looks at what each write did.

use lambda_idempotency::record::{Completion, Found, Record, Status, Version};
use lambda_idempotency::store::transition;

use crate::mutation::Mutation;
use crate::world::{Final, TICK, World, Write};

/// What a write answers.
pub enum Reply {
    Applied,
    Refused(Option<Found>),
}

impl World {
    /// One atomic step of the table.
    pub fn apply(&mut self, key: usize, write: &Write, mutation: Mutation) -> Reply {
        let met = self.table.get(key).cloned().flatten();
        let left = match write {
            Write::Create(claim, _) => transition::create(met.as_ref(), claim),
            Write::TakeOver(seen, claim, mode, _) => {
                let current = met.as_ref().map(Version::of);
                let compared = current.filter(|current| {
                    mutation == Mutation::TakeoverComparesOwnerOnly && current.owner == seen.owner
                });
                let seen = compared.as_ref().unwrap_or(seen);
                transition::take_over(met.as_ref(), seen, claim, *mode)
            }
            Write::Complete(completion) => {
                let unfenced = mutation == Mutation::CompleteWithoutFence;
                complete(met.as_ref(), completion, unfenced)
            }
            Write::Commit(completion) => {
                let unfenced = mutation == Mutation::CommitWithoutFence;
                complete(met.as_ref(), completion, unfenced)
            }
            Write::Release(release) => {
                let mut release = release.clone();
                if mutation == Mutation::ReleaseWithoutFence
                    && let Some(owner) = met.as_ref().and_then(|record| record.owner.clone())
                {
                    release.owner = owner;
                }
                transition::release(met.as_ref(), &release)
            }
        };
        let Some(left) = left else {
            return Reply::Refused(met.map(Found::readable));
        };
        self.observe(key, write, met.as_ref(), &left);
        let deletes = mutation == Mutation::ReleaseDeletes && matches!(write, Write::Release(_));
        if let Some(slot) = self.table.get_mut(key) {
            *slot = (!deletes).then_some(left);
        }
        Reply::Applied
    }

    /// The invariants that speak of single writes.
    fn observe(&mut self, key: usize, write: &Write, met: Option<&Record>, left: &Record) {
        let fenced = matches!(
            write,
            Write::Complete(_) | Write::Commit(_) | Write::Release(_)
        );
        let held = met.is_some_and(|record| {
            record.status == Status::InProgress && record.owner.as_ref() == Some(write.owner())
        });
        if fenced && !held {
            self.note("3: only the current owner completes, commits or releases");
        }
        let fastest = self
            .workers
            .iter()
            .map(|worker| worker.skew)
            .max()
            .unwrap_or(0);
        let latest = (self.time + fastest.max(0)) * TICK;
        if let Some(known) = self.outcome.get(key).cloned().flatten() {
            let expired = latest >= known.expiration.to_millis().0;
            if expired {
                self.forget(key);
            } else {
                self.note("1: one outcome for each key until it expires, and it never changes");
            }
        }
        match write {
            Write::Create(claim, _) => {
                if self.attempts.get(key).is_some_and(|last| *last > 0) {
                    self.note("2: attempts increase strictly between fresh starts");
                }
                self.count(key, claim.attempt);
                self.forget(key);
            }
            Write::TakeOver(_, claim, _, _) => {
                let before = met.map_or(0, |record| record.attempt);
                let fresh = claim.attempt == 1;
                if !fresh && claim.attempt <= before {
                    self.note("2: attempts increase strictly between fresh starts");
                }
                let lease = met
                    .and_then(|record| record.lease)
                    .map_or(0, |lease| lease.0);
                if latest < lease {
                    self.note("9: no live lease is taken over");
                }
                self.count(key, claim.attempt);
                if fresh {
                    self.forget(key);
                }
            }
            Write::Complete(completion) | Write::Commit(completion) => {
                let seen = Final {
                    owner: completion.owner.clone(),
                    outcome: left.outcome.clone(),
                    expiration: left.expiration,
                };
                if let Some(slot) = self.outcome.get_mut(key) {
                    *slot = Some(seen);
                }
                if let (Write::Commit(_), Some(booked)) = (write, self.booked.get_mut(key)) {
                    booked.push(completion.owner.clone());
                }
            }
            Write::Release(_) => {}
        }
        if self.booked.get(key).is_some_and(|booked| booked.len() > 1) {
            self.note("5: a business write commits at most once while its outcome is kept");
        }
    }

    /// What the last claim on a key counted.
    pub fn count(&mut self, key: usize, attempt: u32) {
        if let Some(slot) = self.attempts.get_mut(key) {
            *slot = attempt;
        }
    }

    /// The key is fresh.
    pub fn forget(&mut self, key: usize) {
        if let Some(slot) = self.outcome.get_mut(key) {
            *slot = None;
        }
        if let Some(booked) = self.booked.get_mut(key) {
            booked.clear();
        }
    }
}

fn complete(met: Option<&Record>, completion: &Completion, unfenced: bool) -> Option<Record> {
    let mut completion = completion.clone();
    let mut met = met.cloned();
    if unfenced && let Some(record) = &mut met {
        record.status = Status::InProgress;
        if let Some(owner) = &record.owner {
            completion.owner = owner.clone();
        }
    }
    transition::complete(met.as_ref(), &completion)
}
