//! `release`: ends an attempt's lease, so that the next delivery runs.

use lambda_idempotency::protocol::record::{Record, Status};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::operate::{Ending, gives_results, is_compensated};
use crate::records::order::{OrderArgs, give};

/// Gives the key of an attempt that died, or failed permanently, back. Right where its effect did not
/// happen.
///
/// # Errors
///
/// When the record is completed or released already, is live, or moved.
pub async fn run(args: &OrderArgs, context: &Context) -> Result<Exit, Failure> {
    let ending = |_: &Record, _| Ending::Released;
    give(args, "release", context, ending, |record| {
        if record.is_released() {
            return Err(
                "the record is released already: the next delivery runs, or a step of it waits, which `settle-step` ends; `explain` says which".to_owned(),
            );
        }
        if record.status == Status::Completed {
            return Err(
                "the record is completed: its effect has happened, and a release would let it happen again. `rerun` does that on purpose".to_owned(),
            );
        }
        if is_compensated(record) {
            return Err(
                "its saga was undone, and the next delivery would store its failure again: `rerun --keys new --steps repeat` begins the saga anew".to_owned(),
            );
        }
        gives_results(record)
    })
    .await
}
