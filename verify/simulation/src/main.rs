//! Plays as many nights as it is asked for. [The library](protocol_simulation) says what a night is.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a program for a terminal"
)]

use std::process::ExitCode;

use protocol_simulation::nights::{self, Lot, Progress};
use protocol_simulation::{Mutation, base, night, variable};

const USAGE: &str =
    "usage: protocol-simulation [--seeds <how many>] [--from <first seed> | --new] | --seed <seed>

  --seeds 10000   so many nights (SIMULATION_SEEDS)
  --from 0        from this seed on
  --new           from a seed on that the operating system draws, so that the nights are new
  --seed 4711     one night, with its trace (SIMULATION_SEED)";

/// As many nights as have to reach everything that the report knows of.
const ENOUGH: u64 = 10_000;

enum Wanted {
    One(u64),
    Many(Lot),
}

fn main() -> ExitCode {
    night::hush();
    match wanted() {
        Some(Wanted::One(seed)) => one(seed),
        Some(Wanted::Many(lot)) => many(lot),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn wanted() -> Option<Wanted> {
    let mut arguments = std::env::args().skip(1);
    let mut seed = variable("SIMULATION_SEED");
    let (mut count, mut first) = (variable("SIMULATION_SEEDS"), 0);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--new" => first = base(),
            "--seed" => seed = Some(arguments.next()?.parse().ok()?),
            "--seeds" => count = Some(arguments.next()?.parse().ok()?),
            "--from" => first = arguments.next()?.parse().ok()?,
            _ => return None,
        }
    }
    Some(match seed {
        Some(seed) => Wanted::One(seed),
        None => Wanted::Many(Lot {
            first,
            count: count.unwrap_or(ENOUGH),
        }),
    })
}

fn one(seed: u64) -> ExitCode {
    let night = night::told(seed, Mutation::None);
    println!("{}", night.trace.join("\n"));
    for broken in &night.broken {
        println!("BROKEN: {broken}");
    }
    ExitCode::from(u8::from(!night.broken.is_empty()))
}

fn many(lot: Lot) -> ExitCode {
    println!("{} nights from seed {}", lot.count, lot.first);
    let report = nights::play(lot, Mutation::None, |progress| tell(lot, progress), found);
    println!("{report}");
    let missed = report.never_reached();
    if lot.count >= ENOUGH && !missed.is_empty() {
        println!("never reached: {missed:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::from(!report.broken.is_empty()))
}

/// The run may be stopped at any time: what broke until then has been said.
#[allow(clippy::cast_precision_loss, reason = "for an operator to read")]
fn tell(lot: Lot, progress: Progress) {
    let seconds = progress.took.as_secs_f64();
    eprintln!(
        "{:>12} of {} nights in {seconds:.0} s, {:.0} a second, {} broken; to go on from here: --from {}",
        progress.played,
        lot.count,
        progress.played as f64 / seconds.max(0.001),
        progress.broken,
        progress.next,
    );
}

fn found(seed: u64, broken: &[String]) {
    for what in broken {
        println!("BROKEN: seed {seed}: {what}");
    }
    println!("again: cargo run --profile checked -p protocol-simulation -- --seed {seed}");
}
