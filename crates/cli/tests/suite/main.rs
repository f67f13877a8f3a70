//! The command line as an operator uses it: the real binary, on real stores.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has found something"
)]

#[macro_use]
#[path = "../../../../tests/support/assert_matches.rs"]
mod assert_matches;

mod audit;
#[path = "../../../postgres/tests/suite/support/bouncer.rs"]
mod bouncer;
mod doctor;
mod limits;
mod plan;
mod postgres;
mod records;
mod redis;
#[path = "../../../redis/tests/suite/server.rs"]
#[allow(dead_code, reason = "that store's tests need more of it")]
mod redis_server;
mod sessions;
mod support;
mod surface;
