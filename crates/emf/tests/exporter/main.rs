//! The exporter's documents, and the times at which it writes them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod documents;
mod emitted;
mod install;
mod invocations;
mod support;
