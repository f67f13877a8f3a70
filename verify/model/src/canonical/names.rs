//! The places of owners' names in a state, always in the same order.

use crate::values::{Entry, Mark, Name, Rec, Seen, Write};
use crate::world::{Hold, Phase, Why, World};

impl World {
    /// All names.
    pub fn each_name(&mut self, f: &mut impl FnMut(&mut Name)) {
        for worker in &mut self.workers {
            if let Some(hold) = &mut worker.hold {
                of_hold(hold, f);
            }
            worker.last.iter_mut().for_each(&mut *f);
            match &mut worker.phase {
                Phase::Calling(call) => of_call(&mut call.write, &mut call.why, f),
                Phase::Answered(call, reply) => {
                    of_call(&mut call.write, &mut call.why, f);
                    of_rec(reply.rec.as_mut(), f);
                }
                Phase::Idle | Phase::Running => {}
            }
        }
        for key in &mut self.keys {
            of_rec(key.rec.as_mut(), f);
            if let Some((owner, _)) = &mut key.outcome {
                f(owner);
            }
            key.booked.iter_mut().for_each(&mut *f);
            for effect in &mut key.effects {
                let names = effect.first.iter_mut().chain(&mut effect.confirmed);
                names.for_each(&mut *f);
            }
        }
        for (_, write) in &mut self.late {
            of_write(write, f);
        }
    }
}

fn of_hold(hold: &mut Hold, f: &mut impl FnMut(&mut Name)) {
    f(&mut hold.owner);
    hold.journal.iter_mut().for_each(|entry| of_entry(entry, f));
    if let Some(renewal) = &mut hold.renewal {
        f(&mut renewal.owner);
    }
    of_rec(hold.found.as_mut(), f);
}

fn of_entry(entry: &mut Entry, f: &mut impl FnMut(&mut Name)) {
    if let Mark::Confirmed(name) = &mut entry.mark {
        f(name);
    }
}

fn of_rec(rec: Option<&mut Rec>, f: &mut impl FnMut(&mut Name)) {
    if let Some(rec) = rec {
        f(&mut rec.owner);
        rec.outcome.iter_mut().for_each(&mut *f);
        rec.journal.iter_mut().for_each(|entry| of_entry(entry, f));
    }
}

fn of_call(write: &mut Write, why: &mut Why, f: &mut impl FnMut(&mut Name)) {
    of_write(write, f);
    if let Why::Prove(completion)
    | Why::Fence {
        sent: completion, ..
    } = why
    {
        f(&mut completion.owner);
    }
}

fn of_write(write: &mut Write, f: &mut impl FnMut(&mut Name)) {
    match write {
        Write::Create(claim) => f(&mut claim.owner),
        Write::TakeOver { seen, claim, .. } => {
            f(&mut claim.owner);
            of_seen(seen, f);
        }
        Write::Apply {
            over,
            claim,
            completion,
            ..
        } => {
            f(&mut claim.owner);
            f(&mut completion.owner);
            if let Some((seen, _)) = over {
                of_seen(seen, f);
            }
        }
        Write::Complete(completion) | Write::Commit { completion, .. } => f(&mut completion.owner),
        Write::Renew(renewal) => f(&mut renewal.owner),
        Write::Amend { owner, entry, .. } => {
            f(owner);
            of_entry(entry, f);
        }
        Write::Release {
            owner, tombstone, ..
        } => {
            f(owner);
            f(tombstone);
        }
        Write::Intervene {
            seen, owner, steps, ..
        } => {
            f(owner);
            of_seen(seen, f);
            for entry in steps {
                of_entry(entry, f);
            }
        }
        Write::Read(owner) => f(owner),
    }
}

fn of_seen(seen: &mut Seen, f: &mut impl FnMut(&mut Name)) {
    match seen {
        Seen::Exactly { owner, .. } | Seen::Stale(owner) => f(owner),
    }
}
