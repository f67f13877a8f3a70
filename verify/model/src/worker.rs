//! The actions of a worker, as the engine takes them: decide and set, run, complete or release.

use crate::checker::Checker;
use crate::mutation::Mutation;
use crate::reached::{Event, reach};
use crate::real::{self, Verdict};
use crate::scopes::Form;
use crate::values::{
    Claim, Completion, Entry, Journal, Lease, MARGIN, Mark, Name, Rec, Reply, Seen, Tick, Write,
};
use crate::world::{Answer, Call, Hold, Phase, Why, World};

mod claimless;
mod ending;
mod renewals;
mod steps;

/// As the engine has it.
pub const MAX_ROUNDS: u8 = 3;

impl Checker {
    /// A delivery arrives.
    pub fn start(&self, world: &mut World, w: usize) {
        let spec = &self.scope.workers[w];
        let is_repetition = world.workers[w].deliveries < spec.deliveries;
        world.workers[w].deliveries -= 1;
        let owner = match world.workers[w].last {
            Some(owner) => owner,
            None => world.name(w, false),
        };
        if self.mutation == Mutation::OwnerReused {
            world.workers[w].last = Some(owner);
        }
        if is_repetition {
            call(world, w, Write::Read(owner), Why::Look);
        } else {
            self.begin(world, w, owner, None);
        }
    }

    /// Begins a delivery, with the record that a read found, or without a read.
    pub fn begin(&self, world: &mut World, w: usize, owner: Name, found: Option<Rec>) {
        match self.scope.workers[w].form {
            Form::Claimless => self.begin_claimless(world, w, owner, found),
            Form::Claimed | Form::Transaction => self.decide(world, w, owner, found, 0),
        }
    }

    /// The protocol's word on what was found, in the eyes of a worker.
    pub fn verdict(&self, w: usize, owner: Name, found: Option<Rec>) -> Verdict {
        let spec = &self.scope.workers[w];
        let verdict = real::verdict(found, owner, spec.payload, spec.skew);
        reach(match verdict {
            Verdict::Create => Event::Create,
            Verdict::Mine => Event::Mine,
            Verdict::TakeOver { fresh: true, .. } => Event::TakeOverFresh,
            Verdict::TakeOver { fresh: false, .. } => Event::TakeOverResume,
            Verdict::Replay => Event::Replay,
            Verdict::Mismatch => Event::Mismatch,
            Verdict::InFlight | Verdict::Interrupted => Event::InFlight,
        });
        verdict
    }

    fn decide(&self, world: &mut World, w: usize, owner: Name, found: Option<Rec>, rounds: u8) {
        match (self.verdict(w, owner, found), found) {
            (Verdict::Create | Verdict::TakeOver { .. }, _) if rounds == MAX_ROUNDS => {
                answer(world, w, Answer::InFlight);
            }
            (Verdict::TakeOver { fresh, attempt }, Some(rec)) => {
                let write = Write::TakeOver {
                    seen: Seen::of(&rec),
                    fresh,
                    claim: self.claim(w, owner, attempt, rounds),
                };
                let why = Why::Claim {
                    rounds: rounds + 1,
                    keeps: !fresh && rec.payload.is_some(),
                };
                call(world, w, write, why);
            }
            (Verdict::Create | Verdict::TakeOver { .. }, _) => {
                let why = Why::Claim {
                    rounds: rounds + 1,
                    keeps: false,
                };
                call(
                    world,
                    w,
                    Write::Create(self.claim(w, owner, 1, rounds)),
                    why,
                );
            }
            (Verdict::Mine, Some(rec)) => {
                let Lease::Until(lease, number) = rec.lease else {
                    return answer(world, w, Answer::InFlight);
                };
                let hold = Hold {
                    attempt: rec.attempt,
                    keeps: rec.attempt > 1,
                    journal: rec.journal,
                    number,
                    ..Hold::new(owner, self.until(lease))
                };
                self.run(world, w, hold);
            }
            (Verdict::Replay, Some(rec)) => self.replay(world, w, &rec),
            (Verdict::Mismatch, _) => answer(world, w, Answer::Mismatch),
            _ => answer(world, w, Answer::InFlight),
        }
    }

    /// Returns the time until which a lease lets its own attempt run.
    fn until(&self, lease: Tick) -> Tick {
        match self.mutation {
            Mutation::LeaseWithoutMargin => lease,
            _ => lease - MARGIN,
        }
    }

    /// The end of a lease that begins now.
    pub fn lease(&self, w: usize) -> Tick {
        let now = self.scope.workers[w].skew;
        match self.mutation {
            Mutation::LeaseWithoutMargin => now + self.scope.lease,
            _ => now + self.scope.lease + MARGIN,
        }
    }

    /// Returns the time from which on a record that is claimed or renewed now counts as absent.
    pub fn expiration(&self, w: usize) -> Tick {
        let now = self.scope.workers[w].skew;
        match self.mutation {
            Mutation::ExpiresBeforeItsLease => now,
            _ => self.lease(w) + self.scope.retention.max(MARGIN),
        }
    }

