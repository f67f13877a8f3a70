//! Checks the protocol, scope by scope, and then that each defect made on purpose is found.
//!
//! ```sh
//! cargo run --profile checked -p protocol-model                      # a minute
//! cargo run -p protocol-model -- --small                             # the scopes of two processes
//! cargo run --profile checked -p protocol-model -- --long            # hours, and gigabytes
//! cargo run --profile checked -p protocol-model -- --only "a step"   # the scopes with this in their names; works with --long, too
//! ```
//!
//! The decisions are the library's own (`protocol::decide`, `settle`, `decide_step`), and so are the conditions
//! (`protocol::transition`) and the changes of a journal's entry. The model adds the order in which an engine uses them, the network, the
//! clocks, and TTL; the simulation in `verify/simulation/` shows that the real engine keeps to that order.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a model that panics has its own mistake"
)]

use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker as _, HasDiscoveries, Model};

use checker::Checker;
use mutation::Mutation;
use reduction::Reduction;
use scopes::Scope;

mod canonical;
mod catalogue;
mod checker;
mod controls;
mod labels;
mod liveness;
mod mutation;
mod operator;
mod reached;
mod real;
mod reduction;
mod scopes;
mod table;
mod telling;
mod values;
mod worker;
mod world;

/// The arguments of the command line.
struct Wanted {
    small: bool,
    long: bool,
    only: Option<String>,
}

fn main() -> ExitCode {
    let Some(wanted) = wanted() else {
        eprintln!("usage: protocol-model [--small | --long] [--only <part of a name>]");
        return ExitCode::from(2);
    };
    let named = |name: &str| wanted.only.as_ref().is_none_or(|only| name.contains(only));
    let mut scopes = if wanted.long {
        catalogue::long()
    } else {
        catalogue::short()
    };
    scopes.retain(|scope| !wanted.small || scope.workers.iter().all(|worker| worker.process < 2));
    let mut sum = Sum::default();
    let mut holds = true;
    let mut explored = 0;
    for scope in scopes.iter().filter(|scope| named(&scope.name)) {
        holds &= check(scope, Some(&mut sum));
        explored += 1;
    }
    println!(
        "{:62} {:>11} states {:>17.1} s",
        "together", sum.states, sum.seconds
    );
    if !wanted.long {
        for (mutation, scope) in controls::controls() {
            if named(&mutation.to_string()) {
                holds &= control(&scope, mutation);
                explored += 1;
            }
        }
    }
    if explored == 0 {
        eprintln!("no scope and no defect has this in its name");
        return ExitCode::from(2);
    }
    let missed = reached::missed();
    if !wanted.long && wanted.only.is_none() && !missed.is_empty() {
        println!("never reached: {missed:?}");
        holds = false;
    }
    ExitCode::from(u8::from(!holds))
}

fn wanted() -> Option<Wanted> {
    let mut wanted = Wanted {
        small: false,
        long: false,
        only: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--small" => wanted.small = true,
            "--long" => wanted.long = true,
            "--only" => wanted.only = Some(words.next()?),
            _ => return None,
        }
    }
    Some(wanted)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[derive(Default)]
struct Sum {
    states: usize,
    seconds: f64,
}

/// Explores a scope to its end.
fn check(scope: &Scope, sum: Option<&mut Sum>) -> bool {
    let began = Instant::now();
    // Depth first: it keeps the least in memory.
    let checker = Checker::new(scope.clone(), Mutation::None, Reduction::FULL)
        .checker()
        .threads(threads())
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    let holds = checker.discoveries().is_empty();
    if let Some(sum) = sum {
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{:62} {:>11} states, depth {:>3}, {seconds:>6.1} s: {}",
            scope.name,
            checker.unique_state_count(),
            checker.max_depth(),
            if holds { "holds" } else { "BROKEN" },
        );
        sum.states += checker.unique_state_count();
        sum.seconds += seconds;
    }
    if !holds {
        let found = catch(scope, Mutation::None);
        println!("{}", found.unwrap_or_default());
    }
    holds
}

/// A defect is found in a scope that holds without it.
fn control(scope: &Scope, mutation: Mutation) -> bool {
    let Some(found) = catch(scope, mutation) else {
        println!("\n{mutation}: NOT CAUGHT");
        return false;
    };
    println!("\n{mutation}: caught, in `{}`\n{found}", scope.name);
    check(scope, None)
}

/// The shortest way to what should not happen, told.
fn catch(scope: &Scope, mutation: Mutation) -> Option<String> {
    let mut shortest = None;
    let mut depth = None;
    loop {
        let mut builder = Checker::new(scope.clone(), mutation, Reduction::FULL)
            .checker()
            .threads(threads())
            .finish_when(HasDiscoveries::AnyFailures);
        // A search stops some states after it found something, and names the last that it saw: is there a shorter way?
        if let Some(depth) = depth {
            builder = builder.target_max_depth(depth);
        }
        let checker = builder.spawn_bfs().join();
        let mut paths = checker.discoveries().into_values();
        let Some(path) = paths.next() else {
            return shortest;
        };
        depth = Some(path.clone().into_actions().len() + 1);
        shortest = Some(telling::tell(path));
    }
}
