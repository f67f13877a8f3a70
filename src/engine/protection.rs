//! The protection of a run, whose kind decides how the run ends.

use tracing::Span;

use crate::engine::Request;
use crate::engine::claim::Hold;
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::{Found, Owner};

/// The record that protects a run, if there is one.
#[derive(Debug)]
pub(super) enum Protection {
    /// A claim in the store.
    Claimed(Box<Request>, Hold),
    /// The record that the run's own transaction will write.
    Claimless(Box<Request>, Box<Unclaimed>),
    /// A shadow claim, which only observes; `None` where it was not to be had.
    Shadow(Option<Box<Shadow>>),
    /// Nothing.
    None,
}

/// One attempt without a claim.
#[derive(Debug)]
pub(super) struct Unclaimed {
    pub(super) owner: Owner,
    /// The time when the attempt must be done.
    pub(super) until: EpochMillis,
    pub(super) started_at: EpochMillis,
    /// The record that a hinted redelivery read.
    pub(super) found: Option<Found>,
}

/// A claim on a shadow record.
#[derive(Debug)]
pub(super) struct Shadow {
    pub(super) request: Request,
    pub(super) hold: Hold,
    pub(super) span: Span,
}
