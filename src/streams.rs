//! Holds what the sources of the feature `streams` share: keys, data in Base64, headers, replies.

mod data;
mod failures;
mod header;
mod token;

pub(crate) use data::Data;
pub use failures::{ItemFailure, ItemFailures};
pub(crate) use header::{HeaderBytes, text};
pub(crate) use token::token;
