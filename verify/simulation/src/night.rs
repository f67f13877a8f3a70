//! One night: from the first delivery until everything that can be settled is settled.

use std::collections::BTreeMap;
use std::panic;
use std::rc::Rc;
use std::sync::Once;
use std::time::Duration;

use lambda_idempotency::protocol::record::Status;
use lambda_idempotency::testing::{Call, FaultyStore};
use lambda_idempotency::{Idempotency, InFlight, Key, OnCrash, RecordId};
use tokio::task::LocalSet;

use crate::broken::Mutation;
use crate::checks;
use crate::doors::{OPERATION, OnPurpose, Worker, http, sqs, token};
use crate::operator::Operator;
use crate::process::Process;
use crate::scenario::{Delivery, Door, MARGIN, Scenario};
use crate::watched::{Booking, Change, Watched};
use crate::world::{Effect, Execution, Ledger, Result, Results, SkewedClock, What, World, millis};

/// The number of times that a caller tries again when the trouble is over.
const RETRIES: usize = 12;

/// Messages of a batch.
pub const BATCH: usize = 4;

/// The events of a night, and the invariants that it broke.
pub struct Night {
    pub seed: u64,
    pub scenario: Rc<Scenario>,
    pub trace: Vec<String>,
    pub broken: Vec<String>,
    pub changes: Vec<Change>,
    pub executions: Vec<Execution>,
    pub effects: Vec<Effect>,
    pub bookings: Vec<(i64, Booking)>,
    pub results: Vec<Result>,
    pub met: BTreeMap<(Call, &'static str), u64>,
    /// The number of times that each other event was reached, by its name.
    pub reached: BTreeMap<&'static str, u64>,
}

/// Panics on purpose are not worth a line each.
pub fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<OnPurpose>() {
                usual(info);
            }
        }));
    });
}

/// The same night, with its trace.
pub fn told(seed: u64, mutation: Mutation) -> Night {
    let mut night = run(seed, mutation);
    night.trace = trace(&night);
    night
}

pub fn run(seed: u64, mutation: Mutation) -> Night {
    // The engine's jitter comes from this thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(LocalSet::new().run_until(play(seed, mutation)))
}

async fn play(seed: u64, mutation: Mutation) -> Night {
    let scenario = Rc::new(Scenario::of(seed));
    let world = World::new();
    let watched = Watched::new(world, mutation, seed, &scenario);
    let table = FaultyStore::seeded(watched.clone(), seed, scenario.trouble);
    let (ledger, results) = (Ledger::default(), Results::default());
    let workers: Vec<_> = scenario
        .skews
        .iter()
        .map(|&skew| {
            let jumps = mutation.jumps();
            let clock = SkewedClock { world, skew, jumps };
            worker(&scenario, Process::new(table.clone()), &ledger, clock)
        })
        .collect();
    let ids: Vec<_> = (0..scenario.keys)
        .map(|key| workers[0].id(&scenario, key))
        .collect();

    let mut tasks = Vec::new();
    for batch in batches(&scenario) {
        let (number, first) = batch[0];
        let mut worker = workers[first.worker].clone();
        worker.dies = dies(scenario.door, number, &first);
        if worker.dies {
            // Another process on the same machine, whose engine nobody calls afterwards.
            let process = Process::new(table.clone());
            let once = engine(&scenario, process.clone(), worker.clock);
            worker.claimless = once.claimless();
            worker.once = once;
            worker.process = process;
        }
        tasks.push(tokio::task::spawn_local(send(
            world,
            Rc::clone(&scenario),
            worker,
            batch,
            results.clone(),
        )));
    }
    let (sweeps, sweeper, swept) = (scenario.sweeps.clone(), watched.clone(), ids.clone());
    tasks.push(tokio::task::spawn_local(async move {
        for at in sorted(sweeps) {
            tokio::time::sleep(millis(at - world.elapsed())).await;
            sweeper.sweep(&swept).await;
        }
    }));
    for order in scenario.orders.iter().copied() {
        let (table, id) = (table.clone(), ids[order.key].clone());
        let operator = Operator {
            world,
            table,
            watched: watched.clone(),
            id,
        };
        tasks.push(tokio::task::spawn_local(operator.carry_out(order)));
    }
    for task in tasks {
        task.await.expect("no panic but on purpose");
    }
    // The trouble is over, and every lease has run out.
    table.calm();
    tokio::time::sleep(millis(30_000 + scenario.spread())).await;
    let mut unsettled = Vec::new();
    for (key, id) in ids.iter().enumerate() {
        if !settle(world, &scenario, &workers[0], key, id, &watched, &results).await {
            unsettled.push(key);
        }
    }
    let (executions, effects) = ledger.take();
    let (bookings, reached) = watched.take_book();
    let mut night = Night {
        seed,
        trace: Vec::new(),
        broken: Vec::new(),
        changes: watched.take_changes(),
        executions,
        effects,
        bookings,
        results: results.take(),
        met: table.met(),
        reached,
        scenario,
    };
    night.broken = checks::broken(&night, &ids, &unsettled);
    night
}

