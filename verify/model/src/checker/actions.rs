//! The actions that are possible in a state.

use super::Checker;
use crate::real;
use crate::scopes::Provider;
use crate::values::{Act, Write};
use crate::world::{Hold, Phase, Worker, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    /// A delivery arrives; in a group, one for each key.
    Deliver(usize),
    /// A write arrives, and its answer comes back.
    Exchange(usize),
    /// A transaction arrives, and a business condition fails.
    Refuse(usize),
    /// A write arrives; its answer comes later.
    Hold(usize),
    /// That answer comes.
    Receive(usize),
    /// A write arrives, its answer is lost, and it is sent again.
    LoseReply(usize),
    /// The same, and its sender gives up.
    LoseReplyAndGiveUp(usize),
    /// The answer to all statements of a group is lost; they are sent again, or given up.
    LoseGroup(usize, bool),
    /// A write is lost, and its sender gives up. (Sent again, it would be as if nothing had happened.)
    LoseRequest(usize),
    /// A transaction is too old to be accepted, and its sender gives up.
    Overdue(usize),
    /// The network keeps a copy of a write.
    Duplicate(usize),
    /// A kept copy arrives.
    Late(usize),
    Succeed(usize),
    Fail(usize),
    /// The deadline of the invocation comes, or the lease ends unrenewed, and the handler is ended wherever it is.
    TimeOut(usize),
    /// The handler comes to its next step.
    Step(usize),
    /// A step's effect happens.
    Fire(usize),
    /// A step's effect happens, and the handler is told of a timeout.
    FireUnsure(usize),
    /// A step's effect fails, and doesn't happen.
    Misfire(usize),
    /// A renewal is sent, beside the handler.
    Renew(usize),
    RenewalArrives(usize),
    RenewalReplyLost(usize),
    RenewalLost(usize),
    RenewalDuplicate(usize),
    Crash(usize),
    /// TTL deletes a key that has expired.
    Sweep(usize),
    /// A library without a fence completes the record.
    Stranger(usize),
    /// An operator looks at a record, and sends a write that arrives at any time; twice, where it gets no answer.
    Intervene(usize, Act, bool),
}

impl Checker {
    /// All that may happen in a state.
    pub fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        for (w, worker) in world.workers.iter().enumerate() {
            if w < self.scope.workers.len() {
                self.of_worker(world, w, worker, actions);
            }
        }
        let copies = world.late.iter().enumerate();
        let accepted = copies.filter(|(_, (_, write))| !self.is_overdue(write));
        actions.extend(accepted.map(|(index, _)| Action::Late(index)));
        // When nobody waits for anything, time changes nothing, and neither do others.
        if actions.is_empty() {
            return;
        }
        for (number, key) in world.keys.iter().enumerate() {
            let Some(rec) = key.rec else { continue };
            // By the true time.
            if world.budget.sweeps > 0 && rec.expiration < 0 {
                actions.push(Action::Sweep(number));
            }
            if world.budget.strangers > 0 {
                actions.push(Action::Stranger(number));
            }
            if world.budget.interventions > 0 {
                self.of_operator(world, number, &rec, actions);
            }
        }
        if world.budget.ticks != Some(0) {
            actions.push(Action::Tick);
        }
    }

    fn of_worker(&self, world: &World, w: usize, worker: &Worker, actions: &mut Vec<Action>) {
        let budget = world.budget;
        match &worker.phase {
            Phase::Idle => {
                let first = self.lanes(w).next() == Some(w);
                let idle = self
                    .lanes(w)
                    .all(|lane| world.workers[lane].phase == Phase::Idle);
                if worker.deliveries > 0 && first && idle {
                    actions.push(Action::Deliver(w));
                }
                return;
            }
            Phase::Calling(call) if self.is_overdue(&call.write) => {
                actions.push(Action::Overdue(w));
            }
            Phase::Calling(call) => {
                if self.scope.grouped {
                    actions.push(Action::Hold(w));
                } else {
                    actions.push(Action::Exchange(w));
                    // An answer that only ends a delivery may as well have come at once: the next delivery may be late instead.
                    let ends = self.reduction.prunes && call.is_last();
                    if budget.replies_late > 0 && !ends {
                        actions.push(Action::Hold(w));
                    }
                    if budget.refusals > 0 && self.may_be_refused(world, w, &call.write) {
                        actions.push(Action::Refuse(w));
                    }
                    if budget.replies_lost > 0 {
                        actions.push(Action::LoseReply(w));
                    }
                    if budget.replies_lost > 0 && (!ends || call.is_doubted()) {
                        actions.push(Action::LoseReplyAndGiveUp(w));
                    }
                }
                if budget.requests_lost > 0 {
                    actions.push(Action::LoseRequest(w));
                }
                if budget.copies > 0 && !matches!(call.write, Write::Read(_)) {
                    actions.push(Action::Duplicate(w));
                }
            }
            Phase::Answered(..) => {
                actions.push(Action::Receive(w));
                if self.scope.grouped && budget.replies_lost > 0 && self.group(world, w)[0] == w {
                    actions.extend([Action::LoseGroup(w, true), Action::LoseGroup(w, false)]);
                }
            }
            Phase::Running => {
                if let Some(hold) = worker.hold {
                    self.of_handler(world, w, &hold, actions);
                }
            }
        }
        if budget.crashes > 0 {
            actions.push(Action::Crash(w));
        }
    }

    /// The record's own condition comes first.
    fn may_be_refused(&self, world: &World, w: usize, write: &Write) -> bool {
        let met = world.keys[self.scope.workers[w].key].rec;
        let (Write::Commit { applied, .. } | Write::Apply { applied, .. }) = *write else {
            return false;
        };
        !applied && real::apply(met, write, self.mutation).is_some()
    }

    fn of_handler(&self, world: &World, w: usize, hold: &Hold, actions: &mut Vec<Action>) {
        let budget = world.budget;
        if hold.firing {
            actions.extend([Action::Fire(w), Action::Misfire(w)]);
            if self.scope.provider == Provider::NoKeysInterrupt {
                actions.push(Action::FireUnsure(w));
            }
            return;
        }
        let is_suspended = self.is_suspended(w, hold);
        if !is_suspended {
            if hold.step < self.scope.steps {
                actions.push(Action::Step(w));
            } else {
                actions.push(Action::Succeed(w));
            }
            if self.scope.failures {
                actions.push(Action::Fail(w));
            }
        }
        if self.scope.ends || is_suspended {
            actions.push(Action::TimeOut(w));
        }
        if budget.renewals > 0 && self.may_renew(w, hold) {
            actions.push(Action::Renew(w));
        }
        if hold.renewal.is_some() {
            actions.push(Action::RenewalArrives(w));
            if budget.replies_lost > 0 {
                actions.push(Action::RenewalReplyLost(w));
            }
            if budget.requests_lost > 0 {
                actions.push(Action::RenewalLost(w));
            }
            if budget.copies > 0 {
                actions.push(Action::RenewalDuplicate(w));
            }
        }
    }
}
