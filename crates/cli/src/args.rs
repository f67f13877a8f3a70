//! The command line: its flags, its commands, its help.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use lambda_idempotency::Idempotency;
use lambda_idempotency::store::MemoryStore;

use crate::audit;
use crate::doctor;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{finish, is_obeyed};
use crate::plan;
use crate::records;
use crate::schema;
use crate::time;

/// The operator's tool of lambda-idempotency.
///
/// It explains a record by the function that decides in production, ends what waits for an operator,
/// and finds what silently breaks a deployment.
#[derive(Debug, Parser)]
#[command(name = "idempotency", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 fine, 1 records listed, or something needs an operator, 2 usage, 3 the store or a service failed, 4 the record moved"
)]
pub struct Cli {
    /// The flags that all commands share.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The flags that all commands share.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The table of the records.
    #[arg(long, global = true, env = "IDEMPOTENCY_TABLE", value_name = "NAME", value_parser = filled)]
    pub table: Option<String>,
    /// The address of AWS's APIs, instead of AWS's own: DynamoDB Local, an emulator. The SDK's
    /// variables do the same: `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_DYNAMODB`.
    #[arg(long, global = true, value_name = "URL", value_parser = filled)]
    pub endpoint_url: Option<String>,
    /// The profile of the AWS configuration.
    #[arg(long, global = true, value_name = "NAME", value_parser = filled)]
    pub profile: Option<String>,
    /// The AWS region.
    #[arg(long, global = true, value_name = "REGION", value_parser = filled)]
    pub region: Option<String>,
    /// The namespace of the engine that writes the records. What reads all records leaves those of
    /// others out.
    #[arg(
        long,
        global = true,
        env = "IDEMPOTENCY_NAMESPACE",
        value_name = "NAME",
        value_parser = namespace
    )]
    pub namespace: Option<String>,
    /// The records are in PostgreSQL or in Redis, at this URL: `postgres://…`, `redis://…`, `rediss://…`. Of Redis, `--table` names what
    /// stands before the ids. The variable keeps a password out of the list of processes.
    #[arg(
        long,
        global = true,
        env = "IDEMPOTENCY_STORE",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub store: Option<String>,
    /// The layout of the DynamoDB table.
    #[command(flatten)]
    pub layout: Layout,
    /// Prints JSON. `idempotency schema COMMAND` prints its schema.
    #[arg(long, global = true)]
    pub json: bool,
    /// Agrees to one question. Give it twice for two.
    #[arg(long, global = true, action = ArgAction::Count)]
    pub yes: u8,
    /// The time that one request may take, or one run of the audit's command.
    #[arg(long, global = true, default_value = "10s", value_parser = time::duration, value_name = "DURATION")]
    pub timeout: Duration,
}

impl Global {
    /// The flags that lead another command to the same records, each with a blank before it: those
    /// that were given. What a variable gives isn't among them: the other command reads it, too.
    pub(crate) fn place(&self) -> String {
        let Layout {
            partition_key,
            sort_key,
            partition_value,
            spread,
            attribute,
        } = &self.layout;
        let given = |value: &Option<String>, variable: &str| {
            let value = value.clone();
            value.filter(|value| std::env::var(variable).ok().as_ref() != Some(value))
        };
        let store = given(&self.store, "IDEMPOTENCY_STORE").map(|url| {
            let has_password = |(user, _): (&str, &str)| user.matches(':').count() > 1;
            if url.contains("password") || url.rsplit_once('@').is_some_and(has_password) {
                "URL_WITH_PASSWORD".to_owned()
            } else {
                url
            }
        });
        let flags = [
            ("--table", given(&self.table, "IDEMPOTENCY_TABLE")),
            ("--store", store),
            (
                "--partition-key",
                Some(partition_key.clone()).filter(|name| name != "id"),
            ),
            ("--sort-key", sort_key.clone()),
            ("--partition-value", partition_value.clone()),
            ("--spread", spread.map(|spread| spread.to_string())),
        ];
        let attributes = attribute
            .iter()
            .map(|(of, name)| ("--attribute", Some(format!("{of}={name}"))));
        let flags = flags.into_iter().chain(attributes);
        let flags = flags.filter_map(|(name, value)| Some(format!(" {}", flag(name, &value?))));
        self.aws_place() + &flags.collect::<String>()
    }

