//! What was promised, held against what happened.

mod claims;
pub mod orders;
pub mod payments;

pub use claims::{Story, Why};
