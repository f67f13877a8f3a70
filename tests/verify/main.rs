//! Tests with tools that not everybody has: Powertools for AWS Lambda, cargo-lambda, Schemathesis.
//!
//! ```sh
//! scripts/with dynamodb-local powertools cargo-lambda schemathesis -- cargo test --test verify
//! ```
#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has found something"
)]

mod cargo_lambda_watch;
mod openapi;
mod real_powertools;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the suite uses the rest"
)]
#[path = "../support/mod.rs"]
mod support;
