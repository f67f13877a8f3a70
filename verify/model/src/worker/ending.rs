//! The end of an attempt: completed, committed or released; and its result where that is in doubt.

use super::{answer, call, finish};
use crate::checker::Checker;
use crate::mutation::Mutation;
use crate::reached::{Event, reach};
use crate::real::{self, Fate};
use crate::scopes::Form;
use crate::values::{Completion, Journal, Name, Rec, Reply, Write};
use crate::world::{Answer, Call, Hold, Why, World};

impl Checker {
    /// The handler returns.
    pub fn end(&self, world: &mut World, w: usize, succeeds: bool) {
        let Some(mut hold) = world.workers[w].hold else {
            return;
        };
        let spec = &self.scope.workers[w];
        if let Some(renewal) = hold.renewal.take() {
            // Nobody waits for it any more.
            let key = u8::try_from(spec.key).expect("few keys");
            world.late.push((key, Write::Renew(renewal)));
        }
        if spec.form == Form::Claimless {
            return self.end_claimless(world, w, &hold, succeeds);
        }
        if !succeeds {
            return Self::release(world, w, &hold, Answer::Failed);
        }
        let key = &world.keys[spec.key];
        let is_anothers = key.rec.is_some_and(|rec| rec.owner != hold.owner);
        if is_anothers && self.scope.holds() && self.clocks_agree && !key.released_live {
            world.note("14: a handler whose lease is renewed, or ends with a deadline, has no effect after another took over");
        }
        let completion = self.completion(w, hold.owner);
        if spec.form == Form::Transaction {
            hold.until = spec.skew;
            let write = Write::Commit {
                completion,
                applied: false,
                denied: false,
            };
            call(world, w, write, Why::End);
            // The claim may have to be released.
            world.workers[w].hold = Some(hold);
        } else {
            call(world, w, Write::Complete(completion), Why::End);
        }
    }

    /// Ends the claim; then the caller is told this.
    pub fn release(world: &mut World, w: usize, hold: &Hold, told: Answer) {
        reach(Event::of(told));
        Self::send_release(world, w, hold, Why::Release);
    }

    fn send_release(world: &mut World, w: usize, hold: &Hold, why: Why) {
        let has_steps = hold.journal != Journal::default();
        let tombstone = world.name(w, true);
        let write = Write::Release {
            owner: hold.owner,
            tombstone,
            forgets: !(hold.keeps || has_steps),
        };
        call(world, w, write, why);
    }

    /// A completion that met something else.
    pub fn settled(
        &self,
        world: &mut World,
        w: usize,
        sent: Completion,
        met: Option<Rec>,
    ) -> Answer {
        let spec = &self.scope.workers[w];
        let believes = self.mutation == Mutation::BelievesWithoutComparing
            && met.is_some_and(|rec| rec.owner == sent.owner && rec.done);
        let fate = real::fate(met, sent, Some(spec.payload));
        let stands = world.keys[spec.key].outcome.map(|(owner, _)| owner);
        let mine = stands == Some(sent.owner);
        // The record of the reply may have expired since.
        let is_now = world.keys[spec.key].rec == met;
        if believes || fate == Fate::Recorded {
            if !mine && is_now {
                world.note("7: a completion counts as mine only if it is");
            }
            return Answer::Executed;
        }
        if mine && is_now {
            world.note("7: a write that applied is not denied");
        }
        match fate {
            Fate::Superseded => Answer::Replayed,
            _ => Answer::LeaseLost,
        }
    }

    /// Settles whether a commit without a reply took effect: only the fence can tell.
    pub fn proven(
        &self,
        world: &mut World,
        w: usize,
        sent: Completion,
        tombstone: Name,
        reply: Reply,
    ) {
        let spec = &self.scope.workers[w];
        let booked = world.keys[spec.key].booked == Some(sent.owner);
        let released = reply.applied || reply.rec.is_some_and(|rec| rec.owner == tombstone);
        if released {
            if booked {
                world.note("5: a release that applied proves that nothing was committed");
            }
            world.deny(spec.key, sent.owner);
            return answer(world, w, Answer::Failed);
        }
        let attempt = world.workers[w].hold.map_or(0, |hold| hold.attempt);
        let told = match real::fate(reply.rec, sent, Some(spec.payload)) {
            Fate::Recorded => Answer::Executed,
            fate if reply.rec.is_some_and(|rec| rec.attempt > attempt) => {
                if booked {
                    world.note("5: a successor proves that nothing was committed");
                }
                match fate {
                    Fate::Superseded => Answer::Replayed,
                    _ => Answer::LeaseLost,
                }
            }
            _ => Answer::Unknown,
        };
        answer(world, w, told);
    }

    /// A release that settles what became of a commit.
    fn prove(world: &mut World, w: usize, completion: Completion) {
        let owner = completion.owner;
        let hold = world.workers[w].hold.unwrap_or(Hold::new(owner, 0));
        Self::send_release(world, w, &hold, Why::Prove(completion));
        // The attempt's number tells a successor.
        world.workers[w].hold = Some(Hold {
            attempt: hold.attempt,
            ..Hold::new(owner, 0)
        });
    }

    /// A business condition failed. Where an earlier send got no answer, it may still apply.
    pub fn refused(&self, world: &mut World, w: usize, sent: Call) {
        let silent = sent.silent && self.mutation != Mutation::HiddenRetries;
        let (owner, key) = (sent.write.owner(), self.scope.workers[w].key);
        match sent.write {
            Write::Commit { completion, .. } if silent => Self::prove(world, w, completion),
            Write::Commit { .. } => {
                world.deny(key, owner);
                let hold = world.workers[w].hold.unwrap_or(Hold::new(owner, 0));
                Self::release(world, w, &hold, Answer::Refused);
            }
            _ if silent => self.fence_off(world, w, sent),
            _ => {
                world.deny(key, owner);
                answer(world, w, Answer::Refused);
            }
        }
    }

    /// The caller stops waiting for an answer.
    pub fn give_up(&self, world: &mut World, w: usize, sent: Call) {
        let owner = sent.write.owner();
        match (sent.why, sent.write) {
            // The read only saves a write that would fail.
            (Why::Look, _) => self.begin(world, w, owner, None),
            (Why::Claim { .. } | Why::LookAgain { .. }, _) => {
                let hold = Hold {
                    keeps: true,
                    ..Hold::new(owner, 0)
                };
                Self::release(world, w, &hold, Answer::Unavailable);
            }
            (Why::End, Write::Commit { completion, .. }) => Self::prove(world, w, completion),
            (Why::End | Why::Prove(_), _) => answer(world, w, Answer::Unknown),
            (Why::Release, _) => finish(world, w),
            (Why::Note(note), _) => Self::note_unanswered(world, w, note, sent),
            _ => self.give_up_claimless(world, w, sent),
        }
    }
}
