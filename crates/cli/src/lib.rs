#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod args;
mod ask;
pub mod audit;
mod clock;
mod connect;
mod context;
pub mod doctor;
pub mod exit;
mod failure;
mod files;
mod output;
pub mod plan;
pub mod records;
mod redis;
pub mod schema;
mod time;

use std::ffi::OsString;

use clap::Parser;

pub use args::{Cli, Command, Global};
pub use context::Context;
pub use exit::Exit;
pub use failure::Failure;
use output::{ALARM, note};

/// Runs the command line, as `main` does: prints to the standard output, and a failure to the
/// standard error.
pub async fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return args::explain_usage(&error),
    };
    let context = Context::new(cli.global);
    match dispatch(cli.command, &context).await {
        Ok(exit) => exit,
        // The reader of the output has read enough of it.
        Err(Failure::BrokenPipe) => Exit::Fine,
        Err(failure) => {
            note(format_args!("{ALARM}error{ALARM:#}: {failure}"));
            failure.exit()
        }
    }
}

async fn dispatch(command: Command, context: &Context) -> Result<Exit, Failure> {
    match command {
        Command::Get(which) => records::get::run(&which, context).await,
        Command::Explain(args) => records::explain::run(&args, context).await,
        Command::List(args) => records::list::run(&args, context).await,
        Command::Release(args) => records::release::run(&args, context).await,
        Command::Complete(args) => records::complete::run(&args, context).await,
        Command::Fail(args) => records::fail::run(&args, context).await,
        Command::SettleStep(args) => records::settle_step::run(&args, context).await,
        Command::Redact(args) => records::redact::run(&args, context).await,
        Command::Rerun(args) => records::rerun::run(&args, context).await,
        Command::Doctor(args) => doctor::run(&args, context).await,
        Command::Plan(args) => plan::run(&args, context),
        Command::Audit(args) => audit::run(&args, context).await,
        Command::Schema(args) => args::print_schema(&args),
        Command::Completions(args) => args::completions(&args),
        Command::Man(args) => args::man_pages(&args),
    }
}