    pub fn claim(&self, w: usize, owner: Name, attempt: u8, number: u8) -> Claim {
        Claim {
            owner,
            payload: self.scope.workers[w].payload,
            attempt,
            lease: self.lease(w),
            number,
            expiration: self.expiration(w),
        }
    }

    pub fn completion(&self, w: usize, owner: Name) -> Completion {
        Completion {
            owner,
            expiration: self.scope.workers[w].skew + self.scope.retention,
        }
    }

    /// A replay gives what stands in the record, to whoever sent that payload.
    pub fn replay(&self, world: &mut World, w: usize, rec: &Rec) {
        let spec = &self.scope.workers[w];
        let known = world.keys[spec.key].outcome.map(|(owner, _)| owner);
        let outdated = world.keys[spec.key].rec != Some(*rec);
        // A record that nothing took effect in is bound to no payload.
        let differs = rec.payload.is_some_and(|bound| bound != spec.payload);
        if (known != rec.outcome && !outdated) || rec.outcome.is_none() || differs {
            world.note(
                "6: a replay returns exactly the stored outcome, never for another fingerprint",
            );
        }
        answer(world, w, Answer::Replayed);
    }

    /// The claim is there: is there time left?
    fn run(&self, world: &mut World, w: usize, hold: Hold) {
        let spec = &self.scope.workers[w];
        if spec.skew >= hold.until {
            return Self::release(world, w, &hold, Answer::TooLate);
        }
        let mut beside = world.workers.iter().zip(&self.scope.workers).enumerate();
        let overlaps = beside.any(|(other, (worker, its))| {
            let has_time = worker.hold.is_some_and(|hold| its.skew < hold.until);
            other != w
                && its.key == spec.key
                && worker.is_executing()
                && has_time
                && its.form != Form::Claimless
        });
        if overlaps && self.clocks_agree && !world.keys[spec.key].released_live {
            world.note("9: no two run at once while the first has time");
        }
        world.workers[w].hold = Some(hold);
        world.workers[w].phase = Phase::Running;
    }

    /// An answer comes back.
    pub fn receive(&self, world: &mut World, w: usize, sent: Call, reply: Reply) {
        let owner = sent.write.owner();
        match (sent.why, sent.write) {
            (Why::Look, _) => self.begin(world, w, owner, reply.rec),
            (Why::Claim { keeps, .. }, Write::Create(claim) | Write::TakeOver { claim, .. })
                if reply.applied =>
            {
                let hold = Hold {
                    attempt: claim.attempt,
                    keeps,
                    // The journal has the predecessor's writes up to the takeover.
                    journal: reply.rec.map_or(Journal::default(), |rec| rec.journal),
                    number: claim.number,
                    ..Hold::new(owner, self.until(claim.lease))
                };
                self.run(world, w, hold);
            }
            (Why::Claim { rounds, .. }, Write::Create(_)) if self.scope.grouped => {
                call(world, w, Write::Read(owner), Why::LookAgain { rounds });
            }
            (Why::Claim { rounds, .. } | Why::LookAgain { rounds }, _) => {
                self.decide(world, w, owner, reply.rec, rounds);
            }
            (Why::End, _) if reply.applied => answer(world, w, Answer::Executed),
            (
                Why::End,
                Write::Complete(sent)
                | Write::Commit {
                    completion: sent, ..
                },
            ) => {
                let told = self.settled(world, w, sent, reply.rec);
                answer(world, w, told);
            }
            (Why::Release, _) => finish(world, w),
            (Why::Fence { sent, rounds }, fence) => {
                self.fenced_off(world, w, sent, rounds, fence.owner(), reply);
            }
            (Why::Prove(completion), Write::Release { tombstone, .. }) => {
                self.proven(world, w, completion, tombstone, reply);
            }
            (Why::Note(note), _) => self.noted(world, w, note, sent, reply),
            _ => self.receive_claimless(world, w, sent, reply),
        }
    }
}

impl Hold {
    pub fn new(owner: Name, until: Tick) -> Self {
        Self {
            owner,
            attempt: 0,
            until,
            keeps: false,
            journal: [Entry {
                mark: Mark::Absent,
                revision: 0,
            }; crate::values::STEPS],
            step: 0,
            firing: false,
            number: 0,
            renewal: None,
            found: None,
            outdated: false,
        }
    }
}

/// Sends a write, and drops the worker's hold, which a caller that needs it puts back.
pub fn call(world: &mut World, w: usize, write: Write, why: Why) {
    world.workers[w].hold = None;
    world.workers[w].phase = Phase::Calling(Call {
        write,
        why,
        silent: false,
    });
}

/// The delivery has its answer.
pub fn answer(world: &mut World, w: usize, told: Answer) {
    reach(Event::of(told));
    finish(world, w);
}

/// Forgets the delivery, however it ended: no later delivery depends on it.
fn finish(world: &mut World, w: usize) {
    world.workers[w].hold = None;
    world.workers[w].phase = Phase::Idle;
}
