//! `fail`: stores a failure, so that duplicates get it and nothing runs again.

use std::time::Duration;

use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::record::{Record, Status, StoredOutcome};
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::operate::Ending;
use crate::records::order::{OrderArgs, give, not_final};
use crate::time;

/// The arguments of `fail`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record, and why.
    #[command(flatten)]
    pub order: OrderArgs,
    /// The words of the failure. Duplicates get them.
    #[arg(long, value_name = "WORDS", value_parser = message)]
    pub message: String,
    /// The type of the failure, as the handler's error has it.
    #[arg(long, default_value = "operator", value_name = "TYPE")]
    pub kind: String,
    /// The time for which the failure is kept, at least.
    #[arg(long, default_value = "1day", value_parser = time::duration, value_name = "DURATION")]
    pub keep: Duration,
}

/// As a record keeps what a handler failed with permanently: so many characters of its words.
const MOST_CHARS: usize = 1_000;

fn message(text: &str) -> Result<String, String> {
    let chars = text.chars().count();
    if chars > MOST_CHARS {
        return Err(format!(
            "it has {chars} characters, and a record keeps {MOST_CHARS}"
        ));
    }
    Ok(text.to_owned())
}

/// Stores a failure. Right where the effect did not happen, and must not any more.
///
/// # Errors
///
/// When the record is final, is live, or moved.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let failure = json!({ "kind": args.kind, "message": args.message }).to_string();
    let ending = |_: &Record, now: EpochMillis| Ending::Final {
        status: Status::Failed,
        outcome: StoredOutcome::Inline(failure),
        expiration: (now + args.keep).ceil_seconds(),
    };
    give(&args.order, "fail", context, ending, not_final).await
}
