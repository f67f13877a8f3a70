//! A worker without a claim: the handler first, and then one transaction that holds the outcome and the handler's writes.

use super::{MAX_ROUNDS, answer, call};
use crate::checker::Checker;
use crate::reached::{Event, reach};
use crate::real::Verdict;
use crate::values::{Claim, Completion, ENDED, Name, Rec, Reply, Seen, Tick, UNBOUND, Write};
use crate::world::{Answer, Call, Hold, Phase, Why, World};

impl Checker {
    /// Runs the handler, where nothing stands in the way as far as is known.
    pub fn begin_claimless(&self, world: &mut World, w: usize, owner: Name, found: Option<Rec>) {
        match (self.verdict(w, owner, found), found) {
            (Verdict::Replay, Some(rec)) => self.replay(world, w, &rec),
            (Verdict::Create | Verdict::TakeOver { .. }, _) => {
                let until = self.scope.workers[w].skew + self.scope.lease;
                let hold = Hold {
                    found,
                    ..Hold::new(owner, until)
                };
                world.workers[w].hold = Some(hold);
                world.workers[w].phase = Phase::Running;
            }
            (Verdict::Mismatch, _) => answer(world, w, Answer::Mismatch),
            _ => answer(world, w, Answer::InFlight),
        }
    }

    pub fn end_claimless(&self, world: &mut World, w: usize, hold: &Hold, succeeds: bool) {
        if succeeds {
            self.send(world, w, hold.owner, hold.found, 0, false);
        } else {
            // A duplicate may fail because the original has succeeded.
            let owner = world.name(w, false);
            call(world, w, Write::Read(owner), Why::Failed);
        }
    }

    /// The transaction, if no other outcome stands.
    fn send(
        &self,
        world: &mut World,
        w: usize,
        owner: Name,
        found: Option<Rec>,
        rounds: u8,
        silent: bool,
    ) {
        let (over, attempt) = match (self.verdict(w, owner, found), found) {
            // An earlier send applied, whatever the round.
            (Verdict::Replay, Some(rec)) if rec.owner == owner => {
                self.check_mine(world, w, owner, &rec);
                return answer(world, w, Answer::Executed);
            }
            _ if rounds == MAX_ROUNDS && silent => return answer(world, w, Answer::Unknown),
            _ if rounds == MAX_ROUNDS => return answer(world, w, Answer::InFlight),
            (Verdict::Create, _) => (None, 1),
            (Verdict::TakeOver { fresh, attempt }, Some(rec)) => {
                (Some((Seen::of(&rec), fresh)), attempt)
            }
            (Verdict::Replay, Some(rec)) => return self.replay(world, w, &rec),
            (Verdict::Mismatch, _) => return answer(world, w, Answer::Mismatch),
            _ => return answer(world, w, Answer::InFlight),
        };
        let write = Write::Apply {
            over,
            claim: self.claim(w, owner, attempt, 0),
            completion: self.completion(w, owner),
            applied: false,
            denied: false,
        };
        let why = Why::Apply { rounds: rounds + 1 };
        call(world, w, write, why);
    }

    pub fn receive_claimless(&self, world: &mut World, w: usize, sent: Call, reply: Reply) {
        let owner = sent.write.owner();
        match sent.why {
            Why::Apply { .. } if reply.applied => answer(world, w, Answer::Executed),
            Why::Apply { rounds } => {
                let Write::Apply { completion, .. } = sent.write else {
                    return;
                };
                self.send_again(world, w, completion, reply.rec, rounds, sent.silent);
            }
            Why::Find => match reply.rec {
                Some(rec) if rec.owner == owner => {
                    self.check_mine(world, w, owner, &rec);
                    answer(world, w, Answer::Executed);
                }
                _ => answer(world, w, Answer::Unknown),
            },
            Why::Failed => match (self.verdict(w, owner, reply.rec), reply.rec) {
                (Verdict::Replay, Some(rec)) => self.replay(world, w, &rec),
                (Verdict::Mismatch, _) => answer(world, w, Answer::Mismatch),
                _ => answer(world, w, Answer::Failed),
            },
            other => panic!("{other:?} is answered elsewhere"),
        }
    }

    /// The completion stays as it was frozen, whatever the round.
    fn send_again(
        &self,
        world: &mut World,
        w: usize,
        frozen: Completion,
        met: Option<Rec>,
        rounds: u8,
        was_silent: bool,
    ) {
        self.send(world, w, frozen.owner, met, rounds, was_silent);
        if let Phase::Calling(Call {
            write: Write::Apply { completion, .. },
            silent,
            ..
        }) = &mut world.workers[w].phase
        {
            *completion = frozen;
            *silent = was_silent;
        }
    }

    /// A released record takes the place that the transaction was to take, so that no send of it applies any more.
    pub fn fence_off(&self, world: &mut World, w: usize, sent: Call) {
        let (
            Write::Apply {
                over,
                claim,
                completion,
                ..
            },
            Why::Apply { rounds },
        ) = (sent.write, sent.why)
        else {
            return;
        };
        let resumes = over.is_some_and(|(_, fresh)| !fresh);
        let claim = Claim {
            owner: world.name(w, true),
            // A record that is bound to a payload stays bound to it.
            payload: if resumes { claim.payload } else { UNBOUND },
            lease: Tick::MIN,
            number: ENDED,
            expiration: self.expiration(w),
            ..claim
        };
        let write = match over {
            None => Write::Create(claim),
            Some((seen, fresh)) => Write::TakeOver { seen, fresh, claim },
        };
        let why = Why::Fence {
            sent: completion,
            rounds,
        };
        call(world, w, write, why);
    }

    pub fn fenced_off(
        &self,
        world: &mut World,
        w: usize,
        sent: Completion,
        rounds: u8,
        tombstone: Name,
        reply: Reply,
    ) {
        match reply.rec {
            _ if reply.applied => self.never(world, w, sent.owner),
            Some(rec) if rec.owner == tombstone => self.never(world, w, sent.owner),
            Some(rec) if rec.owner == sent.owner => {
                self.check_mine(world, w, sent.owner, &rec);
                answer(world, w, Answer::Executed);
            }
            met => self.send_again(world, w, sent, met, rounds, true),
        }
    }

    /// No send has applied, and none can.
    fn never(&self, world: &mut World, w: usize, owner: Name) {
        reach(Event::FencedOff);
        world.deny(self.scope.workers[w].key, owner);
        answer(world, w, Answer::Failed);
    }

    pub fn give_up_claimless(&self, world: &mut World, w: usize, sent: Call) {
        match sent.why {
            Why::Apply { .. } => self.fence_off(world, w, sent),
            // Where the fence can't be written, a read may tell.
            Why::Fence { sent, .. } => call(world, w, Write::Read(sent.owner), Why::Find),
            Why::Find => answer(world, w, Answer::Unknown),
            Why::Failed => answer(world, w, Answer::Failed),
            other => panic!("{other:?} is given up elsewhere"),
        }
    }

    /// A record of one's own says that one's writes are there.
    fn check_mine(&self, world: &mut World, w: usize, owner: Name, rec: &Rec) {
        let key = &world.keys[self.scope.workers[w].key];
        if key.rec == Some(*rec) && key.booked != Some(owner) {
            world.note("5: a record is completed if and only if its business writes are there");
        }
    }
}
