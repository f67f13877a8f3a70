//! `audit`: compares completed records with the effects that they stand for.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use lambda_idempotency::EpochMillis;
use lambda_idempotency_audit::{
    AuditError, EffectKey, Rate, Selection, TableEffects, Tally, audit,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::{Context, now};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{ALARM, DIM, GOOD, HEADING, NL, counted, note};
use crate::time;

mod child;
mod export;
mod source;

use child::ChildEffects;

/// The arguments of `audit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The effects.
    #[command(flatten)]
    pub effects: EffectArgs,
    /// The name of a record's effect: id, hash, derived:NAME, derived-uuid:NAME, or a JSON pointer
    /// into the outcome, such as `/payment_id`.
    #[arg(long, value_name = "KEY", value_parser = |text: &str| text.parse::<EffectKey>())]
    pub effect_key: EffectKey,
    /// Of this operation alone.
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// Completed at this time or later.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub since: Option<EpochMillis>,
    /// Completed longer ago than this: an effect may take a while to be seen.
    #[arg(long, default_value = "5min", value_parser = time::duration, value_name = "DURATION")]
    pub settled_for: Duration,
    /// Compares so many records, drawn at random, instead of all.
    #[arg(long, value_name = "NUMBER")]
    pub sample: Option<usize>,
    /// Draws the same sample again.
    #[arg(long, requires = "sample", value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Reads the records from an export of the table instead: the folder of the export, or its place
    /// in S3, `s3://BUCKET/PREFIX/AWSDynamoDB/EXPORT-ID`.
    #[arg(long, value_name = "PLACE")]
    pub export: Option<String>,
    /// The number of ids to show of each kind.
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    pub show: usize,
}

/// The effects.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "What is an effect")]
#[group(required = true, multiple = true)]
pub struct EffectArgs {
    /// An item of this DynamoDB table.
    #[arg(
        long,
        requires = "effects_attribute",
        conflicts_with = "effects_command",
        value_name = "TABLE"
    )]
    pub effects_table: Option<String>,
    /// The attribute of its items that holds the name. Where it is the partition key of the table or
    /// of an index, effects are queried one by one, else the whole table is read.
    #[arg(
        long,
        requires = "effects_table",
        conflicts_with = "effects_command",
        value_name = "NAME"
    )]
    pub effects_attribute: Option<String>,
    /// The effects that this command counts, run by the shell: it reads a line of JSON for each of
    /// up to 500 records, `{"id", "key", "completed_at", "outcome"}`, and prints one for each,
    /// `{"id", "effects"}`. Each run may take as long as --timeout says.
    #[arg(long, value_name = "COMMAND")]
    pub effects_command: Option<String>,
}

/// The records of one kind: without an effect, or with more than one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Found {
    /// The number of records.
    pub count: u64,
    /// The rate among the records that were compared.
    pub rate: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end of the 95 % interval.
    pub high: f64,
    /// The ids of some of them.
    pub ids: Vec<String>,
}

impl Found {
    fn of(rate: Rate, ids: &[String]) -> Self {
        Self {
            count: rate.count,
            rate: rate.rate,
            low: rate.low,
            high: rate.high,
            ids: ids.to_vec(),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let style = if self.count > 0 { ALARM } else { GOOD };
        let Self {
            count,
            rate,
            low,
            high,
            ids,
        } = self;
        let percent = |rate: &f64| rate * 100.0;
        write!(
            f,
            "{NL}{style}{count}{style:#} {name}: {:.3} % (95 %: {:.3} to {:.3})",
            percent(rate),
            percent(low),
            percent(high)
        )?;
        ids.iter().try_for_each(|id| write!(f, "{NL}  {id}"))
    }
}

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub struct Report {
    /// The number of records that were compared.
    pub checked: u64,
    /// The number of records that don't tell which effect is theirs, or whether they should have one.
    pub not_judged: u64,
    /// Whether too little was compared to know that all is well: less than nine records of ten.
    pub blind: bool,
    /// Whether the records are a sample.
    pub sampled: bool,
    /// Records without an effect.
    pub missing: Found,
    /// Records with more than one effect.
    pub double: Found,
}

impl Report {
    fn of(tally: &Tally, sampled: bool) -> Self {
        Self {
            checked: tally.checked(),
            not_judged: tally.not_judged(),
            blind: tally.is_blind(),
            sampled,
            missing: Found::of(tally.missing_rate(), tally.missing()),
            double: Found::of(tally.double_rate(), tally.double()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sample = if self.sampled { ", a sample," } else { "" };
        write!(
            f,
            "{HEADING}{}{sample} compared with their effects{HEADING:#}",
            counted(self.checked, "record")
        )?;
        self.missing.write(f, "missing effects")?;
        self.double.write(f, "double effects")?;
        if self.checked == 0 {
            let words = "nothing was compared: look at --table, --namespace, --operation, --since and --effect-key";
            write!(f, "{NL}{ALARM}{words}{ALARM:#}")?;
        }
        if self.not_judged > 0 {
            let style = if self.blind { ALARM } else { DIM };
            let words = "records don't tell which effect is theirs, or their time or status. Powertools' never do; of others, see --effect-key";
            write!(f, "{NL}{style}{} {words}{style:#}", self.not_judged)?;
        }
        Ok(())
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::NotRead { doing, reason } => Self::Service { doing, reason },
            other => Self::Service {
                doing: "count effects".to_owned(),
                reason: other.to_string(),
            },
        }
    }
}

/// Compares completed records with the effects that they stand for.
///
/// # Errors
///
/// When the records can't be read, or the effects can't be counted.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let seed = args
        .seed
        .unwrap_or_else(|| u64::from_le_bytes(now().0.to_le_bytes()));
    let (records, at) = source::open(args, context).await?;
    let selection = Selection {
        namespace: context.global().namespace.clone(),
        operation: args.operation.clone(),
        since: args.since,
        before: at - args.settled_for,
        now: at,
        sample: args.sample.map(|size| (size, seed)),
        shown: args.show,
    };
    let bar = bar();
    let records = records.inspect(|page| {
        bar.inc(page.as_ref().map_or(0, |page| page.len() as u64));
    });
    let key = &args.effect_key;
    let tally = match (&args.effects.effects_table, &args.effects.effects_command) {
        (Some(table), _) => {
            let attribute = args
                .effects
                .effects_attribute
                .as_deref()
                .unwrap_or_default();
            let client = aws_sdk_dynamodb::Client::new(&context.aws().await?);
            let mut effects = TableEffects::open(client, table, attribute).await?;
            audit(records, &mut effects, key, &selection).await?
        }
        (None, Some(command)) => {
            let mut effects = ChildEffects::new(command, context.global().timeout);
            tokio::select! {
                biased;
                // Also between two runs of the command. One that runs is stopped with the audit.
                Ok(()) = tokio::signal::ctrl_c() => return Err(interrupted()),
                tally = audit(records, &mut effects, key, &selection) => tally?,
            }
        }
        (None, None) => {
            return Err(Failure::usage(
                "say what is an effect: --effects-table or --effects-command",
            ));
        }
    };
    bar.finish_and_clear();
    context.note_skipped();
    if args.sample.is_some() {
        note(format_args!("the same sample again: --seed {seed}"));
    }
    context.report(&Report::of(&tally, args.sample.is_some()))?;
    Ok(Exit::if_found(tally.found_any() || tally.is_blind()))
}

fn interrupted() -> Failure {
    Failure::Service {
        doing: "compare records with their effects".to_owned(),
        reason: "the audit was interrupted".to_owned(),
    }
}

/// Shown on a terminal alone.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} records");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
