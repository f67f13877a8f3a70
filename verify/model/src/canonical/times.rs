//! The places of times in a state.

use crate::values::{Lease, Rec, Seen, Tick, Write};
use crate::world::{Phase, Why, World};

/// The meaning of a time, which tells from where on it is over for everybody.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Lease,
    Expiration,
    /// The end of a worker's own time.
    Own(usize),
}

impl World {
    /// All times.
    pub fn each_tick(&mut self, f: &mut impl FnMut(&mut Tick, Kind)) {
        for (w, worker) in self.workers.iter_mut().enumerate() {
            if let Some(hold) = &mut worker.hold {
                f(&mut hold.until, Kind::Own(w));
                if let Some(renewal) = &mut hold.renewal {
                    f(&mut renewal.lease, Kind::Lease);
                    f(&mut renewal.expiration, Kind::Expiration);
                }
                of_rec(hold.found.as_mut(), f);
            }
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
            if let Some((_, expiration)) = &mut key.outcome {
                f(expiration, Kind::Expiration);
            }
        }
        for (_, write) in &mut self.late {
            of_write(write, f);
        }
    }
}

fn of_call(write: &mut Write, why: &mut Why, f: &mut impl FnMut(&mut Tick, Kind)) {
    of_write(write, f);
    if let Why::Prove(completion)
    | Why::Fence {
        sent: completion, ..
    } = why
    {
        f(&mut completion.expiration, Kind::Expiration);
    }
}

fn of_rec(rec: Option<&mut Rec>, f: &mut impl FnMut(&mut Tick, Kind)) {
    if let Some(rec) = rec {
        of_lease(&mut rec.lease, f);
        f(&mut rec.expiration, Kind::Expiration);
    }
}

fn of_lease(lease: &mut Lease, f: &mut impl FnMut(&mut Tick, Kind)) {
    if let Lease::Until(tick, _) = lease {
        f(tick, Kind::Lease);
    }
}

fn of_write(write: &mut Write, f: &mut impl FnMut(&mut Tick, Kind)) {
    let of_seen = |seen: &mut Seen, f: &mut dyn FnMut(&mut Tick, Kind)| {
        if let Seen::Exactly {
            lease, expiration, ..
        } = seen
        {
            if let Lease::Until(tick, _) = lease {
                f(tick, Kind::Lease);
            }
            f(expiration, Kind::Expiration);
        }
    };
    match write {
        Write::TakeOver { seen, .. } => of_seen(seen, f),
        Write::Apply {
            over, completion, ..
        } => {
            if let Some((seen, _)) = over {
                of_seen(seen, f);
            }
            f(&mut completion.expiration, Kind::Expiration);
        }
        Write::Complete(completion) | Write::Commit { completion, .. } => {
            f(&mut completion.expiration, Kind::Expiration);
        }
        Write::Renew(renewal) => {
            f(&mut renewal.lease, Kind::Lease);
            f(&mut renewal.expiration, Kind::Expiration);
        }
        Write::Intervene {
            seen, expiration, ..
        } => {
            of_seen(seen, f);
            f(expiration, Kind::Expiration);
        }
        Write::Create(_) | Write::Amend { .. } | Write::Release { .. } | Write::Read(_) => {}
    }
    if let Write::Create(claim) | Write::TakeOver { claim, .. } | Write::Apply { claim, .. } = write
    {
        f(&mut claim.lease, Kind::Lease);
        f(&mut claim.expiration, Kind::Expiration);
    }
}
