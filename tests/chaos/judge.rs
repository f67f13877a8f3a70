//! Compares the promises with the events of a night.

mod claims;
pub mod orders;
pub mod payments;

pub use claims::{Story, Why};
