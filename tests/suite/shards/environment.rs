//! Execution environments in this process, which fail, crash and lose replies.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use lambda_idempotency::Idempotency;
use lambda_idempotency::batch::BatchError;
use lambda_idempotency::kinesis::{self, ItemFailures, KinesisEvent};
use lambda_idempotency::store::MemoryStore;
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tower::util::BoxService;
use tower::{Service, ServiceExt};

use super::judge::Ledger;
use crate::support::shards::{Invoked, Record, event};
use crate::support::{VirtualClock, builder_on};

/// The time limit of an invocation. The claim of an invocation that died lasts so long from its arrival on, and a second more.
const TIMEOUT: Duration = Duration::from_secs(8);
/// From then on a completion may be given up for the sake of the reply.
const LATE: Duration = Duration::from_secs(6);
// The rate of each disturbance: one in so many.
const CRASHED_HANDLERS: u32 = 40;
const FAILED_HANDLERS: u32 = 30;
const LOST_REPLIES: u32 = 5;

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
    dice: Arc<Mutex<Rng>>,
    ledger: Arc<Ledger>,
    waiting: Mutex<Vec<Environment>>,
    invocations: AtomicU64,
}

impl Environments {
    pub fn new(seed: u64) -> Self {
        let once = builder_on(MemoryStore::new(), "shards");
        Self {
            once: once.build().expect("an engine"),
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
                let is_lost = happens(&self.dice, &self.ledger, LOST_REPLIES, "replies that were lost");
                let reply = reply.ok().filter(|_| !is_lost);
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

    fn start(&self) -> Environment {
        let state = Arc::new(State::default());
        let (dice, ledger) = (Arc::clone(&self.dice), Arc::clone(&self.ledger));
        let handler = {
            let state = Arc::clone(&state);
            move |message: kinesis::Message<Movement>| {
                let (state, dice, ledger) =
                    (Arc::clone(&state), Arc::clone(&dice), Arc::clone(&ledger));
                async move { handle(message.body, &state, &dice, &ledger).await }
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
    state: &State,
    dice: &Mutex<Rng>,
    ledger: &Ledger,
) -> Result<(), Closed> {
    let pause = dice.lock().unwrap().u64(..5);
    sleep(Duration::from_millis(pause)).await;
    if happens(dice, ledger, CRASHED_HANDLERS, "handlers that crashed") {
        state.is_crashing.store(true, Ordering::Relaxed);
        state.crash.notify_one();
    }
    if state.is_crashing.load(Ordering::Relaxed) {
        return std::future::pending().await;
    }
    if happens(dice, ledger, FAILED_HANDLERS, "handlers that failed") {
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
