//! Liveness: when the trouble is over and the leases have run out, a patient caller gets each key to its end.

use std::cell::RefCell;
use std::collections::HashMap;

use ahash::RandomState;

use crate::checker::Checker;
use crate::reduction::Reduction;
use crate::scopes::{Provider, Scope, Spec};
use crate::values::{Entry, Lease, Mark, Rec};
use crate::world::{Phase, World};

/// So many deliveries are patience enough.
const DELIVERIES: u8 = 6;

impl Checker {
    pub fn recovers(&self, world: &World) -> bool {
        thread_local! {
            static KNOWN: RefCell<HashMap<Rec, bool, RandomState>> = RefCell::default();
        }
        let recs = world.keys.iter().filter_map(|key| key.rec);
        recs.into_iter().all(|rec| {
            // Nobody else acts, so the record is all that counts.
            let known = KNOWN.with_borrow(|known| known.get(&rec).copied());
            known.unwrap_or_else(|| {
                let ends = self.ends(rec);
                KNOWN.with_borrow_mut(|known| known.insert(rec, ends));
                ends
            })
        })
    }

    fn ends(&self, rec: Rec) -> bool {
        // Whichever payload the key is bound to.
        (0..2).any(|payload| self.ends_with(rec, payload))
    }

    /// All leases have run out, and nothing has expired: that would be a new beginning.
    fn ends_with(&self, mut rec: Rec, payload: u8) -> bool {
        if let Lease::Until(lease, _) = &mut rec.lease {
            *lease = (*lease).min(0);
        }
        rec.expiration = 100;
        let spec = Spec {
            payload,
            deliveries: DELIVERIES,
            key: 0,
            skew: 0,
            ..self.scope.workers[0]
        };
        let scope = Scope {
            workers: vec![spec],
            grouped: false,
            ..self.scope.clone()
        };
        let patient = Self::new(scope, self.mutation, Reduction::LEAST);
        let mut world = World::new(&patient.scope);
        world.names = 20;
        world.keys[0].rec = Some(rec);
        while world.workers[0].deliveries > 0 {
            patient.start(&mut world, 0);
            patient.finish(&mut world);
            let Some(rec) = &mut world.keys[0].rec else {
                continue;
            };
            if rec.done {
                return true;
            }
            settle_steps(rec, self.scope.provider);
        }
        false
    }

    /// One delivery, without trouble.
    fn finish(&self, world: &mut World) {
        loop {
            let hold = world.workers[0].hold;
            match (world.workers[0].phase, hold) {
                (Phase::Calling(call), _) => {
                    let reply = self.apply(world, 0, &call.write);
                    self.receive(world, 0, call, reply);
                }
                (Phase::Running, Some(hold)) if hold.firing => self.fire(world, 0, false),
                (Phase::Running, Some(hold)) if hold.step < self.scope.steps => self.step(world, 0),
                (Phase::Running, _) => self.end(world, 0, true),
                (Phase::Idle | Phase::Answered(..), _) => return,
            }
        }
    }
}

/// An operator has looked.
fn settle_steps(rec: &mut Rec, provider: Provider) {
    for entry in &mut rec.journal {
        if entry.mark == Mark::Pending && provider == Provider::NoKeysInterrupt {
            *entry = Entry {
                mark: Mark::Failed,
                revision: entry.revision + 1,
            };
        }
    }
}
