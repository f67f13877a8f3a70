//! `redact`: erases an outcome and the results of steps. Duplicates still don't run.

use lambda_idempotency::protocol::record::{Record, Status};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::operate::{Ending, is_redacted};
use crate::records::order::{OrderArgs, give};

/// Erases a stored outcome, also one in its own item, and the results of steps. Duplicates are
/// told that it was erased, and don't run. It names and leaves an object in a bucket, and any
/// outcome that an earlier attempt may have kept.
///
/// # Errors
///
/// When the record has no outcome, or moved.
pub async fn run(args: &OrderArgs, context: &Context) -> Result<Exit, Failure> {
    let ending = |_: &Record, _| Ending::Redacted;
    give(args, "redact", context, ending, |record| {
        if record.status == Status::InProgress {
            return Err("the record has no outcome: complete it, or fail it".to_owned());
        }
        if is_redacted(record) {
            return Err("the outcome was erased already".to_owned());
        }
        Ok(())
    })
    .await
}