fn worker(scenario: &Scenario, process: Process, ledger: &Ledger, clock: SkewedClock) -> Worker {
    let once = engine(scenario, process.clone(), clock);
    Worker {
        door: scenario.door,
        clock,
        dies: false,
        at_deadline: scenario.at_deadline,
        claimless: once.claimless(),
        once,
        process,
        ledger: ledger.clone(),
    }
}

fn engine(scenario: &Scenario, process: Process, clock: SkewedClock) -> Idempotency {
    // A commit without a claim may be late, so the records of its key must be kept for longer.
    let is_claimless = scenario
        .deliveries
        .iter()
        .any(|delivery| delivery.claimless);
    let least = Duration::from_hours(u64::from(is_claimless));
    let kept = |retention| millis(retention).max(least);
    let mut builder = Idempotency::builder(process)
        .namespace("night")
        .clock(clock)
        .lease(millis(scenario.lease))
        .retention(kept(scenario.retention))
        .on_crash(scenario.crashed)
        .settings(|settings| {
            settings.skew_margin = millis(MARGIN);
            settings.failure_retention = kept(scenario.failure_retention);
            settings.store_timeout = millis(2_000);
            settings.at_deadline = scenario.at_deadline;
        })
        .disabled(false);
    if scenario.patience > 0 {
        builder = builder.in_flight(InFlight::WaitUpTo(millis(scenario.patience)));
    }
    if let Some((lease, longest)) = scenario.renewed {
        builder = builder
            .renewed_lease(millis(lease))
            .settings(|settings| settings.max_duration = millis(longest));
    }
    if let Some(most) = scenario.max_attempts {
        builder = builder.max_attempts(most);
    }
    builder.build().expect("a namespace")
}

impl Worker {
    /// The record of a key, by the door through which it comes.
    fn id(&self, scenario: &Scenario, number: usize) -> RecordId {
        let key = match scenario.door {
            Door::Http => Key::new("POST /charges", token(number)),
            Door::Engine | Door::Sqs => Key::new(OPERATION, token(number)),
        };
        self.once.record_id(&key).expect("a key")
    }
}

/// Returns whether a delivery has its own process, which dies where it is cut off. Lambda ends the process of every other batch that is
/// over its time; the rest are dropped before that, by a timeout of the caller.
fn dies(door: Door, number: usize, first: &Delivery) -> bool {
    let is_ended_by_lambda = door == Door::Sqs && (number / BATCH).is_multiple_of(2);
    first.cut_off().map_or(is_ended_by_lambda, |(_, dies)| dies)
}

/// Deliveries that arrive together: messages of a batch, or one alone.
fn batches(scenario: &Scenario) -> Vec<Vec<(usize, Delivery)>> {
    let numbered: Vec<_> = scenario.deliveries.iter().copied().enumerate().collect();
    match scenario.door {
        Door::Sqs => numbered.chunks(BATCH).map(<[_]>::to_vec).collect(),
        _ => numbered.into_iter().map(|one| vec![one]).collect(),
    }
}

