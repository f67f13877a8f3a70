//! `release`: ends an attempt's lease, so that the next delivery runs.

use lambda_idempotency::protocol::record::Status;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::operate::Ending;
use crate::records::order::{OrderArgs, give};

/// The arguments of `release`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record, and why.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// Gives the key of an attempt that died, or failed for good, back. Right where its effect did not
/// happen.
///
/// # Errors
///
/// When the record is completed or released already, is live, or moved.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    give(&args.order, "release", context, |record, _| {
        if record.is_released() {
            return Err(
                "the record is released already: the next delivery runs, or a step of it waits, which `settle-step` ends; `explain` says which".to_owned(),
            );
        }
        if record.status == Status::Completed {
            return Err(
                "the record is completed: its effect has happened, and a release would let it happen again".to_owned(),
            );
        }
        Ok(Ending::Released)
    })
    .await
}
