//! The actions that are possible in a state, and the state after each.

use stateright::{Model, Property};

use crate::canonical::orders::{Order, orders};
use crate::mutation::Mutation;
use crate::reached::{Event, reach};
use crate::reduction::Reduction;
use crate::scopes::Scope;
use crate::values::{Lease, STRANGER, Tick, Write};
use crate::world::{Phase, Worker, World};

pub use actions::Action;

mod actions;

/// The model of a scope.
#[derive(Clone, Debug)]
pub struct Checker {
    pub scope: Scope,
    pub mutation: Mutation,
    pub reduction: Reduction,
    /// The clock that is furthest behind, and the one that is furthest ahead, of the workers' and the true one.
    pub slowest: Tick,
    pub fastest: Tick,
    /// Whether no two clocks differ by more than the margin.
    pub clocks_agree: bool,
    pub orders: Vec<Order>,
}

impl Checker {
    pub fn new(scope: Scope, mutation: Mutation, reduction: Reduction) -> Self {
        let skews = || scope.workers.iter().map(|spec| spec.skew);
        let fastest = skews().max().unwrap_or(0).max(0);
        let slowest = skews().min().unwrap_or(0).min(0);
        Self {
            mutation,
            reduction,
            slowest,
            fastest,
            clocks_agree: fastest - slowest <= crate::values::MARGIN,
            orders: orders(&scope),
            scope,
        }
    }

    /// The workers that live and die together.
    fn lanes(&self, w: usize) -> impl Iterator<Item = usize> {
        let process = self.scope.workers[w].process;
        let all = self.scope.workers.iter().enumerate();
        all.filter(move |(_, spec)| spec.process == process)
            .map(|(lane, _)| lane)
    }

    /// The statements that left with this one.
    fn group(&self, world: &World, w: usize) -> Vec<usize> {
        let word_of = |w: usize| match world.workers[w].phase {
            Phase::Calling(call) => Some((false, call.write.word())),
            Phase::Answered(call, _) => Some((true, call.write.word())),
            _ => None,
        };
        let mine = word_of(w);
        self.lanes(w)
            .filter(|lane| word_of(*lane) == mine)
            .collect()
    }

    fn key(&self, w: usize) -> (usize, u8) {
        let key = self.scope.workers[w].key;
        (key, u8::try_from(key).expect("few keys"))
    }

    fn on_the_wire(&self, world: &mut World, w: usize, action: Action) -> Option<()> {
        let (key, number) = self.key(w);
        let call = world.workers[w].phase.call()?;
        match action {
            Action::Exchange(_) => {
                let reply = self.apply(world, key, &call.write);
                self.receive(world, w, call, reply);
            }
            Action::Refuse(_) => {
                reach(Event::Refused);
                world.budget.refusals -= 1;
                self.refused(world, w, call);
            }
            Action::Hold(_) => {
                if !self.scope.grouped {
                    reach(Event::ReplyLate);
                    world.budget.replies_late -= 1;
                }
                let reply = self.apply(world, key, &call.write);
                world.workers[w].phase = Phase::Answered(call, reply);
            }
            Action::Receive(_) => {
                let Phase::Answered(call, reply) = world.workers[w].phase else {
                    return None;
                };
                world.workers[w].phase = Phase::Running;
                self.receive(world, w, call, reply);
            }
            Action::LoseReply(_) | Action::LoseReplyAndGiveUp(_) => {
                reach(Event::ReplyLost);
                world.budget.replies_lost -= 1;
                let _ = self.apply(world, key, &call.write);
                if action == Action::LoseReplyAndGiveUp(w) {
                    self.give_up(world, w, call);
                } else {
                    self.silence(world, w);
                }
            }
            Action::LoseGroup(_, again) => {
                reach(Event::GroupReplyLost);
                world.budget.replies_lost -= 1;
                for lane in self.group(world, w) {
                    if let Phase::Answered(call, _) = world.workers[lane].phase {
                        world.workers[lane].phase = Phase::Calling(call);
                        if !again {
                            self.give_up(world, lane, call);
                        }
                    }
                }
            }
            Action::LoseRequest(_) => {
                reach(Event::RequestLost);
                world.budget.requests_lost -= 1;
                for lane in self.group(world, w) {
                    if let Phase::Calling(call) = world.workers[lane].phase {
                        self.give_up(world, lane, call);
                    }
                }
            }
            Action::Overdue(_) => self.give_up(world, w, call),
            Action::Duplicate(_) => {
                reach(Event::LateCopy);
                world.budget.copies -= 1;
                world.late.push((number, call.write));
                self.silence(world, w);
            }
            _ => return None,
        }
        Some(())
    }

    /// A send got no answer. It matters where a later one may be refused.
    fn silence(&self, world: &mut World, w: usize) {
        if let Phase::Calling(call) = &mut world.workers[w].phase
            && call.write.books()
        {
            call.silent = self.scope.budget.refusals > 0;
        }
    }

