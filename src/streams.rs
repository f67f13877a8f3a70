//! Holds what the sources of the feature `streams` share: keys, data in Base64, headers, times,
//! replies.

mod data;
mod failures;
mod header;
mod service;
mod time;
mod token;

pub(crate) use data::Data;
pub use failures::{ItemFailure, ItemFailures};
pub(crate) use header::{HeaderBytes, text};
pub(crate) use service::{OtherService, check_service};
pub(crate) use time::seconds;
pub(crate) use token::token;
