//! The sample functions as processes, on a bad night: the wire to DynamoDB Local delays, loses, repeats and refuses, processes are
//! killed and frozen, and both sources deliver twice.
//!
//! `orders-api` gets its orders from clients that ask with the same key until they have an answer; `payments-worker` gets its
//! payments from a queue, in three forms. Afterwards a judge holds the tables, their streams, the provider's book and what the
//! sources were told against the promises of `docs/internals/protocol.md`.
//!
//! ```sh
//! CHAOS_DELIVERIES=5000 scripts/with dynamodb-local -- cargo test --test chaos -- --nocapture loses_nothing   # a long one
//! CHAOS_SEED=4711 scripts/with dynamodb-local -- cargo test --test chaos -- --nocapture loses_nothing         # other dice
//! ```
//!
//! The seed makes every choice of the wire, the sources and the hand that kills; when each falls depends on the machine, so that a seed
//! gives a night of the same kind, not the same night.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has found something"
)]

use std::env;
use std::time::{Duration, Instant};

mod client;
mod crossing;
mod defect;
mod history;
mod judge;
mod lane;
mod night;
mod orders;
mod payments;
mod pool;
mod queue;
mod report;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the suite uses the rest"
)]
#[path = "../support/mod.rs"]
mod support;
mod tape;
mod wire;

use defect::Defect;
use lane::PANICKED;
use night::Night;
use payments::Form;
use support::lambda::Version;

/// The situations that every night must reach. One that doesn't get there shows nothing.
const DEMANDS: &[&str] = &[
    "process killed",
    "process frozen past its lease",
    "fault: request delayed",
    "fault: request held past the deadline",
    "fault: reply delayed",
    "fault: request lost",
    "fault: reply lost",
    "fault: request late",
    "fault: copy late",
    "fault: 500",
    "fault: throttled",
    "fault: conflict",
    "fault: part of a group",
    "provider: refused",
    "provider: charged, and answered with an error",
    "delivery: first of its key",
    "delivery: duplicate",
    "delivery: again, unanswered",
    "decision: claimed",
    "decision: retried",
    "decision: taken_over",
    "decision: completed",
    "decision: released",
    "decision: replayed",
    "decision: in_flight",
    "decision: mismatch",
    "decision: lease_lost",
    "decision: step_skipped",
    "write of a stale owner fenced",
    "message dead",
];

/// The situations that a long night must reach besides.
const DEMANDS_OF_A_LONG_ONE: &[&str] = &[
    "decision: interrupted",
    "decision: not_committed",
    "decision: outcome_unknown",
    "decision: unrecorded",
    "decision: too_late",
];

/// The situations that no night may reach: these say that something is broken, or was not protected.
const NEVER: &[&str] = &[
    "decision: exhausted",
    "decision: outcome_omitted",
    "decision: unprotected",
    "decision: unreadable",
    PANICKED,
];

/// The situation that the judge must have found in a long night.
const REPEATED: &str = "execution repeated after a lease that ran out";

/// From so many deliveries on a night is a long one.
const LONG: u64 = 5_000;

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_loses_nothing_and_repeats_nothing_beyond_what_is_promised() {
    let seed = variable("CHAOS_SEED").unwrap_or(1);
    let wanted = variable("CHAOS_DELIVERIES").unwrap_or(600);
    let mut demands = DEMANDS.to_vec();
    if wanted >= LONG {
        demands.extend(DEMANDS_OF_A_LONG_ONE);
    }
    // In case something is never reached, or never comes to its end: a busy machine takes its time.
    let patience = Duration::from_mins(10) + Duration::from_secs(wanted / 4);
    let night = Night::begin(seed, &[Version::This], wanted, demands, patience);
    let began = Instant::now();
    let (orders, keyed, unkeyed, plain, ()) = tokio::join!(
        orders::run(&night, Defect::None),
        payments::run(&night, Form::Keyed, Defect::None),
        payments::run(&night, Form::Unkeyed, Defect::None),
        payments::run(&night, Form::Plain, Defect::None),
        night.watch(),
    );
    let broken = [orders, keyed, unkeyed, plain].concat();
    let seconds = began.elapsed().as_secs();
    println!("seed {seed}, {seconds} s\n{}", night.report);
    assert_eq!(
        broken,
        Vec::<String>::new(),
        "seed {seed}: a promise was broken"
    );
    assert_eq!(
        night.never_reached(),
        Vec::<&str>::new(),
        "seed {seed}: a night that doesn't get there shows nothing"
    );
    assert!(
        wanted < LONG || night.report.of(REPEATED) > 0,
        "seed {seed}: the first promise was never put to its limit"
    );
    let reached = |what: &&&str| night.report.of(what) > 0;
    assert_eq!(
        NEVER.iter().find(reached),
        None,
        "seed {seed}: that may never be"
    );
    let share = night.share_of_duplicates();
    assert!(share >= 0.3, "seed {seed}: only {share:.2} are duplicates");
}

/// Processes of both versions serve the same keys, as they do while a deployment rolls out or is taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_of_two_versions_on_one_table_breaks_no_promise_either() {
    let seed = variable("CHAOS_SEED").unwrap_or(1);
    let versions = &[Version::This, Version::Before];
    let demands = crossing::DEMANDS.to_vec();
    let night = Night::begin(seed, versions, 200, demands, Duration::from_mins(10));
    let (orders, plain, ()) = tokio::join!(
        orders::run(&night, Defect::None),
        payments::run(&night, Form::Plain, Defect::None),
        night.watch(),
    );
    println!("seed {seed}\n{}", night.report);
    assert_eq!(
        [orders, plain].concat(),
        Vec::<String>::new(),
        "seed {seed}"
    );
    assert_eq!(night.never_reached(), Vec::<&str>::new(), "seed {seed}");
}

/// Short nights of so many deliveries on a wire with this defect, until one is found to be broken; a judge that can't fail judges nothing.
async fn is_noticed(defect: Defect, wanted: u64, by: &str) {
    let began = Instant::now();
    for seed in 1..=6 {
        let night = Night::begin(
            seed,
            &[Version::This],
            wanted,
            Vec::new(),
            Duration::from_mins(2),
        );
        let (broken, ()) = if let Some(form) = defect.at_the_worker() {
            tokio::join!(payments::run(&night, form, defect), night.watch())
        } else {
            tokio::join!(orders::run(&night, defect), night.watch())
        };
        if let Some(found) = broken.iter().find(|found| found.contains(by)) {
            let seconds = began.elapsed().as_secs();
            println!("{defect:?}: seed {seed}, {seconds} s: {found}");
            return;
        }
        println!("{defect:?}: seed {seed}: {broken:#?}");
    }
    panic!("{defect:?} was not noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_on_a_wire_that_forges_success_is_noticed() {
    is_noticed(Defect::ForgedOrders, 40, "before its effect").await;
    is_noticed(Defect::ForgedEntries, 40, "before its effect").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_without_a_condition_on_claims_is_noticed() {
    is_noticed(Defect::OpenClaims, 60, "while its lease ran").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_without_a_fence_is_noticed() {
    is_noticed(Defect::NoFence, 150, "after it was final").await;
}

/// The load itself is dangerous: without the library it pays without a record, and twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_with_the_library_switched_off_is_noticed() {
    is_noticed(Defect::SwitchedOff, 60, ": charged ").await;
}
