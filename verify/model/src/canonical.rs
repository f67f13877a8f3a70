//! States that differ in nothing that matters become one.
//!
//! Nothing is left out by this: each rule says why what it drops can never be noticed. `tests.rs` holds the reduced search
//! against one without these rules.

use crate::checker::Checker;
use crate::labels::NAMES;
use crate::mutation::Mutation;
use crate::values::{Claim, MARGIN, Name, REDACTED, Rec, STRANGER, Seen, Tick, Write};
use crate::world::{Budget, KEYS, Phase, WORKERS, Why, Worker, World};

use orders::Order;
use times::Kind;

mod names;
pub mod orders;
mod times;

impl Checker {
    /// The state that stands for all that are like this one.
    pub fn canonical(&self, mut world: World) -> World {
        self.clamp(&mut world);
        if self.reduction.prunes {
            while self.prune(&mut world) {}
        }
        if !self.reduction.reorders {
            return world;
        }
        // Most often the workers differ in more than names, and one order is enough.
        let shapes = world.workers.map(|worker| worker.shape());
        let shape = |order: &Order| order.workers.map(|w| shapes[w]);
        let least = self.orders.iter().map(shape).min();
        let mut alike = self
            .orders
            .iter()
            .filter(|order| Some(shape(order)) == least);
        let Some(first) = alike.next() else {
            return world;
        };
        let best = alike.map(|order| world.clone().reordered(order)).min();
        let first = world.reordered(first);
        match best {
            Some(best) if best < first => best,
            _ => first,
        }
    }

    /// One tick passes.
    pub fn pass(world: &mut World) {
        world.each_tick(&mut |tick, _| *tick = tick.saturating_sub(1));
    }

    /// A time that is over by every clock is as good as any that was over before.
    fn clamp(&self, world: &mut World) {
        world.each_tick(&mut |tick, kind| *tick = (*tick).max(self.floor(kind)));
    }

    fn floor(&self, kind: Kind) -> Tick {
        let floor = match kind {
            Kind::Lease => self.slowest,
            // TTL goes by the true time.
            Kind::Expiration => (self.slowest - MARGIN).min(-1),
            Kind::Own(w) => self.scope.workers.get(w).map_or(0, |spec| spec.skew),
        };
        floor - self.reduction.slack
    }

    /// Drops everything that nobody can notice any more, and tells whether there was anything.
    fn prune(&self, world: &mut World) -> bool {
        let mut changed = false;
        let now = Wire::of(world);
        for (worker, spec) in world.workers.iter_mut().zip(&self.scope.workers) {
            // A claim that applied is what its sender will go by.
            let (call, applied) = match &mut worker.phase {
                Phase::Calling(call) => (call, false),
                Phase::Answered(call, reply) => (call, reply.applied),
                Phase::Idle | Phase::Running => continue,
            };
            changed |= self.age(&now, spec.key, &mut call.write, applied);
            match &mut call.why {
                Why::Claim { keeps, .. } if !applied && !may_apply(&call.write) => *keeps = false,
                // A completion is settled by its owner alone, whatever its expiration.
                Why::Prove(sent) => sent.expiration = self.floor(Kind::Expiration),
                _ => {}
            }
        }
        for (key, write) in &mut world.late {
            changed |= self.age(&now, usize::from(*key), write, false);
        }
        let copies = world.late.len();
        let alive = |(key, write): &(u8, Write)| self.lives(&now, usize::from(*key), write);
        world.late.retain(alive);
        let reruns = world.budget.interventions > 0 || world.intervenes();
        for key in &mut world.keys {
            if let Some(rec) = key.rec.as_mut().filter(|rec| rec.done && !reruns) {
                // A final record's journal is for people.
                rec.journal = <_>::default();
            }
        }
        // When all have their answers, only late copies and TTL are left.
        let waits = |worker: &Worker| worker.deliveries > 0 || worker.phase != Phase::Idle;
        if !world.workers.iter().any(waits) {
            let left = world.budget;
            world.budget = Budget::default();
            if !world.late.is_empty() {
                world.budget.sweeps = left.sweeps;
                world.budget.interventions = left.interventions;
                world.budget.replies_lost = left.replies_lost.min(left.interventions);
            }
        }
        changed || world.late.len() != copies
    }

