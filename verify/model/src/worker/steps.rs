//! A handler in steps: each is noted as pending, its effect fires at a provider, and what came of it is noted.

use lambda_idempotency::OnCrash;

use super::answer;
use crate::checker::Checker;
use crate::mutation::Mutation;
use crate::reached::{Event, reach};
use crate::real::{self, Turn};
use crate::scopes::Provider;
use crate::values::{Entry, Mark, Reply, Write};
use crate::world::{Answer, Call, Hold, Note, Phase, Why, World};

impl Checker {
    /// The handler comes to its next step.
    pub fn step(&self, world: &mut World, w: usize) {
        let Some(mut hold) = world.workers[w].hold else {
            return;
        };
        if self.scope.workers[w].skew >= hold.until {
            return Self::release(world, w, &hold, Answer::Failed);
        }
        let index = usize::from(hold.step);
        let policy = match (self.scope.provider, self.mutation) {
            (Provider::NoKeysInterrupt, Mutation::PendingFiresAnyway) => OnCrash::RunAgain,
            (Provider::NoKeysInterrupt, _) => OnCrash::Interrupt,
            _ => OnCrash::RunAgain,
        };
        let known = hold.journal[index];
        match real::turn(known, policy) {
            Turn::Skip(result) => {
                reach(Event::StepSkipped);
                let key = &world.keys[self.scope.workers[w].key];
                let confirmed = key.effects[index].confirmed;
                if confirmed != Some(result) && !hold.outdated {
                    world.note("13: a step that is skipped gives the result that was confirmed");
                }
                hold.step += 1;
                world.workers[w].hold = Some(hold);
            }
            Turn::Interrupted => {
                reach(Event::StepInterrupted);
                Self::release(world, w, &hold, Answer::Interrupted);
            }
            Turn::Fire => Self::send_note(world, w, hold, real::begun(known), Note::Begin),
        }
    }

    /// The effect is asked for, and happens.
    pub fn fire(&self, world: &mut World, w: usize, unsure: bool) {
        let Some(hold) = world.workers[w].hold else {
            return;
        };
        reach(Event::StepFired);
        let (index, key) = (usize::from(hold.step), self.scope.workers[w].key);
        let holds = world.keys[key].rec;
        let holds = holds.is_some_and(|rec| !rec.done && rec.owner == hold.owner);
        let mut result = hold.owner;
        // Of a key that was fresh again since, this is no effect.
        if !hold.outdated {
            let effect = &mut world.keys[key].effects[index];
            let again = effect.confirmed.is_some() && holds;
            let (fired, first) = (effect.fired, *effect.first.get_or_insert(hold.owner));
            match self.scope.provider {
                // It knows the key, which is the same in every attempt, and answers as it did.
                Provider::HonoursKeys => result = first,
                Provider::NoKeys | Provider::NoKeysInterrupt => {
                    effect.fired = 2.min(fired + 1);
                }
            }
            if again {
                world.note("13: a confirmed step is never fired again");
            }
            if fired > 0 && self.scope.provider == Provider::NoKeysInterrupt {
                world.note("13: a step that waits for an operator has at most one effect");
            }
        }
        let (mark, note) = if unsure {
            (Mark::Pending, Note::Fail)
        } else {
            (Mark::Confirmed(result), Note::Confirm)
        };
        let entry = real::ended(hold.journal[index], mark);
        Self::send_note(world, w, hold, entry, note);
    }

    /// The effect is asked for, and an error says that it did not happen.
    pub fn misfire(world: &mut World, w: usize) {
        if let Some(hold) = world.workers[w].hold {
            let entry = real::ended(hold.journal[usize::from(hold.step)], Mark::Failed);
            Self::send_note(world, w, hold, entry, Note::Fail);
        }
    }

    fn send_note(world: &mut World, w: usize, mut hold: Hold, entry: Entry, note: Note) {
        hold.journal[usize::from(hold.step)] = entry;
        hold.firing = false;
        let write = Write::Amend {
            owner: hold.owner,
            step: hold.step,
            entry,
        };
        world.workers[w].hold = Some(hold);
        world.workers[w].phase = Phase::Calling(Call {
            write,
            why: Why::Note(note),
            silent: false,
        });
    }

    /// A note is answered.
    pub fn noted(&self, world: &mut World, w: usize, note: Note, sent: Call, reply: Reply) {
        let Write::Amend { owner, step, entry } = sent.write else {
            return;
        };
        // An earlier send of the same note may have applied.
        let earlier = reply
            .rec
            .is_some_and(|rec| rec.owner == owner && rec.journal[usize::from(step)] == entry);
        if !reply.applied && !earlier {
            reach(Event::NoteRefused);
            return answer(world, w, Answer::LeaseLost);
        }
        let Some(mut hold) = world.workers[w].hold else {
            return;
        };
        match note {
            Note::Begin if self.scope.workers[w].skew >= hold.until => {
                Self::take_back(world, w, hold, entry);
            }
            Note::Begin => {
                hold.firing = true;
                world.workers[w].hold = Some(hold);
                world.workers[w].phase = Phase::Running;
            }
            Note::Confirm => Self::go_on(world, w, hold),
            Note::Fail | Note::TakeBack => Self::release(world, w, &hold, Answer::Failed),
        }
    }

    /// A note gets no answer.
    pub fn note_unanswered(world: &mut World, w: usize, note: Note, sent: Call) {
        let (Some(hold), Write::Amend { entry, .. }) = (world.workers[w].hold, sent.write) else {
            return;
        };
        match note {
            // It may have applied, and the effect will not fire.
            Note::Begin => Self::take_back(world, w, hold, entry),
            // The handler gets its result, though a successor may not.
            Note::Confirm => Self::go_on(world, w, hold),
            Note::Fail | Note::TakeBack => Self::release(world, w, &hold, Answer::Failed),
        }
    }

    fn take_back(world: &mut World, w: usize, hold: Hold, begun: Entry) {
        reach(Event::StepTakenBack);
        let entry = real::ended(begun, Mark::Failed);
        Self::send_note(world, w, hold, entry, Note::TakeBack);
    }

    fn go_on(world: &mut World, w: usize, mut hold: Hold) {
        hold.step += 1;
        world.workers[w].hold = Some(hold);
        world.workers[w].phase = Phase::Running;
    }
}
