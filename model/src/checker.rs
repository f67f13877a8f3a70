//! Every interleaving of what workers, the network, the clock and TTL may do.

use std::fmt;

use lambda_idempotency::record::Owner;
use lambda_idempotency::record::{Status, StoredOutcome};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, Key};
use stateright::{Model, Property};

use crate::mutation::Mutation;
use crate::worker::Protocol;
use crate::world::{Budget, Final, Phase, Worker, World, Write};

/// What is checked.
#[derive(Clone, Debug)]
pub struct Scope {
    pub name: &'static str,
    pub keys: usize,
    /// Of each worker: its key, its clock, its payload, its deliveries.
    pub workers: Vec<(usize, i64, u8, u8)>,
    pub budget: Budget,
    /// The last tick.
    pub end: i64,
    pub transactional: bool,
    /// Whether handlers may fail.
    pub failures: bool,
}

/// The model of a scope.
#[derive(Clone, Debug)]
pub struct Checker {
    pub scope: Scope,
    pub protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Tick,
    /// A delivery arrives.
    Deliver(usize),
    /// A write arrives, and its answer comes back.
    Exchange(usize),
    /// A write arrives, its answer is lost, and it is sent again.
    LoseReply(usize),
    /// The same, and its sender gives up.
    LoseReplyAndGiveUp(usize),
    /// A write is lost, and its sender gives up. (Sent again, it would be as if nothing had happened.)
    LoseRequestAndGiveUp(usize),
    /// The network keeps a copy of a write.
    Duplicate(usize),
    /// A kept copy arrives.
    Late(usize),
    Succeed(usize),
    Fail(usize),
    Crash(usize),
    /// TTL deletes a key that has expired.
    Sweep(usize),
    /// A library without a fence completes the record.
    Stranger(usize),
}

impl Checker {
    pub fn new(scope: Scope, mutation: Mutation) -> Self {
        let once = Idempotency::builder(MemoryStore::new())
            .namespace("model")
            .build();
        let once = once.expect("a namespace");
        let ids = (0..scope.keys).map(|key| {
            once.record_id(&Key::new("run", format!("k{key}")))
                .expect("a key")
        });
        let skews = scope.workers.iter().map(|worker| worker.1);
        let spread = skews.clone().max().unwrap_or(0) - skews.min().unwrap_or(0);
        Self {
            protocol: Protocol {
                ids: ids.collect(),
                mutation,
                transactional: scope.transactional,
                clocks_agree: spread <= 1,
            },
            scope,
        }
    }
}

