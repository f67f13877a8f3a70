//! The integration tests, in one binary: each module reads as the documentation of one promise.
#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has found something, and reads best with its helpers beside their use"
)]

#[macro_use]
#[path = "../support/assert_matches.rs"]
mod assert_matches;

mod architecture;
mod cached;
mod causes;
mod conformance;
mod crowd;
mod diagrams;
mod documents;
mod end_to_end;
mod engine;
mod exactly_once;
mod faults;
mod grouped;
mod guide;
mod hostile;
mod http_layer;
mod invoke;
mod metrics;
mod observing;
mod oversize;
mod peers;
#[path = "../properties/mod.rs"]
mod properties;
mod reference;
mod saga;
mod scale;
mod secrets;
mod shards;
mod sources;
mod spans;
mod sqs;
mod start_up;
mod steps;
mod streams;
#[allow(dead_code, unused_imports, reason = "other test programs use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod testing;
mod window;
mod wire;