    fn in_the_handler(&self, world: &mut World, w: usize, action: Action) -> Option<()> {
        let (key, number) = self.key(w);
        match action {
            Action::Succeed(_) => self.end(world, w, true),
            Action::Fail(_) => self.end(world, w, false),
            Action::TimeOut(_) => {
                reach(Event::TimedOut);
                // It is not known what the handler did.
                world.workers[w].hold.as_mut()?.keeps = true;
                self.end(world, w, false);
            }
            Action::Step(_) => self.step(world, w),
            Action::Fire(_) => self.fire(world, w, false),
            Action::FireUnsure(_) => self.fire(world, w, true),
            Action::Misfire(_) => Self::misfire(world, w),
            Action::Renew(_) => {
                world.budget.renewals -= 1;
                self.renew(world, w);
            }
            _ => {
                let renewal = Write::Renew(world.workers[w].hold?.renewal?);
                match action {
                    Action::RenewalArrives(_) => {
                        let reply = self.apply(world, key, &renewal);
                        reach(if reply.applied {
                            Event::Renewed
                        } else {
                            Event::RenewalRefused
                        });
                        self.renewed(world, w, reply);
                    }
                    Action::RenewalReplyLost(_) => {
                        reach(Event::ReplyLost);
                        world.budget.replies_lost -= 1;
                        let _ = self.apply(world, key, &renewal);
                    }
                    Action::RenewalLost(_) => {
                        reach(Event::RequestLost);
                        world.budget.requests_lost -= 1;
                        world.workers[w].hold.as_mut()?.renewal = None;
                    }
                    Action::RenewalDuplicate(_) => {
                        reach(Event::LateCopy);
                        world.budget.copies -= 1;
                        world.late.push((number, renewal));
                    }
                    _ => return None,
                }
            }
        }
        Some(())
    }

    fn crash(&self, world: &mut World, w: usize) {
        reach(Event::Crash);
        world.budget.crashes -= 1;
        for lane in self.lanes(w) {
            let worker = world.workers[lane];
            if let Some(renewal) = worker.hold.and_then(|hold| hold.renewal) {
                // It has left already.
                world.late.push((self.key(lane).1, Write::Renew(renewal)));
            }
            world.workers[lane] = Worker {
                phase: Phase::Idle,
                hold: None,
                ..worker
            };
        }
    }

    fn meddle(world: &mut World, key: usize) -> Option<()> {
        reach(Event::Stranger);
        world.budget.strangers -= 1;
        let rec = world.keys[key].rec.as_mut()?;
        (rec.done, rec.outcome, rec.lease) = (true, Some(STRANGER), Lease::None);
        world.keys[key].outcome = Some((STRANGER, rec.expiration));
        Some(())
    }
}

impl Model for Checker {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.canonical(World::new(&self.scope))]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_none() {
            self.possible(world, actions);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => {
                world.budget.ticks = world.budget.ticks.map(|left| left - 1);
                Self::pass(&mut world);
            }
            Action::Deliver(w) => {
                for lane in self.lanes(w) {
                    self.start(&mut world, lane);
                }
            }
            Action::Crash(w) => self.crash(&mut world, w),
            Action::Late(index) => {
                let (key, write) = world.late.remove(index);
                let reply = self.apply(&mut world, usize::from(key), &write);
                if reply.applied {
                    reach(Event::LateCopyApplied);
                }
            }
            Action::Sweep(key) => {
                reach(Event::Sweep);
                world.budget.sweeps -= 1;
                world.keys[key].rec = None;
                world.keys[key].attempt = 0;
                world.forget(self, key);
                world.pardon(key);
            }
            Action::Stranger(key) => Self::meddle(&mut world, key)?,
            Action::Intervene(key, act, again) => self.intervene(&mut world, key, act, again)?,
            Action::Exchange(w)
            | Action::Refuse(w)
            | Action::Hold(w)
            | Action::Receive(w)
            | Action::LoseReply(w)
            | Action::LoseReplyAndGiveUp(w)
            | Action::LoseGroup(w, _)
            | Action::LoseRequest(w)
            | Action::Overdue(w)
            | Action::Duplicate(w) => self.on_the_wire(&mut world, w, action)?,
            Action::Succeed(w)
            | Action::Fail(w)
            | Action::TimeOut(w)
            | Action::Step(w)
            | Action::Fire(w)
            | Action::FireUnsure(w)
            | Action::Misfire(w)
            | Action::Renew(w)
            | Action::RenewalArrives(w)
            | Action::RenewalReplyLost(w)
            | Action::RenewalLost(w)
            | Action::RenewalDuplicate(w) => self.in_the_handler(&mut world, w, action)?,
        }
        let next = self.canonical(world);
        // A fault that changed nothing is as good as one that is still to come.
        let wasted = self.reduction.prunes
            && next.budget != last.budget
            && next.workers == last.workers
            && next.keys == last.keys
            && next.late == last.late;
        (!wasted).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("safe", |_: &Self, world: &World| world.broken.is_none()),
            Property::always("live", |checker: &Self, world: &World| {
                world.broken.is_some() || checker.recovers(world)
            }),
        ]
    }
}
