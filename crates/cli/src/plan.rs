//! `plan`: the rules of `doctor`, for a template or for settings that are not deployed yet, and what
//! protection costs.

use std::path::PathBuf;
use std::time::Duration;

use crate::context::Context;
use crate::doctor::facts::{Deployment, Settings};
use crate::doctor::{rule, rules};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::time;

mod cost;
mod intrinsic;
mod report;
mod settings;
mod template;
mod yaml;

pub use cost::{Cost, CostArgs};
pub use report::{Report, Suggestion};

/// The arguments of `plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A SAM or `CloudFormation` template, in YAML or JSON. Nested templates are read, where they are
    /// files. A function's `Metadata: { Idempotency: { RetentionDays: 56 } }` says what its code sets, and
    /// goes before `--retention`.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// A parameter of the template, where its default isn't meant; repeat it for more.
    #[arg(
        long,
        requires = "template",
        conflicts_with = "function_timeout",
        value_name = "NAME=VALUE",
        value_parser = parameter
    )]
    pub parameter: Vec<(String, String)>,
    /// A function of the template, by its logical name; repeat it for more. Without one, all that have
    /// the variable `IDEMPOTENCY_TABLE` are looked at.
    #[arg(
        long,
        requires = "template",
        conflicts_with = "function_timeout",
        value_name = "NAME"
    )]
    pub function: Vec<String>,
    /// The code's settings.
    #[command(flatten)]
    pub settings: Settings,
    /// The settings of a queue's worker, where there is no template.
    #[command(flatten)]
    pub queue: QueueArgs,
    /// The requests and the price that the cost is computed from.
    #[command(flatten)]
    pub cost: CostArgs,
    /// A finding that is accepted; repeat it for more.
    #[arg(long, value_name = "ID", value_parser = rule)]
    pub ignore: Vec<String>,
}

/// The settings of a queue's worker.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A queue's worker, without a template")]
#[group(requires = "function_timeout", conflicts_with = "template")]
pub struct QueueArgs {
    /// The function's timeout. It makes the plan one of a queue's worker.
    #[arg(long, value_parser = time::duration, value_name = "DURATION")]
    pub function_timeout: Option<Duration>,
    /// The mapping's batch window.
    #[arg(long, default_value = "0s", value_parser = time::duration, value_name = "DURATION")]
    pub window: Duration,
    /// The queue is a FIFO queue.
    #[arg(long)]
    pub fifo: bool,
    /// The queue's visibility timeout.
    #[arg(long, value_parser = time::duration, value_name = "DURATION")]
    pub visibility: Option<Duration>,
    /// The time for which the queue keeps messages.
    #[arg(long, default_value = "4days", value_parser = time::duration, value_name = "DURATION")]
    pub queue_retention: Duration,
    /// The time for which the dead-letter queue keeps messages.
    #[arg(long, default_value = "14days", value_parser = time::duration, value_name = "DURATION")]
    pub dead_letter_retention: Duration,
    /// The number of receives after which a message goes to the dead-letter queue.
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    pub max_receive_count: u32,
    /// The function's reserved concurrency.
    #[arg(long, value_name = "NUMBER")]
    pub reserved_concurrency: Option<u32>,
    /// The mapping's maximum concurrency.
    #[arg(long, value_name = "NUMBER")]
    pub maximum_concurrency: Option<u32>,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Applies the rules to what is not deployed yet, and says what protection costs.
///
/// # Errors
///
/// When nothing is given to plan for, or the template can't be read.
pub fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    if args.template.is_none()
        && args.queue.function_timeout.is_none()
        && args.cost.requests.is_none()
    {
        return Err(Failure::usage(
            "say what is planned: --template FILE, --function-timeout DURATION of a queue's worker, or --requests NUMBER for the cost",
        ));
    }
    let (functions, tables, not_read) = match &args.template {
        Some(path) => template::read(
            path,
            &args.parameter,
            &args.function,
            &context.global().layout,
        )?,
        None => (
            settings::functions(&args.queue).into_iter().collect(),
            Vec::new(),
            Vec::new(),
        ),
    };
    let deployment = Deployment {
        aws: "aws".to_owned(),
        tables,
        functions,
        settings: args.settings.clone(),
        ..Deployment::default()
    };
    let mut check = rules::check(&deployment, &args.ignore);
    for finding in &mut check.findings {
        // No command changes what is not deployed. Words may stand behind it.
        if finding.fix.starts_with("aws ") {
            let words = finding.fix.lines().last();
            let words = words.filter(|line| !line.starts_with("aws "));
            finding.fix = words.unwrap_or_default().to_owned();
        }
    }
    let report = Report {
        check,
        suggestions: settings::suggestions(&deployment),
        not_read,
        cost: args.cost.of_month(),
    };
    context.report(&report)?;
    Ok(Exit::if_found(!report.check.findings.is_empty()))
}
