//! The store on a real server: `scripts/with postgres pgbouncer -- cargo test -p lambda-idempotency-postgres`.

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
mod conformance;
mod examples;
mod given_up;
mod guard;
mod http;
mod outbox;
mod pools;
mod processes;
mod proxied;
mod schema;
mod sequences;
mod support;
mod transact;
mod wire;
