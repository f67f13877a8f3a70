//! Holds what the sources of the feature `streams` share: keys, data in Base64, replies.

mod data;
mod failures;
mod token;

pub(crate) use data::Data;
pub use failures::{ItemFailure, ItemFailures};
pub(crate) use token::token;