    /// AWS's own command line, with those of these flags that it has, too.
    pub(crate) fn aws(&self) -> String {
        format!("aws{}", self.aws_place())
    }

    fn aws_place(&self) -> String {
        let flags = [
            ("--endpoint-url", &self.endpoint_url),
            ("--profile", &self.profile),
            ("--region", &self.region),
        ];
        let flags = flags.into_iter();
        let flags =
            flags.filter_map(|(name, value)| Some(format!(" {}", flag(name, value.as_ref()?))));
        flags.collect()
    }
}

/// Quotes a word for the shell, as a string without what a terminal obeys: a report would show that
/// as text, and the command would name another word.
pub(crate) fn quoted(word: &str) -> String {
    if !word.chars().any(is_obeyed) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut text = "$'".to_owned();
    for char in word.chars() {
        match char {
            '\'' | '\\' => text.extend(['\\', char]),
            char if is_obeyed(char) => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
            char => text.push(char),
        }
    }
    text.push('\'');
    text
}

/// A word as it is where the shell takes it so; else quoted.
fn word(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    quoted(word)
}

/// A flag with a value.
pub(crate) fn flag(name: &str, value: &str) -> String {
    let equals = if value.starts_with('-') { "=" } else { " " };
    format!("{name}{equals}{}", word(value))
}

/// The names of a DynamoDB table's keys and attributes, where they aren't the library's own.
#[derive(Clone, Debug, Args)]
pub struct Layout {
    /// The partition key.
    #[arg(long, global = true, default_value = "id", value_name = "NAME", value_parser = filled)]
    pub partition_key: String,
    /// The sort key of a table with two keys; it holds the id.
    #[arg(long, global = true, requires = "partition_value", value_name = "NAME", value_parser = filled)]
    pub sort_key: Option<String>,
    /// The partition key's value in a table with two keys.
    #[arg(long, global = true, requires = "sort_key", value_name = "VALUE", value_parser = filled)]
    pub partition_value: Option<String>,
    /// Over how many partition values the records are spread.
    #[arg(long, global = true, requires = "sort_key", value_name = "NUMBER")]
    pub spread: Option<std::num::NonZeroU16>,
    /// Another name of `status`, `expiration`, `in_progress_expiration`, `data` or `validation`.
    #[arg(long, global = true, value_name = "ATTRIBUTE=NAME", value_parser = renamed)]
    pub attribute: Vec<(String, String)>,
}

impl Layout {
    /// Returns whether the names are the library's own.
    pub(crate) fn is_default(&self) -> bool {
        self.partition_key == "id" && self.sort_key.is_none() && self.attribute.is_empty()
    }
}

