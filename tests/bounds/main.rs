//! The most memory that the library takes for the largest batches and bodies that Lambda delivers; none of it grows with the number of
//! keys. Its own binary, since its allocator counts.
//!
//! ```sh
//! BOUNDS_KEYS=1000000 scripts/with dynamodb-local -- cargo test --test bounds -- --nocapture keys   # many more keys
//! ```
#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has found something"
)]

mod batches;
mod bodies;
mod forgetful;
mod keys;
mod memory;
#[path = "../support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with test binaries that use more of it"
)]
mod support;
