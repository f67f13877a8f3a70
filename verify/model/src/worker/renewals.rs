//! A lease that is renewed beside the handler.

use super::answer;
use crate::checker::Checker;
use crate::mutation::Mutation;
use crate::scopes::Form;
use crate::values::{Lease, Renewal, Reply};
use crate::world::{Answer, Hold, World};

impl Checker {
    /// The handler asks for more time.
    pub fn renew(&self, world: &mut World, w: usize) {
        let (lease, expiration) = (self.lease(w), self.expiration(w));
        if let Some(hold) = &mut world.workers[w].hold {
            hold.renewal = Some(Renewal {
                owner: hold.owner,
                lease,
                number: hold.number + 1,
                expiration,
            });
        }
    }

    /// Returns whether there is more time to be had. The fence tells whether a lease that is over is still its own.
    pub fn may_renew(&self, w: usize, hold: &Hold) -> bool {
        hold.renewal.is_none() && hold.until < self.until(self.lease(w))
    }

    /// Returns whether the handler does nothing more until its lease is renewed, or it is ended.
    pub fn is_suspended(&self, w: usize, hold: &Hold) -> bool {
        let spec = &self.scope.workers[w];
        let is_over = spec.skew >= hold.until && spec.form != Form::Claimless;
        is_over && self.scope.holds() && self.mutation != Mutation::GoesOnUnrenewed
    }

    /// A renewal is answered, while the handler runs.
    pub fn renewed(&self, world: &mut World, w: usize, reply: Reply) {
        let Some(mut hold) = world.workers[w].hold else {
            return;
        };
        let Some(renewal) = hold.renewal.take() else {
            return;
        };
        let earlier = reply.rec.filter(|rec| {
            rec.owner == hold.owner && rec.lease == Lease::Until(renewal.lease, renewal.number)
        });
        if !reply.applied && earlier.is_none() {
            return answer(world, w, Answer::LeaseLost);
        }
        hold.until = self.until(renewal.lease);
        hold.number = renewal.number;
        world.workers[w].hold = Some(hold);
    }
}
