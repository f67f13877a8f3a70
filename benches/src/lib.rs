//! Measures the library beside its peers. `benches/run` drives the programs in `src/bin`; `RESULTS.md` is what they found.
//!
//! A *contender* takes batches of messages through a DynamoDB table, one way or another. The same job is given to each, in
//! turns: new messages first, then the same ones again.
#![allow(
    clippy::missing_errors_doc,
    clippy::unreachable,
    reason = "a measurement that panics has its own mistake"
)]

pub mod canned;
pub mod dynamo;
pub mod hot;
pub mod job;
pub mod layer;
pub mod messages;
pub mod raw;
pub mod usage;
pub mod web;

/// Any error of a program of this crate.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
