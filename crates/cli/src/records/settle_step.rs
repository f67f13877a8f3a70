//! `settle-step`: settles a step that waits for an operator: its effect happened, or not.

use lambda_idempotency::protocol::journal::{MAX_STEP_RESULT_BYTES, StepState};
use lambda_idempotency::protocol::record::Record;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::complete::json;
use crate::records::operate::{Ending, handlers_steps};
use crate::records::order::{OrderArgs, give, not_final};

/// The arguments of `settle-step`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record, and why.
    #[command(flatten)]
    pub order: OrderArgs,
    /// The step, and its fate.
    #[command(flatten)]
    pub step: StepArgs,
    /// The step's result, as JSON that the handler understands: `null` where it has none.
    #[arg(
        long,
        required_unless_present = "failed",
        conflicts_with = "failed",
        allow_negative_numbers = true,
        value_name = "JSON"
    )]
    pub result: Option<String>,
}

/// The step, and its fate.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct StepArgs {
    /// The step's effect happened: the handler gets the result, and doesn't fire it.
    #[arg(long, value_name = "STEP")]
    pub confirmed: Option<String>,
    /// The step's effect did not happen: the next delivery fires it, unless its saga is being undone; an undo,
    /// where the handler names its step.
    #[arg(long, value_name = "STEP")]
    pub failed: Option<String>,
}

/// Settles a step that was pending when its attempt died, as one whose effect happened or didn't, and
/// gives the key back.
///
/// # Errors
///
/// When the step isn't pending, the record is final, is live, or moved.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let (step, word, state) = match (&args.step.confirmed, &args.step.failed) {
        (Some(step), _) => (step, "confirmed", confirmed(args.result.as_deref())?),
        (None, Some(step)) => (step, "failed", StepState::Failed),
        (None, None) => {
            return Err(Failure::usage(
                "name the step: --confirmed STEP, or --failed STEP",
            ));
        }
    };
    let word = format!("settle-step {step} {word}");
    let ending = |_: &Record, _| Ending::StepSettled {
        step: step.clone(),
        state,
    };
    give(&args.order, &word, context, ending, |record| {
        not_final(record)?;
        let known: Vec<&str> = handlers_steps(record).map(|(name, _)| name).collect();
        match record.journal.get(step).map(|entry| &entry.state) {
            Some(StepState::Pending) => Ok(()),
            Some(_) => Err(format!(
                "the step `{step}` isn't pending: nothing waits for you"
            )),
            None => Err(format!("the record has no step `{step}`, but {known:?}")),
        }
    })
    .await
}

fn confirmed(result: Option<&str>) -> Result<StepState, Failure> {
    let text = json(result.unwrap_or("null"))?;
    if text.len() > MAX_STEP_RESULT_BYTES {
        return Err(Failure::usage(format!(
            "the result has {} bytes, and a step takes {MAX_STEP_RESULT_BYTES}",
            text.len()
        )));
    }
    Ok(StepState::Confirmed(Ok(text)))
}