/// Takes a text that isn't empty: a script's variable that isn't set is no name.
pub(crate) fn filled(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty: leave it out, or unset its variable".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks a namespace as the engine does.
fn namespace(text: &str) -> Result<String, String> {
    let engine = Idempotency::builder(MemoryStore::new()).disabled(false);
    let built = engine.namespace(filled(text)?).build();
    built
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

fn renamed(text: &str) -> Result<(String, String), String> {
    const KNOWN: [&str; 5] = [
        "status",
        "expiration",
        "in_progress_expiration",
        "data",
        "validation",
    ];
    match text.split_once('=') {
        Some((of, name)) if KNOWN.contains(&of) && !name.is_empty() => {
            Ok((of.to_owned(), name.to_owned()))
        }
        _ => Err(format!(
            "write ATTRIBUTE=NAME, with one of {}",
            KNOWN.join(", ")
        )),
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Shows a record.
    Get(records::find::Which),
    /// Prints what a delivery would be told now, and what can safely be done.
    Explain(records::explain::Args),
    /// Finds records by what became of them.
    List(records::list::Args),
    /// Ends an attempt's lease, so that the next delivery runs.
    Release(records::OrderArgs),
    /// Stores a success, so that duplicates get it and nothing runs again.
    Complete(records::complete::Args),
    /// Stores a failure, so that duplicates get it and nothing runs again.
    Fail(records::fail::Args),
    /// Settles a step that waits for an operator: its effect happened, or not.
    SettleStep(records::settle_step::Args),
    /// Erases a stored outcome and the results of steps. Duplicates still don't run.
    Redact(records::OrderArgs),
    /// Gives the keys of final records back, on purpose: the next delivery of each is its next attempt.
    Rerun(records::rerun::Args),
    /// Holds a deployment to what silently breaks it.
    Doctor(doctor::Args),
    /// The same rules for what is not deployed yet, and what protection costs.
    Plan(plan::Args),
    /// Compares completed records with the effects that they stand for.
    Audit(audit::Args),
    /// Prints the JSON schema of what commands print with `--json`.
    Schema(SchemaArgs),
    /// Prints a shell's completions.
    Completions(CompletionsArgs),
    /// Writes the manual pages.
    Man(ManArgs),
}

/// The arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The command. Left out, the schema takes what any command prints.
    pub command: Option<String>,
}

/// The arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// The arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder to write them to, such as /usr/local/share/man/man1.
    pub folder: PathBuf,
}

pub(crate) fn print_schema(args: &SchemaArgs) -> Result<Exit, Failure> {
    let schema = match &args.command {
        None => schema::of_all(),
        Some(command) => schema::of(command).ok_or_else(|| {
            let known = schema::COMMANDS.map(|(command, _)| command).join(", ");
            Failure::usage(format!("`{command}` prints no JSON; these do: {known}"))
        })?,
    };
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    print(format!("{text}\n").as_bytes())
}

fn print(text: &[u8]) -> Result<Exit, Failure> {
    let mut out = std::io::stdout().lock();
    finish(out.write_all(text).and_then(|()| out.flush()))?;
    Ok(Exit::Fine)
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "idempotency", &mut script);
    print(&script)
}

pub(crate) fn man_pages(args: &ManArgs) -> Result<Exit, Failure> {
    clap_mangen::generate_to(Cli::command(), &args.folder)
        .map_err(|error| Failure::file(&args.folder, error))?;
    Ok(Exit::Fine)
}

/// Prints what clap says of a command line that it can't read, or of `--help`.
pub(crate) fn explain_usage(error: &clap::Error) -> Exit {
    // Nobody is left to tell where this can't be written.
    let _ = error.print();
    if error.use_stderr() {
        Exit::Usage
    } else {
        Exit::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_place_is_told_by_each_flag_that_was_given() {
        let flags = [
            ("--endpoint-url=http://a", " --endpoint-url 'http://a'"),
            ("--profile=-ops", " --profile='-ops'"),
            ("--region=eu-north-1", " --region eu-north-1"),
            ("--table=records", " --table records"),
            ("--partition-key=pk", " --partition-key pk"),
            ("--sort-key=sk", " --sort-key sk"),
            ("--partition-value=it's", r" --partition-value 'it'\''s'"),
            ("--spread=8", " --spread 8"),
            ("--attribute=data=outcome", " --attribute 'data=outcome'"),
        ];
        let words = ["idempotency", "list", "--namespace=payments", "--json"];
        let given = words.into_iter().chain(flags.map(|(given, _)| given));
        let cli = Cli::parse_from(given);
        assert_eq!(cli.global.place(), flags.map(|(_, told)| told).concat());
    }

    #[test]
    fn a_place_is_told_without_its_password() {
        let secret = "URL_WITH_PASSWORD";
        for (url, told) in [
            ("postgres://op@db:5432/shop", "'postgres://op@db:5432/shop'"),
            ("postgres://op:pass@db/shop", secret),
            ("postgres://db/shop?user=op&password=pass", secret),
            ("redis://cache:6379/1", "'redis://cache:6379/1'"),
            ("rediss://:pass@cache", secret),
        ] {
            let cli = Cli::parse_from(["idempotency", "list", "--store", url]);
            assert_eq!(cli.global.place(), format!(" --store {told}"));
        }
    }
}
