#![doc = include_str!("../README.md")]
//!
//! ```
//! use lambda_idempotency::EpochSeconds;
//! use lambda_idempotency_audit::{Completed, EffectKey, Tally};
//!
//! let record = Completed {
//!     id: "payments#charge#0f".to_owned(),
//!     completed_at: None,
//!     expiration: EpochSeconds(4_000_000_000),
//!     outcome: Some(r#"{"payment_id": "p-17"}"#.to_owned()),
//!     may_be_refused: false,
//!     key_generation: 0,
//!     kept_steps: Vec::new(),
//! };
//! let key: EffectKey = "/payment_id".parse()?;
//! assert_eq!(key.of(&record).as_deref(), Some("p-17"));
//!
//! let mut tally = Tally::showing(10);
//! tally.add(&record, 2);
//! assert_eq!((tally.double(), tally.double_rate().count), (["payments#charge#0f".to_owned()].as_slice(), 1));
//! # Ok::<_, lambda_idempotency_audit::EffectKeyError>(())
//! ```
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

mod effects;
mod key;
mod pages;
mod rate;
mod record;
mod run;
mod sample;
mod tally;

pub use effects::{Asked, Effects, TableEffects};
pub use key::{EffectKey, EffectKeyError};
pub use lambda_idempotency::in_words as words;
pub use pages::{Item, Page, Place, Row, Segment, page, pages, read, side_by_side};
pub use rate::Rate;
pub use record::{Completed, is_http};
pub use run::{Selection, audit};
pub use sample::Sample;
pub use tally::Tally;

/// The reason why an audit could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The records, or the effects, could not be read.
    #[error("{doing}: {reason}")]
    NotRead {
        /// The read that failed.
        doing: String,
        /// The service's answer.
        reason: String,
    },
    /// The effects were not counted as they were asked for.
    #[error("{0}")]
    Effects(String),
}
