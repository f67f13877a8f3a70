//! What the exporter writes, and when.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod documents;
mod emitted;
mod install;
mod invocations;
mod support;
