//! The real engine and the real layers, on a wire that fails, in a time that is simulated: thousands of bad nights a minute.
//!
//! A seed makes everything: settings, clocks, deliveries, what each handler does, which call meets which fault, when a process
//! dies. Time is Tokio's, paused: it jumps from one event to the next. What happens to the records and to the world is watched,
//! and held against the invariants of `docs/protocol.md`.
//!
//! ```sh
//! SIMULATION_SEEDS=1000000 cargo test --test simulation -- --nocapture   # more of them
//! SIMULATION_SEED=4711 cargo test --test simulation -- --nocapture       # one again, with its trace
//! ```

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has found something"
)]

use std::env;

mod broken;
mod checks;
mod doors;
mod night;
mod report;
mod scenario;
mod watched;
mod world;

use broken::Mutation;
use report::Report;

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")),
    )
}

/// Side by side, as many as there are processors; in the order of their seeds.
fn nights(seeds: u64, mutation: Mutation) -> Report {
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        let run = |first| {
            move || {
                let mut report = Report::default();
                for seed in (first..seeds).step_by(usize::try_from(workers).expect("a few")) {
                    report.add(&night::run(seed, mutation));
                }
                report
            }
        };
        let threads: Vec<_> = (0..workers).map(|first| scope.spawn(run(first))).collect();
        let reports = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic in the simulation"));
        reports.fold(Report::default(), Report::merge)
    })
}

#[test]
fn no_night_breaks_an_invariant() {
    night::hush();
    if let Some(seed) = variable("SIMULATION_SEED") {
        let night = night::run(seed, Mutation::None);
        println!("{}", night.trace.join("\n"));
        assert_eq!(night.broken, Vec::<String>::new());
        return;
    }
    let seeds = variable("SIMULATION_SEEDS").unwrap_or(1_000);
    let began = std::time::Instant::now();
    let report = nights(seeds, Mutation::None);
    println!(
        "{report}\n{seeds} seeds in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    assert_eq!(
        report.broken,
        Vec::<String>::new(),
        "again: SIMULATION_SEED=… cargo test --test simulation -- --nocapture"
    );
    if seeds >= 10_000 {
        assert_eq!(
            report.never_reached(),
            Vec::<String>::new(),
            "a simulation that doesn't get there shows nothing"
        );
    }
}

#[test]
fn a_seed_gives_the_same_night_again() {
    night::hush();
    for seed in 0..50 {
        let (first, again) = (
            night::run(seed, Mutation::None),
            night::run(seed, Mutation::None),
        );
        assert_eq!(first.trace, again.trace, "seed {seed}");
    }
}

/// A checker that can't fail checks nothing: each of these defects has to be found.
#[test]
fn every_mutation_is_caught() {
    night::hush();
    for mutation in Mutation::ALL {
        let caught = (0..5_000).find_map(|seed| {
            let night = night::run(seed, mutation);
            Some((seed, night.broken.first()?.clone()))
        });
        let (seed, broken) = caught.unwrap_or_else(|| panic!("{mutation:?} was not caught"));
        println!("{mutation:?}: seed {seed}: {broken}");
    }
}
