//! Plays the real engine and the real layers, on a wire that fails, in a time that is simulated.
//!
//! A seed makes everything: settings, clocks, deliveries, what each handler does, which call meets which fault, when a process
//! dies. Time is Tokio's, paused: it jumps from one event to the next. Every change of the records and of the world is watched,
//! and held against the invariants of `docs/internals/protocol.md`.
//!
//! `cargo test` plays a thousand nights and some new ones; the program of this package plays as many as it is asked for.
//!
//! ```sh
//! cargo run --profile checked -p protocol-simulation -- --seeds 1000000   # more of them
//! cargo run --profile checked -p protocol-simulation -- --seed 4711       # one again, with its trace
//! ```

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a simulation that panics has its own mistake"
)]

pub mod broken;
mod checks;
mod doors;
pub mod night;
pub mod nights;
mod operator;
mod process;
pub mod report;
mod scenario;
mod seeds;
mod watched;
mod world;

pub use broken::Mutation;
pub use nights::{Lot, Progress};
pub use report::Report;
pub use seeds::{base, variable};