impl Model for Checker {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let workers = self
            .scope
            .workers
            .iter()
            .map(|&(key, skew, payload, deliveries)| Worker {
                key,
                skew,
                payload,
                deliveries,
                owners: 0,
                phase: Phase::Idle,
            });
        vec![World {
            time: 10,
            table: vec![None; self.scope.keys],
            booked: vec![Vec::new(); self.scope.keys],
            attempts: vec![0; self.scope.keys],
            workers: workers.collect(),
            late: Vec::new(),
            budget: self.scope.budget,
            outcome: vec![None; self.scope.keys],
            broken: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        let budget = world.budget;
        let mut waits = !world.late.is_empty();
        for (w, worker) in world.workers.iter().enumerate() {
            match &worker.phase {
                Phase::Idle | Phase::Answered(_) if worker.deliveries > 0 => {
                    actions.push(Action::Deliver(w));
                    waits = true;
                    continue;
                }
                Phase::Idle | Phase::Answered(_) => continue,
                Phase::Sent { .. } => {
                    actions.push(Action::Exchange(w));
                    if budget.replies_lost > 0 {
                        actions.extend([Action::LoseReply(w), Action::LoseReplyAndGiveUp(w)]);
                    }
                    if budget.requests_lost > 0 {
                        actions.push(Action::LoseRequestAndGiveUp(w));
                    }
                    if budget.duplicates > 0 {
                        actions.push(Action::Duplicate(w));
                    }
                }
                Phase::Running { .. } => {
                    actions.push(Action::Succeed(w));
                    if self.scope.failures {
                        actions.push(Action::Fail(w));
                    }
                }
            }
            waits = true;
            if budget.crashes > 0 {
                actions.push(Action::Crash(w));
            }
        }
        actions.extend((0..world.late.len()).map(Action::Late));
        for (key, record) in world.table.iter().enumerate() {
            let Some(record) = record else { continue };
            if budget.sweeps > 0 && world.time > record.expiration.0 {
                actions.push(Action::Sweep(key));
            }
            if budget.strangers > 0 {
                actions.push(Action::Stranger(key));
            }
        }
        // When nobody waits for anything, time changes nothing.
        if waits && world.time < 10 + self.scope.end {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let protocol = &self.protocol;
        let write = |w: usize| match &last.workers[w].phase {
            Phase::Sent { write, .. } => Some((last.workers[w].key, Write::clone(write))),
            _ => None,
        };
        match action {
            Action::Tick => world.time += 1,
            Action::Deliver(w) => protocol.start(&mut world, w),
            Action::Exchange(w) => {
                let (key, write) = write(w)?;
                let reply = world.apply(key, &write, protocol.mutation);
                protocol.receive(&mut world, w, reply);
            }
            Action::LoseReply(w) | Action::LoseReplyAndGiveUp(w) => {
                let (key, write) = write(w)?;
                world.budget.replies_lost -= 1;
                let _ = world.apply(key, &write, protocol.mutation);
                if action == Action::LoseReplyAndGiveUp(w) {
                    protocol.give_up(&mut world, w);
                }
            }
            Action::LoseRequestAndGiveUp(w) => {
                world.budget.requests_lost -= 1;
                protocol.give_up(&mut world, w);
            }
            Action::Duplicate(w) => {
                let copy = write(w)?;
                world.budget.duplicates -= 1;
                world.late.push(copy);
            }
            Action::Late(index) => {
                let (key, write) = world.late.remove(index);
                let _ = world.apply(key, &write, protocol.mutation);
            }
            Action::Succeed(w) => protocol.end(&mut world, w, true),
            Action::Fail(w) => protocol.end(&mut world, w, false),
            Action::Crash(w) => {
                world.budget.crashes -= 1;
                world.workers[w].phase = Phase::Idle;
            }
            Action::Sweep(key) => {
                world.budget.sweeps -= 1;
                world.table[key] = None;
                world.count(key, 0);
                world.forget(key);
            }
            Action::Stranger(key) => {
                world.budget.strangers -= 1;
                let record = world.table[key].as_mut()?;
                record.status = Status::Completed;
                record.outcome = Some(StoredOutcome::Inline("another's".to_owned()));
                record.lease = None;
                let (expiration, outcome) = (record.expiration, record.outcome.clone());
                world.outcome[key] = Some(Final {
                    owner: Owner::from_stored("a stranger"),
                    outcome,
                    expiration,
                });
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("safe", |_: &Self, world: &World| world.broken.is_none()),
            Property::always("live", |checker: &Self, world: &World| {
                world.broken.is_some() || checker.protocol.recovers(world)
            }),
            Property::sometimes("somebody executes", |_, world| {
                answered(world, &crate::world::Answer::Executed)
            }),
            Property::sometimes("somebody replays", |_, world| {
                answered(world, &crate::world::Answer::Replayed)
            }),
            Property::sometimes("somebody loses its lease", |_, world| {
                answered(world, &crate::world::Answer::LeaseLost)
            }),
        ]
    }
}

fn answered(world: &World, answer: &crate::world::Answer) -> bool {
    world
        .workers
        .iter()
        .any(|worker| worker.phase == Phase::Answered(answer.clone()))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => f.write_str("time passes"),
            Self::Deliver(w) => write!(f, "worker {w}: a delivery arrives, and the claim is sent"),
            Self::Exchange(w) => write!(f, "worker {w}: its write arrives, and is answered"),
            Self::LoseReply(w) => write!(
                f,
                "worker {w}: its write arrives, the answer is lost, it is sent again"
            ),
            Self::LoseReplyAndGiveUp(w) => write!(
                f,
                "worker {w}: its write arrives, the answer is lost, it gives up"
            ),
            Self::LoseRequestAndGiveUp(w) => {
                write!(f, "worker {w}: its write is lost, it gives up")
            }
            Self::Duplicate(w) => write!(f, "worker {w}: the network keeps a copy of its write"),
            Self::Late(_) => f.write_str("a kept copy arrives"),
            Self::Succeed(w) => write!(f, "worker {w}: the handler succeeds"),
            Self::Fail(w) => write!(f, "worker {w}: the handler fails"),
            Self::Crash(w) => write!(f, "worker {w}: the process dies"),
            Self::Sweep(key) => write!(f, "TTL deletes key {key}"),
            Self::Stranger(key) => write!(f, "a library without a fence completes key {key}"),
        }
    }
}
