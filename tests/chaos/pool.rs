//! The execution environments of a function: each dies when its dice say so, or is frozen until its lease is over, and is replaced.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};

use crate::lane::Logs;
use crate::night::{Night, between};
use crate::support::lambda::{Function, Invocation, Reply, Sandbox};

/// The functions' timeout while trouble is made. A claim lasts a second longer.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Their timeout in the calm, in which a machine that is busy may take its time.
pub const CALM_TIMEOUT: Duration = Duration::from_mins(1);

/// The time that a process that was frozen may take to end its work.
const LATE: Duration = Duration::from_secs(30);

/// Of a hundred invocations so many end with the process, and so many see it frozen.
const KILLED: u32 = 8;
const FROZEN: u32 = 6;

enum Harm {
    None,
    Kill { after: Duration },
    Freeze { after: Duration, lasting: Duration },
}

pub struct Pool {
    night: Arc<Night>,
    /// One of each version; new environments take turns.
    functions: Vec<Function>,
    started: AtomicUsize,
    dice: Mutex<Rng>,
    logs: Arc<Logs>,
    /// Events that are being worked on, by the frozen too.
    busy: AtomicUsize,
    /// The time that an event took of late on average, in milliseconds: harm comes within it.
    usual: AtomicU64,
    ready: UnboundedSender<Sandbox>,
    idle: AsyncMutex<UnboundedReceiver<Sandbox>>,
}

impl Pool {
    pub async fn of(
        night: &Arc<Night>,
        name: &str,
        function: &Function,
        logs: Arc<Logs>,
        size: usize,
    ) -> Arc<Self> {
        let (ready, idle) = unbounded_channel();
        let pool = Arc::new(Self {
            night: Arc::clone(night),
            dice: Mutex::new(night.dice(&format!("the processes of {name}"))),
            functions: night
                .versions
                .iter()
                .map(|version| function.version(*version))
                .collect(),
            started: AtomicUsize::new(0),
            logs,
            busy: AtomicUsize::new(0),
            usual: AtomicU64::new(100),
            ready,
            idle: AsyncMutex::new(idle),
        });
        for _ in 0..size {
            pool.replace().await;
        }
        pool
    }

    /// Gives the event to an environment, and returns its reply. It goes on to the end, whether or not somebody waits for it.
    pub async fn invoke(self: &Arc<Self>, event: Value) -> Reply {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let pool = Arc::clone(self);
        let running = tokio::spawn(async move {
            let reply = pool.run(event).await;
            pool.busy.fetch_sub(1, Ordering::Relaxed);
            reply
        });
        running.await.expect("no panic in the harness")
    }

    async fn run(&self, event: Value) -> Reply {
        let idle = self.idle.lock().await.recv().await;
        let mut sandbox = idle.expect("a pool that is open");
        let harm = self.harm();
        if !self.night.is_troubled() {
            sandbox.set_timeout(CALM_TIMEOUT);
        }
        let invocation = sandbox.begin(event).await;
        let began = Instant::now();
        let reply = match harm {
            Harm::None => sandbox.finish(invocation).await,
            Harm::Kill { after } => {
                let in_time = sandbox.finish_within(&invocation, after).await;
                in_time.unwrap_or_else(|| {
                    self.night.report.count("process killed");
                    sandbox.kill();
                    Reply::Died
                })
            }
            Harm::Freeze { after, lasting } => {
                let in_time = sandbox.finish_within(&invocation, after).await;
                let Some(reply) = in_time else {
                    return self.freeze(sandbox, invocation, lasting).await;
                };
                reply
            }
        };
        self.logs.read(sandbox.version(), &sandbox.lines());
        if let Reply::Answered(_) | Reply::Failed(_) = reply {
            self.took(began.elapsed());
            // Nobody waits for it when the night is over.
            let _ = self.ready.send(sandbox);
        } else {
            drop(sandbox);
            self.replace().await;
        }
        reply
    }

    /// Freezes the process while another one does its work; then it goes on as if nothing had happened.
    async fn freeze(
        &self,
        mut sandbox: Sandbox,
        invocation: Invocation,
        lasting: Duration,
    ) -> Reply {
        self.night.report.count("process frozen past its lease");
        sandbox.stop();
        self.replace().await;
        sleep(lasting).await;
        sandbox.go_on();
        let late = sandbox.finish_within(&invocation, LATE).await;
        self.logs.read(sandbox.version(), &sandbox.lines());
        late.unwrap_or(Reply::TimedOut)
    }

    async fn replace(&self) {
        let turn = self.started.fetch_add(1, Ordering::Relaxed);
        let sandbox = self.functions[turn % self.functions.len()].start().await;
        let _ = self.ready.send(sandbox);
    }

    /// Waits for those that work, and ends the processes.
    pub async fn close(&self) {
        while self.busy.load(Ordering::Relaxed) > 0 {
            sleep(Duration::from_millis(50)).await;
        }
        let mut idle = self.idle.lock().await;
        while let Ok(mut sandbox) = idle.try_recv() {
            self.logs.read(sandbox.version(), &sandbox.lines());
        }
    }

    fn took(&self, time: Duration) {
        let took = u64::try_from(time.as_millis()).expect("short");
        let average = |usual| Some((usual * 7 + took) / 8);
        let _ = self
            .usual
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, average);
    }

    fn harm(&self) -> Harm {
        if !self.night.is_troubled() {
            return Harm::None;
        }
        let mut dice = self.dice.lock().expect("not poisoned");
        let after = between(&mut dice, 0, self.usual.load(Ordering::Relaxed));
        let chance = dice.u32(0..100);
        if chance < KILLED {
            Harm::Kill { after }
        } else if chance < KILLED + FROZEN {
            // Wakes before its successor claims, while it runs, or after it.
            let lasting = between(&mut dice, 3_000, 5_000);
            Harm::Freeze { after, lasting }
        } else {
            Harm::None
        }
    }
}