    /// A version that was replaced never comes back, unless a claim of its owner is still on its way. Owners are never used again.
    fn age(&self, now: &Wire, key: usize, write: &mut Write, applied: bool) -> bool {
        let nothing = Claim {
            owner: write.owner(),
            payload: 0,
            attempt: 0,
            lease: self.floor(Kind::Lease),
            number: 0,
            expiration: self.floor(Kind::Expiration),
        };
        let stands = |seen: &Seen| now.recs[key].as_ref().map(Seen::of) == Some(*seen);
        let (seen, claim) = match write {
            Write::TakeOver { seen, claim, .. } => (seen, claim),
            Write::Apply { over, claim, .. } => {
                // The completion's times take the place of the claim's.
                (claim.lease, claim.expiration) = (nothing.lease, nothing.expiration);
                claim.number = 0;
                match over {
                    Some((seen, _)) => (seen, claim),
                    None => return false,
                }
            }
            Write::Intervene { seen, .. } => {
                let owner = seen.owner();
                let changed = matches!(seen, Seen::Exactly { .. })
                    && !stands(seen)
                    && !now.may_claim(owner)
                    && self.mutation != Mutation::InterveneWithoutGuard;
                if changed {
                    *seen = Seen::Stale(STRANGER);
                }
                return changed;
            }
            _ => return false,
        };
        // Its owner is nobody's business any more, except for a takeover that compares nothing else.
        let compares = self.mutation == Mutation::TakeoverComparesOwnerOnly;
        let payload = claim.payload;
        let refused = Claim { payload, ..nothing };
        let Seen::Exactly { owner, .. } = *seen else {
            // A key was to be fenced off over a version that had been replaced already.
            let changed = !compares && !applied && *claim != refused;
            if changed {
                *claim = refused;
            }
            return changed;
        };
        if stands(seen) || now.may_claim(owner) || self.mutation == Mutation::OwnerReused {
            return false;
        }
        *seen = Seen::Stale(if compares { owner } else { STRANGER });
        if !compares && !applied {
            // It will be refused, whatever it says.
            *claim = refused;
        }
        true
    }

    /// Returns whether a copy of a write could still change something.
    fn lives(&self, now: &Wire, key: usize, write: &Write) -> bool {
        let rec = now.recs[key];
        let over_nothing = rec.is_none()
            || now.sweeps
            || self.mutation == Mutation::ReleaseDeletes
            || self.mutation == Mutation::ClaimlessOverAnything;
        let fenced = |owner: Name| {
            self.mutation.unfences(write)
                || rec.is_some_and(|rec| !rec.done && rec.owner == owner)
                || now.may_claim(owner)
        };
        let over = |seen: Seen| match seen {
            Seen::Exactly { .. } => true,
            Seen::Stale(_) => self.mutation == Mutation::TakeoverComparesOwnerOnly,
        };
        !self.is_overdue(write)
            && match *write {
                Write::Create(_) | Write::Apply { over: None, .. } => over_nothing,
                Write::TakeOver { seen, .. }
                | Write::Apply {
                    over: Some((seen, _)),
                    ..
                } => over(seen),
                Write::Intervene { seen, .. } => {
                    self.mutation == Mutation::InterveneWithoutGuard || over(seen)
                }
                Write::Read(_) => false,
                _ => fenced(write.owner()),
            }
    }

    /// A transaction arrives before what it writes would have expired, or not at all: AWS refuses signatures and forgets
    /// client tokens after minutes, and the shortest retention is an hour.
    pub fn is_overdue(&self, write: &Write) -> bool {
        let is_late = match write {
            Write::Commit { completion, .. } => completion.expiration < 0,
            // A clock that is ahead sees it expire in this very tick, and nothing ends a claim that was never made.
            Write::Apply { completion, .. } => completion.expiration <= 0,
            _ => false,
        };
        is_late && self.mutation != Mutation::LateWithoutEnd
    }
}

/// The parts of a state that decide whether a write on its way still counts.
struct Wire {
    recs: [Option<Rec>; KEYS],
    sweeps: bool,
    /// The owners of claims that may still apply.
    claims: [Option<Name>; 2 * WORKERS],
}

impl Wire {
    fn of(world: &World) -> Self {
        let sent = world
            .workers
            .iter()
            .filter_map(|worker| match &worker.phase {
                Phase::Calling(call) => Some(&call.write),
                _ => None,
            });
        let all = sent.chain(world.late.iter().map(|(_, write)| write));
        let mut owners = all.filter(|write| write.claims() && may_apply(write));
        Self {
            recs: world.keys.map(|key| key.rec),
            sweeps: world.budget.sweeps > 0,
            claims: std::array::from_fn(|_| owners.next().map(Write::owner)),
        }
    }

    fn may_claim(&self, owner: Name) -> bool {
        self.claims.contains(&Some(owner))
    }
}

/// Returns whether a write isn't bound to be refused.
fn may_apply(write: &Write) -> bool {
    let (Write::TakeOver { seen, .. }
    | Write::Intervene { seen, .. }
    | Write::Apply {
        over: Some((seen, _)),
        ..
    }) = write
    else {
        return true;
    };
    matches!(seen, Seen::Exactly { .. })
}

impl World {
    /// Workers in another order, and owners numbered as they come.
    fn reordered(mut self, order: &Order) -> Self {
        self.workers = order.workers.map(|w| self.workers[w]);
        self.keys = order.keys.map(|key| self.keys[key]);
        for (key, _) in &mut self.late {
            let place = order.keys.iter().position(|old| *old == usize::from(*key));
            *key = u8::try_from(place.expect("a permutation")).expect("few keys");
        }
        let mut numbers = [u8::MAX; NAMES];
        let mut next = 0;
        self.each_name(&mut |name| {
            if *name == STRANGER || *name == REDACTED {
                return;
            }
            let number = &mut numbers[usize::from(name.0)];
            if *number == u8::MAX {
                *number = next;
                next += 1;
            }
            *name = Name(*number);
        });
        self.names = next;
        self.late.sort_unstable();
        self.labels = self.labels.renamed(&order.workers, &numbers);
        self
    }
}
