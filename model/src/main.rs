//! Checks the protocol, scope by scope, and then that each defect made on purpose is found.
//!
//! ```sh
//! cargo run --release -p protocol-model            # a few minutes
//! cargo run --release -p protocol-model -- --long  # all faults at once: hours, and much memory
//! ```
//!
//! The decisions are the library's own (`protocol::decide`, `protocol::settle`), and so are the conditions (`store::transition`). What
//! is modelled here is the order in which an engine uses them, the network, the clocks, and TTL; that the real engine keeps to
//! that order is shown by the simulation in `tests/simulation`.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a model that panics has a mistake of its own"
)]

use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker as _, HasDiscoveries, Model};

use checker::{Checker, Scope};
use mutation::Mutation;

mod checker;
mod mutation;
mod scopes;
mod table;
mod worker;
mod world;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    if wanted.as_deref() == Some("--long") {
        let holds = scopes::long().iter().all(check);
        return if holds {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let scopes = scopes::short();
    let mut holds = true;
    for scope in &scopes {
        holds &= check(scope);
    }
    for mutation in Mutation::ALL {
        holds &= catch(&scopes, mutation);
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Explores a scope to its end.
fn check(scope: &Scope) -> bool {
    let began = Instant::now();
    let checker = Checker::new(scope.clone(), Mutation::None)
        .checker()
        .threads(threads())
        .spawn_bfs()
        .join();
    let broken: Vec<_> = ["safe", "live"]
        .into_iter()
        .filter(|name| checker.discovery(name).is_some())
        .collect();
    println!(
        "{:55} {:>9} states, depth {:>3}, {:>5.1} s: {}",
        scope.name,
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64(),
        if broken.is_empty() { "holds" } else { "BROKEN" },
    );
    for name in broken {
        tell(&checker, name);
    }
    checker
        .discoveries()
        .keys()
        .all(|name| !["safe", "live"].contains(name))
}

/// Finds what a defect breaks, in the first scope that shows it.
fn catch(scopes: &[Scope], mutation: Mutation) -> bool {
    for scope in scopes {
        let checker = Checker::new(scope.clone(), mutation)
            .checker()
            .threads(threads())
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        for name in ["safe", "live"] {
            if checker.discovery(name).is_some() {
                println!("\n{mutation}: caught, in `{}`", scope.name);
                tell(&checker, name);
                return true;
            }
        }
    }
    println!("\n{mutation}: NOT CAUGHT");
    false
}

/// The shortest way to what should not have happened.
fn tell(checker: &impl stateright::Checker<Checker>, name: &'static str) {
    let Some(path) = checker.discovery(name) else {
        return;
    };
    let states = path.clone().into_states();
    for (number, action) in path.into_actions().iter().enumerate() {
        let what = states
            .get(number)
            .map(|world| world.telling(*action))
            .unwrap_or_default();
        println!("  {:>2}. {action}{what}", number + 1);
    }
    let broken = states.last().and_then(|world| world.broken);
    println!("  => {}", broken.unwrap_or("a key never comes to its end"));
}
