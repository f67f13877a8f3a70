//! `explain`: prints what a delivery would be told now.

use std::num::NonZeroU32;
use std::time::Duration;

use lambda_idempotency::protocol::Rules;
use lambda_idempotency::{EpochMillis, OnCrash, RecordId};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::explanation::Explanation;
use crate::records::find::{Which, find};
use crate::records::open::{Held, held};
use crate::time;

/// The engine's skew margin, unless it is set.
pub(crate) const SKEW_MARGIN: Duration = Duration::from_secs(1);

/// The arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record.
    #[command(flatten)]
    pub which: Which,
    /// The engine's rules.
    #[command(flatten)]
    pub rules: RuleArgs,
    /// Explains for this time instead of now: RFC 3339, or epoch seconds.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub at: Option<EpochMillis>,
    /// Shows the keys that the handler derives for this effect (`claim.derive_key(NAME)`, or a step
    /// of this name; `NAME/undo` is the undo of a saga's step), to look for the effect at its
    /// provider. May be given more than once.
    #[arg(long, value_name = "NAME")]
    pub derive: Vec<String>,
}

/// The engine's rules, as its builder has them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The engine's rules")]
pub struct RuleArgs {
    /// The engine's rule for an attempt that died: `OnCrash` of its builder. Without it, run-again
    /// is assumed.
    #[arg(long, value_parser = crashed, value_name = "run-again|run-again-after=DURATION|interrupt")]
    pub crashed: Option<OnCrash>,
    /// `max_attempts` of its builder.
    #[arg(long, value_name = "NUMBER")]
    pub max_attempts: Option<NonZeroU32>,
    /// `skew_margin` of its builder.
    #[arg(long, default_value = "1s", value_parser = time::duration, value_name = "DURATION")]
    pub skew_margin: Duration,
}

/// Reads what the engine does about an attempt that died.
fn crashed(text: &str) -> Result<OnCrash, String> {
    match (text, text.strip_prefix("run-again-after=")) {
        ("run-again", _) => Ok(OnCrash::RunAgain),
        ("interrupt", _) => Ok(OnCrash::Interrupt),
        (_, Some(pause)) => time::duration(pause).map(OnCrash::RunAgainAfter),
        _ => Err("give `run-again`, `run-again-after=1h`, or `interrupt`".to_owned()),
    }
}

impl RuleArgs {
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            on_crash: self.crashed.unwrap_or_default(),
            max_attempts: self.max_attempts,
            skew_margin: self.skew_margin,
        }
    }
}

/// Prints what a delivery would be told now, by the function that decides in production.
///
/// # Errors
///
/// When the record can't be found or read.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let records = context.records().await?;
    let target = find(&args.which, &records, context).await?;
    let observed = RecordId::observed_in(target.id.as_str());
    if let Some(namespace) = observed.filter(|_| !args.derive.is_empty()) {
        return Err(Failure::usage(format!(
            "this is a record of an engine that only observes, and its id doesn't tell what --derive needs: the id that the \
             key has in the namespace `{namespace}`. Give --namespace {namespace} with --operation and --token, or the id that \
             your code gives the key"
        )));
    }
    let at = match args.at {
        Some(at) => at,
        None => records.now(context).await?,
    };
    let (id, found) = (&target.id, target.found.as_ref());
    let place = &context.global().place();
    let mut explanation = Explanation::of(id, place, found, at, &args.rules.rules());
    if found.is_none() {
        explanation.words.push_str(args.which.or_elsewhere());
    }
    if args.rules.crashed.is_none() {
        explanation.assumes_crashed(id, place, found);
    }
    explanation.derive(id, found, &args.derive);
    if observed.is_some() {
        let words = "; its engine only observes, and runs the handler for each delivery";
        explanation.words.push_str(words);
    }
    // What is open now says nothing of another time.
    if explanation.runs() && args.at.is_none() {
        let held = held(&records, id, found, context).await?;
        match (held, held.words()) {
            (Held::Record, _) if found.is_none() => explanation.is_written(id, place),
            (_, Some(words)) => explanation.is_locked(id, place, words),
            (Held::Unknown(why), None) => explanation.may_be_held(why),
            (_, None) => {}
        }
    }
    context.report(&explanation)?;
    Ok(Exit::if_found(explanation.needs_person))
}
