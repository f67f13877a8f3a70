//! The store on a real server: `scripts/with postgres -- cargo test -p lambda-idempotency-postgres`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod bad_input;
mod conformance;
mod examples;
mod guard;
mod outbox;
mod processes;
mod sequences;
mod support;
mod transact;
mod wire;
