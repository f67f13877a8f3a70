//! A thousand nights, new ones each time, and the defects made on purpose.
//!
//! ```sh
//! SIMULATION_SEEDS=100000 cargo test --test simulation -- --nocapture no_night
//! SIMULATION_SEED=4711 cargo test --test simulation -- --nocapture no_night
//! ```

#![allow(clippy::panic, reason = "a test that panics has found something")]

use protocol_simulation::nights::{self, Lot};
use protocol_simulation::{Mutation, Report, base, night, variable};

fn play(first: u64, count: u64) -> Report {
    let lot = Lot { first, count };
    println!("{count} nights from seed {first}");
    nights::play(lot, Mutation::None, |_| (), |_, _| ())
}

#[test]
fn no_night_breaks_an_invariant() {
    night::hush();
    if let Some(seed) = variable("SIMULATION_SEED") {
        let night = night::told(seed, Mutation::None);
        println!("{}", night.trace.join("\n"));
        assert_eq!(night.broken, Vec::<String>::new());
        return;
    }
    let seeds = variable("SIMULATION_SEEDS").unwrap_or(1_000);
    let report = play(0, seeds).merge(play(base(), seeds / 2));
    println!("{report}");
    assert_eq!(
        report.broken,
        Vec::<String>::new(),
        "again: SIMULATION_SEED=… cargo test --test simulation -- --nocapture no_night"
    );
    if seeds >= 10_000 {
        assert_eq!(
            report.never_reached(),
            Vec::<String>::new(),
            "a simulation that doesn't get there shows nothing"
        );
    }
}

/// In the night of this seed a run with a claim and one without begin in the same instant, and the caller of the second hangs up.
#[test]
fn a_run_without_a_claim_holds_no_key() {
    night::hush();
    let night = night::run(8_427_717, Mutation::None);
    let begins = |claimless| {
        let mine = night.executions.iter();
        let mine = mine.filter(move |run| run.key == 1 && run.claimless == claimless);
        mine.map(|run| run.began).collect::<Vec<_>>()
    };
    assert_eq!(begins(true).first(), begins(false).first());
    assert!(night.broken.is_empty(), "{:?}", night.broken);
}

#[test]
fn a_seed_gives_the_same_night_again() {
    night::hush();
    for seed in 0..50 {
        let (first, again) = (
            night::told(seed, Mutation::None),
            night::told(seed, Mutation::None),
        );
        assert_eq!(first.trace, again.trace, "seed {seed}");
    }
}

/// A checker that can't fail checks nothing: each of these defects has to be found.
#[test]
fn every_mutation_is_caught() {
    night::hush();
    for &mutation in Mutation::ALL {
        let caught = (0..5_000).find_map(|seed| {
            let night = night::run(seed, mutation);
            Some((seed, night.broken.first()?.clone()))
        });
        let (seed, broken) = caught.unwrap_or_else(|| panic!("{mutation:?} was not caught"));
        println!("{mutation:?}: seed {seed}: {broken}");
    }
}
