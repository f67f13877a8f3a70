//! Execution environments in this process, which fail, crash and lose replies.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use lambda_idempotency::batch::BatchError;

use lambda_idempotency::Idempotency;
use lambda_idempotency::kinesis::{self, ItemFailures, KinesisEvent};
use lambda_idempotency::store::Store;
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tower::util::BoxService;
use tower::{Service, ServiceExt};

use super::judge::Ledger;
use crate::support::VirtualClock;
use crate::support::shards::{Invoked, Record, event};

/// The time limit of an invocation. The claim of an invocation that died lasts so long from its arrival on, and a second more.
const TIMEOUT: Duration = Duration::from_secs(8);
/// From then on a completion may be given up for the sake of the reply.
const LATE: Duration = Duration::from_secs(6);
/// Longer than anything that a batch waits for.
const REST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Never,
    /// When all handlers that began have returned and are completed. From the crash on, none takes effect.
    AtRest,
    /// While other handlers of the batch run, and their completions are under way.
    AtOnce,
}

/// The rate of each disturbance: one in so many.
#[derive(Clone, Copy)]
pub struct Plan {
    pub crash: Crash,
    /// Of handlers.
    pub crash_in: u32,
    /// Of handlers.
    pub fail_in: u32,
    /// Of invocations.
    pub lose_in: u32,
    /// Every so many movements is one whose handler always fails.
    pub poison_every: Option<usize>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            crash: Crash::AtOnce,
            crash_in: 40,
            fail_in: 30,
            lose_in: 5,
            poison_every: None,
        }
    }
}

#[derive(Deserialize)]
struct Movement {
    movement_id: String,
    sku: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the warehouse is closed")]
struct Closed;

type Worker = BoxService<LambdaEvent<KinesisEvent>, ItemFailures, BatchError>;

/// One execution environment, at work on one invocation at a time.
struct Environment {
    worker: Worker,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    invocation: AtomicU64,
    is_crashing: AtomicBool,
    crash: Notify,
}

/// All that a function has: environments that wait for an event, and the table behind them.
pub struct Environments {
    once: Idempotency,
    plan: Plan,
    dice: Arc<Mutex<Rng>>,
    ledger: Arc<Ledger>,
    waiting: Mutex<Vec<Environment>>,
    invocations: AtomicU64,
}

impl Environments {
    pub fn new(store: impl Store, plan: Plan, seed: u64) -> Self {
        let once = Idempotency::builder(store)
            .namespace("shards")
            .clock(VirtualClock);
        Self {
            once: once.build().expect("an engine"),
            plan,
            dice: Arc::new(Mutex::new(Rng::with_seed(seed))),
            ledger: Arc::default(),
            waiting: Mutex::default(),
            invocations: AtomicU64::new(0),
        }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Delivers a batch to an environment that waits, or to a new one.
    pub async fn invoke(&self, batch: &[Record]) -> Invoked {
        self.ledger.count("invocations");
        let invocation = self.invocations.fetch_add(1, Ordering::Relaxed);
        let waiting = self.waiting.lock().unwrap().pop();
        let mut environment = waiting.unwrap_or_else(|| self.start());
        let state = Arc::clone(&environment.state);
        state.invocation.store(invocation, Ordering::Relaxed);
        let arrival = Instant::now();
        let event = serde_json::from_value(event(batch)).expect("a Kinesis event");
        let mut call = environment.worker.call(LambdaEvent::new(event, context()));
        let crash = async {
            tokio::select! {
                () = state.crash.notified() => {}
                () = sleep(TIMEOUT) => state.is_crashing.store(true, Ordering::Relaxed),
            }
            if self.plan.crash == Crash::AtRest {
                sleep(REST).await;
            }
        };
        tokio::select! {
            reply = &mut call => {
                if arrival.elapsed() > LATE {
                    self.ledger.crashed(invocation);
                    self.ledger.count("invocations that ran out of time");
                }
                // A process that was about to die has answered before it did.
                if !state.is_crashing.load(Ordering::Relaxed) {
                    self.waiting.lock().unwrap().push(environment);
                }
                let reply = reply.ok().filter(|_| !self.happens(self.plan.lose_in, "replies that were lost"));
                let reply = reply.map(|reply| serde_json::to_value(reply).expect("JSON"));
                reply.map_or(Invoked::Failed, Invoked::Answered)
            }
            () = crash => {
                self.ledger.crashed(invocation);
                self.ledger.count("invocations that crashed");
                // A process that is killed runs no destructor; one that is frozen and thrown away may have run some.
                if self.dice.lock().unwrap().bool() {
                    std::mem::forget(call);
                }
                Invoked::Failed
            }
        }
    }

    fn happens(&self, once_in: u32, what: &'static str) -> bool {
        happens(&self.dice, &self.ledger, once_in, what)
    }

    fn start(&self) -> Environment {
        let state = Arc::new(State::default());
        let (plan, dice, ledger) = (self.plan, Arc::clone(&self.dice), Arc::clone(&self.ledger));
        let handler = {
            let state = Arc::clone(&state);
            move |message: kinesis::Message<Movement>| {
                let (state, dice, ledger) =
                    (Arc::clone(&state), Arc::clone(&dice), Arc::clone(&ledger));
                async move { handle(message.body, plan, &state, &dice, &ledger).await }
            }
        };
        let worker = kinesis::BatchLayer::new(self.once.clone())
            .operation("book")
            .key(|movement: &Movement| movement.movement_id.clone())
            .handler(handler);
        Environment {
            worker: worker.boxed(),
            state,
        }
    }
}

/// Deliberately not idempotent: each run that gets to its end is an effect.
async fn handle(
    movement: Movement,
    plan: Plan,
    state: &State,
    dice: &Mutex<Rng>,
    ledger: &Ledger,
) -> Result<(), Closed> {
    let pause = dice.lock().unwrap().u64(..5);
    sleep(Duration::from_millis(pause)).await;
    if plan.crash != Crash::Never && happens(dice, ledger, plan.crash_in, "handlers that crashed") {
        state.is_crashing.store(true, Ordering::Relaxed);
        state.crash.notify_one();
    }
    if state.is_crashing.load(Ordering::Relaxed) {
        return std::future::pending().await;
    }
    let number = || {
        movement
            .movement_id
            .trim_start_matches("m-")
            .parse::<usize>()
    };
    let is_poison = plan
        .poison_every
        .is_some_and(|every| number().is_ok_and(|n| n % every == 0));
    if is_poison || happens(dice, ledger, plan.fail_in, "handlers that failed") {
        return Err(Closed);
    }
    let invocation = state.invocation.load(Ordering::Relaxed);
    ledger.book(movement.movement_id, movement.sku, invocation);
    Ok(())
}

fn happens(dice: &Mutex<Rng>, ledger: &Ledger, once_in: u32, what: &'static str) -> bool {
    let happens = dice.lock().unwrap().u32(..once_in) == 0;
    if happens {
        ledger.count(what);
    }
    happens
}

fn context() -> Context {
    let mut context = Context::default();
    context.deadline = VirtualClock::deadline(TIMEOUT);
    context
}
