//! The store on real servers: `scripts/with redis -- cargo test -p lambda-idempotency-redis`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

#[macro_use]
#[path = "../../../../tests/support/assert_matches.rs"]
mod assert_matches;

mod bad_input;
mod cluster;
mod conformance;
mod failover;
mod sequences;
mod server;
mod workers;
