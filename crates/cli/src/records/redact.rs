//! `redact`: replaces a stored outcome by a marker. Duplicates still don't run.

use lambda_idempotency::protocol::record::{Omission, Status, StoredOutcome};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::operate::Ending;
use crate::records::order::{OrderArgs, give};

/// The arguments of `redact`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record, and why.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// Erases a stored outcome. Duplicates are told that it was erased, and don't run. What was kept
/// beside the record, in an item or an object of its own, expires with it.
///
/// # Errors
///
/// When the record has no outcome, or moved.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    give(&args.order, "redact", context, |record, _| {
        if record.status == Status::InProgress {
            return Err("the record has no outcome: complete it, or fail it".to_owned());
        }
        let erased = StoredOutcome::Omitted(Omission::Redacted);
        if record.outcome.as_ref() == Some(&erased) {
            return Err("the outcome was erased already".to_owned());
        }
        Ok(Ending::Final {
            status: record.status,
            outcome: erased,
            expiration: record.expiration,
        })
    })
    .await
}
