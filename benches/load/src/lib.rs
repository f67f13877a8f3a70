//! Sends requests at a steady rate, some of them twice, to a server or to a function's environments, and counts what they did.
#![allow(
    clippy::missing_errors_doc,
    reason = "a measurement that fails says why, and ends"
)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that panics has found something")
)]

pub mod arrivals;
pub mod effects;
pub mod generator;
pub mod job;
pub mod memory;
pub mod report;
mod runtime_api;
pub mod target;

/// Any error of this crate.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
