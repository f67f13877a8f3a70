//! Holds what the sources of the feature `streams` share: keys, data in Base64, headers, times,
//! replies.

mod data;
mod failures;
mod gzip;
mod header;
mod service;
mod time;
mod token;

pub(crate) use data::Data;
pub use failures::{ItemFailure, ItemFailures};
#[cfg(test)]
pub(crate) use gzip::packed;
pub(crate) use gzip::unpack;
pub(crate) use header::{HeaderBytes, text};
pub(crate) use service::{OtherService, check_service};
pub(crate) use time::seconds;
pub(crate) use token::token;
