//! A path through the states, in words.

use std::fmt::Write as _;

use stateright::Path;

use crate::checker::Action;
use crate::values::Write;
use crate::world::World;

/// A way to what should not have happened.
pub fn tell(path: Path<World, Action>) -> String {
    let states = path.clone().into_states();
    let mut told = String::new();
    for (number, (world, action)) in states.iter().zip(path.into_actions()).enumerate() {
        let what = world.tell(action);
        let _ = writeln!(told, "  {:>2}. {what}", number + 1);
    }
    let broken = states.last().and_then(|world| world.broken);
    told + "  => " + broken.unwrap_or("a key never comes to its end")
}

impl World {
    /// Describes an action in this state.
    pub fn tell(&self, action: Action) -> String {
        let who = |w: usize| format!("worker {}", self.labels.worker(w));
        let what = |write: &Write| {
            let owner = self.labels.owner(write.owner());
            format!("{} by {owner}", write.word())
        };
        let its = |w: usize| match self.workers[w].phase.call() {
            Some(call) => format!("{}: its write ({})", who(w), what(&call.write)),
            None => who(w),
        };
        match action {
            Action::Tick => "time passes".to_owned(),
            Action::Deliver(w) => format!("{}: a delivery arrives", who(w)),
            Action::Exchange(w) => format!("{} arrives, and is answered", its(w)),
            Action::Refuse(w) => format!("{} arrives, and a business condition fails", its(w)),
            Action::Hold(w) => format!("{} arrives, the answer is on its way", its(w)),
            Action::Receive(w) => format!("{} is answered", its(w)),
            Action::LoseReply(w) => {
                format!("{} arrives, the answer is lost, it is sent again", its(w))
            }
            Action::LoseReplyAndGiveUp(w) => {
                format!("{} arrives, the answer is lost, it gives up", its(w))
            }
            Action::LoseGroup(w, again) => {
                let then = if again {
                    "is sent again"
                } else {
                    "is given up"
                };
                format!("{}: the answer to its group is lost, which {then}", its(w))
            }
            Action::LoseRequest(w) => format!("{} is lost, it gives up", its(w)),
            Action::Overdue(w) => format!("{} is too old, it gives up", its(w)),
            Action::Duplicate(w) => format!("{}: the network keeps a copy", its(w)),
            Action::Late(index) => {
                let (_, write) = &self.late[index];
                format!("a kept copy arrives ({})", what(write))
            }
            Action::Succeed(w) => format!("{}: the handler succeeds", who(w)),
            Action::Fail(w) => format!("{}: the handler fails", who(w)),
            Action::TimeOut(w) => format!("{}: the handler is ended at its deadline", who(w)),
            Action::Step(w) => format!("{}: the handler comes to its next step", who(w)),
            Action::Fire(w) => format!("{}: the step's effect happens", who(w)),
            Action::FireUnsure(w) => {
                format!(
                    "{}: the step's effect happens, but looks like a timeout",
                    who(w)
                )
            }
            Action::Misfire(w) => format!("{}: the step's effect fails", who(w)),
            Action::Renew(w) => format!("{}: sends a renewal", who(w)),
            Action::RenewalArrives(w) => {
                format!("{}: its renewal arrives, and is answered", who(w))
            }
            Action::RenewalReplyLost(w) => {
                format!("{}: its renewal arrives, the answer is lost", who(w))
            }
            Action::RenewalLost(w) => format!("{}: its renewal is lost", who(w)),
            Action::RenewalDuplicate(w) => {
                format!("{}: the network keeps a copy of its renewal", who(w))
            }
            Action::Crash(w) => format!("{}: the process dies", who(w)),
            Action::Sweep(key) => format!("TTL deletes key {key}"),
            Action::Intervene(key, act, again) => {
                let sent = if again { ", and sends it twice" } else { "" };
                format!("an operator looks at key {key}, and decides on a write ({act:?}){sent}")
            }
            Action::Stranger(key) => format!("a library without a fence completes key {key}"),
        }
    }
}
