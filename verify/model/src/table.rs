//! A write meets the table, and an observer looks at what it did there.

use crate::checker::Checker;
use crate::mutation::Mutation;
use crate::real;
use crate::values::{Lease, Mark, Rec, Reply, Write};
use crate::world::{Key, World};

impl Checker {
    /// One atomic step of the table.
    pub fn apply(&self, world: &mut World, key: usize, write: &Write) -> Reply {
        let met = world.keys[key].rec;
        let Some(left) = real::apply(met, write, self.mutation) else {
            return Reply {
                applied: false,
                rec: met,
            };
        };
        self.observe(world, key, write, met, &left);
        let deletes =
            self.mutation == Mutation::ReleaseDeletes && matches!(write, Write::Release { .. });
        world.keys[key].rec = (!deletes).then_some(left);
        // The journal is all that a takeover is told.
        let told = matches!(write, Write::TakeOver { .. }) && self.scope.steps > 0;
        Reply {
            applied: true,
            rec: told.then_some(left),
        }
    }

    /// The invariants that speak of single writes.
    fn observe(&self, world: &mut World, key: usize, write: &Write, met: Option<Rec>, left: &Rec) {
        if let Write::Intervene { seen, act, .. } = *write {
            return Self::intervened(world, key, seen, act, met, left);
        }
        let held = met.is_some_and(|rec| !rec.done && rec.owner == write.owner());
        if !write.claims() && !held {
            world.note("3: only the current owner completes, renews, amends, commits or releases");
        }
        if let Some((_, expiration)) = world.keys[key].outcome {
            if self.fastest >= expiration {
                world.forget(self, key);
            } else {
                world.note("1: one outcome for each key until it expires, and it never changes");
            }
        }
        match *write {
            Write::Create(claim) => self.claimed(world, key, met, claim.attempt, true),
            Write::TakeOver { claim, fresh, .. } => {
                self.claimed(world, key, met, claim.attempt, fresh);
            }
            Write::Apply { claim, over, .. } => {
                let fresh = over.is_none_or(|(_, fresh)| fresh);
                self.claimed(world, key, met, claim.attempt, fresh);
            }
            Write::Renew(renewal) => {
                let before = met.map(|rec| rec.lease);
                if before.is_some_and(|lease| lease >= Lease::Until(renewal.lease, renewal.number))
                {
                    world.note("3: a renewal never shortens a lease");
                }
            }
            Write::Amend { step, entry, .. } => {
                if let Mark::Confirmed(result) = entry.mark {
                    world.keys[key].effects[usize::from(step)].confirmed = Some(result);
                }
            }
            Write::Complete(_)
            | Write::Commit { .. }
            | Write::Release { .. }
            | Write::Intervene { .. }
            | Write::Read(_) => {}
        }
        if left.done {
            let outcome = left.outcome.map(|name| (name, left.expiration));
            world.keys[key].outcome = outcome;
        }
        if write.books() {
            world.book(key, write);
        }
    }

    /// A claim applied.
    fn claimed(&self, world: &mut World, key: usize, met: Option<Rec>, attempt: u8, fresh: bool) {
        let before = match met {
            Some(rec) if !fresh => rec.attempt,
            Some(_) => 0,
            // Nothing is deleted, except by TTL.
            None => world.keys[key].attempt,
        };
        if attempt <= before {
            world.note("2: attempts increase strictly between fresh starts");
        }
        let lives = met.is_some_and(|rec| {
            let holders = world.workers.iter().zip(&self.scope.workers);
            let until = |(worker, spec): (&crate::world::Worker, &crate::scopes::Spec)| {
                let hold = worker.hold.filter(|hold| hold.owner == rec.owner);
                hold.is_some_and(|hold| {
                    !rec.done && rec.lease != Lease::Released && spec.skew < hold.until
                })
            };
            holders.into_iter().any(until)
        });
        let lives = lives && !world.keys[key].released_live;
        let early = met.is_some_and(|rec| match rec.lease {
            Lease::Until(tick, _) => self.fastest < tick,
            _ => false,
        });
        if early || (lives && self.clocks_agree) {
            world.note("9: no live lease is taken over");
        }
        world.keys[key].attempt = attempt;
        if fresh {
            world.forget(self, key);
        }
    }
}

impl World {
    /// A business write commits.
    fn book(&mut self, key: usize, write: &Write) {
        let (Write::Commit {
            applied, denied, ..
        }
        | Write::Apply {
            applied, denied, ..
        }) = *write
        else {
            return;
        };
        if denied {
            self.note("14: what is refused, or not committed, is not written later");
        }
        if applied {
            self.note("5: a transaction commits at most once");
        }
        if self.keys[key].booked.is_some() {
            self.note("5: a business write commits at most once while its outcome is kept");
        }
        self.keys[key].booked = Some(write.owner());
        self.each_send(write.owner(), |other| {
            if let Write::Commit { applied, .. } | Write::Apply { applied, .. } = other {
                *applied = true;
            }
        });
    }

    /// The key is fresh: what was seen of it no longer counts.
    pub fn forget(&mut self, checker: &Checker, key: usize) {
        let fresh = Key {
            rec: self.keys[key].rec,
            attempt: self.keys[key].attempt,
            ..Key::default()
        };
        self.keys[key] = fresh;
        if checker.scope.steps > 0 {
            let workers = self.workers.iter_mut().zip(&checker.scope.workers);
            for (worker, _) in workers.filter(|(_, spec)| spec.key == key) {
                if let Some(hold) = &mut worker.hold {
                    hold.outdated = true;
                }
            }
        }
    }
}
