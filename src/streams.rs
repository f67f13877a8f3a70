//! Holds what the sources of the feature `streams` share: keys, data in Base64, headers, replies.

mod data;
mod failures;
mod gzip;
mod header;
mod token;

pub(crate) use data::Data;
pub use failures::{ItemFailure, ItemFailures};
#[cfg(test)]
pub(crate) use gzip::packed;
pub(crate) use gzip::unpack;
pub(crate) use header::{HeaderBytes, text};
pub(crate) use token::token;
