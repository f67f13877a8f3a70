//! Time, clocks that differ, and the handlers' executions.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::{Clock, EpochMillis};
use tokio::time::Instant;

/// The time at which a night begins.
pub const BASE: EpochMillis = EpochMillis(1_800_000_000_000);

/// The true time, which no process knows.
#[derive(Clone, Copy, Debug)]
pub struct World {
    start: Instant,
}

impl World {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Milliseconds since the night began.
    pub fn elapsed(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).expect("one night")
    }

    pub fn now(&self) -> i64 {
        BASE.0 + self.elapsed()
    }
}

/// A machine's clock: the true time, and so many milliseconds beside it.
#[derive(Clone, Copy, Debug)]
pub struct SkewedClock {
    pub world: World,
    pub skew: i64,
    /// It jumps from one multiple of so many milliseconds to the next, which is a defect where it is more than 1.
    pub jumps: i64,
}

impl Clock for SkewedClock {
    fn now(&self) -> EpochMillis {
        let elapsed = self.world.elapsed();
        EpochMillis(BASE.0 + elapsed - elapsed % self.jumps + self.skew)
    }
}

/// A handler that ran.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Its value, if it succeeds: unlike any other's.
    pub value: usize,
    pub delivery: usize,
    pub key: usize,
    pub attempt: u32,
    pub began: i64,
    /// Whether it holds no claim, so that others may run beside it.
    pub claimless: bool,
    /// The end of the time that its claim lets it run, in true time, as long as no renewal has moved it.
    pub may_run_until: i64,
    /// The same by the clock of its machine, as its claim has it.
    pub claimed_until: i64,
    /// The results of its steps: the numbers of their effects.
    pub steps: Vec<usize>,
    /// Its end, and the time of it; `None` where its process died.
    pub ended: Option<(i64, End)>,
    /// Whether its claim was not over then, as the claim told it.
    pub ended_in_time: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Succeeded,
    Failed,
    Panicked,
}

/// A step's effect, as its provider saw it.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Of the execution that let it fire.
    pub value: usize,
    pub key: usize,
    pub step: usize,
    pub at: i64,
    /// The key that it was given.
    pub derived: String,
}

/// The executions of handlers, and their effects. Handlers of the layers must be `Send`, so they are shared by locks.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    executions: Arc<Mutex<Vec<Execution>>>,
    effects: Arc<Mutex<Vec<Effect>>>,
}

impl Ledger {
    pub fn begin(&self, execution: impl FnOnce(usize) -> Execution) -> usize {
        let mut all = self.executions.lock().expect("not poisoned");
        let value = all.len();
        all.push(execution(value));
        value
    }

    pub fn end(&self, value: usize, at: i64, end: End, is_over: bool) {
        let execution = &mut self.executions.lock().expect("not poisoned")[value];
        execution.ended = Some((at, end));
        execution.ended_in_time = !is_over;
    }

    /// Notes the effect that the execution's next step gave.
    pub fn step(&self, value: usize, effect: usize) {
        self.executions.lock().expect("not poisoned")[value]
            .steps
            .push(effect);
    }

    /// Fires the effect, and returns its number, which is its result.
    pub fn fire(&self, effect: Effect) -> usize {
        let mut all = self.effects.lock().expect("not poisoned");
        all.push(effect);
        all.len() - 1
    }

    /// Takes everything that it holds.
    pub fn take(&self) -> (Vec<Execution>, Vec<Effect>) {
        let executions = std::mem::take(&mut *self.executions.lock().expect("not poisoned"));
        let effects = std::mem::take(&mut *self.effects.lock().expect("not poisoned"));
        (executions, effects)
    }
}

/// The result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Executed(usize),
    Replayed(usize),
    Unrecorded(usize),
    /// By the engine's word for it.
    Refused(&'static str),
    /// Its process died.
    Crashed,
    /// Its caller hung up.
    HungUp,
    Panicked,
    /// A message that its queue may delete.
    Acknowledged,
    /// A message that its queue delivers again.
    Reported,
}

impl What {
    /// Returns the result of a delivery whose future is dropped.
    pub fn cut_off(dies: bool) -> Self {
        if dies { Self::Crashed } else { Self::HungUp }
    }
}

#[derive(Clone, Debug)]
pub struct Result {
    pub delivery: usize,
    pub at: i64,
    pub what: What,
}

/// The results that are seen from outside, in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub struct Results(Rc<RefCell<Vec<Result>>>);

impl Results {
    pub fn note(&self, world: World, delivery: usize, what: What) {
        let at = world.now();
        self.0.borrow_mut().push(Result { delivery, at, what });
    }

    /// All of them, once.
    pub fn take(&self) -> Vec<Result> {
        self.0.take()
    }
}

pub fn millis(count: i64) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(0))
}