async fn send(
    world: World,
    scenario: Rc<Scenario>,
    worker: Worker,
    batch: Vec<(usize, Delivery)>,
    results: Results,
) {
    let (_, first) = batch[0];
    tokio::time::sleep(millis(first.at - world.elapsed())).await;
    let numbers: Vec<_> = batch.iter().map(|(number, _)| *number).collect();
    let process = worker.process.clone();
    let running = answer(&scenario, worker, batch);
    // A process that dies drops its work, with its engine and its tasks. Where a caller hangs up, the engine lives on. A write that is on
    // the wire arrives.
    let whats = match first.cut_off() {
        None => running.await,
        Some((life, dies)) => tokio::time::timeout(millis(life), running)
            .await
            .unwrap_or_else(|_| {
                if dies {
                    process.die();
                }
                vec![What::cut_off(dies); numbers.len()]
            }),
    };
    for (number, what) in numbers.into_iter().zip(whats) {
        results.note(world, number, what);
    }
}

async fn answer(scenario: &Scenario, worker: Worker, batch: Vec<(usize, Delivery)>) -> Vec<What> {
    let (number, first) = batch[0];
    match scenario.door {
        Door::Engine => vec![worker.run(number, first).await],
        Door::Http => vec![http::request(worker, number, first).await],
        Door::Sqs => sqs::deliver(worker, batch, scenario.fifo).await,
    }
}

/// A patient caller: whether the key came to an end.
async fn settle(
    world: World,
    scenario: &Scenario,
    worker: &Worker,
    key: usize,
    id: &RecordId,
    watched: &Watched,
    results: &Results,
) -> bool {
    let number = scenario.deliveries.len() + key;
    for _ in 0..RETRIES {
        // Whichever payload the key is bound to.
        for payload in [0, 1] {
            let delivery = Delivery::quiet(key, payload);
            let what = answer(scenario, worker.clone(), vec![(number, delivery)])
                .await
                .remove(0);
            let settled = match &what {
                What::Executed(_)
                | What::Replayed(_)
                | What::Unrecorded(_)
                | What::Acknowledged => true,
                What::Refused(code) => matches!(
                    *code,
                    "failure_replayed"
                        | "interrupted"
                        | "exhausted"
                        | "outcome_omitted"
                        | "HTTP 409"
                        | "HTTP 422"
                ),
                // A queue is told no more; the record says why.
                What::Reported => watched.record(id).await.is_some_and(|record| {
                    record.status == Status::Failed
                        || scenario.max_attempts.is_some()
                        || scenario.crashed == OnCrash::Interrupt
                }),
                What::Crashed | What::HungUp | What::Panicked => false,
            };
            results.note(world, number, what);
            if settled {
                return true;
            }
        }
        let pause = match scenario.crashed {
            OnCrash::RunAgainAfter(pause) => pause,
            _ => Duration::ZERO,
        };
        tokio::time::sleep(millis(2 * scenario.lease + 2 * MARGIN) + pause).await;
    }
    false
}

fn sorted(mut times: Vec<i64>) -> Vec<i64> {
    times.sort_unstable();
    times
}

/// Tells the events of a night in words that don't depend on random owners.
fn trace(night: &Night) -> Vec<String> {
    let mut lines: Vec<(i64, String)> = Vec::new();
    for change in &night.changes {
        let after = change.after.as_ref().map_or("gone".to_owned(), |record| {
            format!(
                "{} attempt {} lease {:?} expires {}",
                record.status.as_str(),
                record.attempt,
                record.lease,
                record.expiration.0
            )
        });
        lines.push((
            change.at,
            format!("{:?} {}: {after}", change.kind, change.id),
        ));
    }
    for execution in &night.executions {
        lines.push((execution.began, format!("ran: {execution:?}")));
    }
    for (at, booking) in &night.bookings {
        lines.push((*at, format!("{booking:?}")));
    }
    for effect in &night.effects {
        lines.push((effect.at, format!("{effect:?}")));
    }
    for result in &night.results {
        lines.push((
            result.at,
            format!("delivery {} came to {:?}", result.delivery, result.what),
        ));
    }
    lines.sort_by_key(|(at, _)| *at);
    let head = [
        format!("seed {}", night.seed),
        format!("{:?}", night.scenario),
    ];
    head.into_iter()
        .chain(lines.into_iter().map(|(at, line)| format!("{at} {line}")))
        .chain(
            night
                .met
                .iter()
                .map(|(fault, count)| format!("{fault:?} × {count}")),
        )
        .chain(
            night
                .reached
                .iter()
                .map(|(what, count)| format!("{what} × {count}")),
        )
        .collect()
}
