//! `doctor`: holds a deployment to what silently breaks it, by AWS's own APIs.

use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::files;

mod collect;
pub(crate) mod facts;
mod finding;
mod lock;
pub(crate) mod rules;

pub use finding::{Finding, NotChecked, Report, Severity};

use facts::Settings;

/// The arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A function that uses the table; repeat it for more. Without one, the table alone is looked at.
    #[arg(long, value_name = "NAME")]
    pub function: Vec<String>,
    /// It is invoked asynchronously, too: by SNS, EventBridge, S3, or `Event` invocations.
    #[arg(long, requires = "function")]
    pub asynchronous: bool,
    /// Its adapter: the permissions that it needs follow from it.
    #[arg(long, requires = "function", value_enum, default_value = "batch")]
    pub adapter: Adapter,
    /// The `Cargo.lock` of the functions.
    #[arg(long, value_name = "FILE")]
    pub cargo_lock: Option<PathBuf>,
    /// The code's settings.
    #[command(flatten)]
    pub settings: Settings,
    /// A finding that is accepted; repeat it for more.
    #[arg(long, value_name = "ID", value_parser = rule)]
    pub ignore: Vec<String>,
}

/// An adapter of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Adapter {
    /// SQS, Kinesis, DynamoDB Streams, Kafka and the other batches.
    Batch,
    /// HTTP.
    Http,
    /// Direct and asynchronous invocations.
    Invoke,
}

pub(crate) fn rule(id: &str) -> Result<String, String> {
    let known: Vec<_> = rules::RULES.iter().map(|(id, _)| *id).collect();
    if known.contains(&id) {
        return Ok(id.to_owned());
    }
    Err(format!(
        "there is no such rule; these are: {}",
        known.join(", ")
    ))
}

/// Holds a deployment to the rules.
///
/// # Errors
///
/// When the table or a function is not there, or nothing at all can be asked.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    context.without_store("`doctor` looks at a DynamoDB table")?;
    let second_tls = args.cargo_lock.as_deref().map(read_lock).transpose()?;
    let (mut deployment, not_checked) = collect::deployment(args, context).await?;
    deployment.second_tls = second_tls;
    let mut report = rules::check(&deployment, &args.ignore);
    report.not_checked = not_checked;
    context.report(&report)?;
    Ok(Exit::if_found(!report.findings.is_empty()))
}

fn read_lock(path: &Path) -> Result<Vec<String>, Failure> {
    lock::second_tls(&files::text(path)?)
        .map_err(|error| Failure::file(path, std::io::Error::other(error)))
}
