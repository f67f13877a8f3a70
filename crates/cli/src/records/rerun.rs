//! `rerun`: gives the keys of final records back, on purpose.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use lambda_idempotency::protocol::journal::{StepState, UNDO};
use lambda_idempotency::protocol::record::{Found, Record, Status};
use lambda_idempotency::{EpochMillis, RecordId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::args::filled;
use crate::ask::agree;
use crate::connect::{Place, Records};
use crate::context::{Context, now_behind};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::files;
use crate::output::{ALARM, GOOD, counted, note};
use crate::records::acts::acts;
use crate::records::explain::SKEW_MARGIN;
use crate::records::find::{Which, needed};
use crate::records::list::is_of_operation;
use crate::records::open::held;
use crate::records::operate::{
    Ending, Order, carry_out, gives_results, handlers_steps, is_compensated, is_half_done,
    pending_steps, was_ended_half_done,
};
use crate::records::order::{OrderArgs, WhyArgs, give};
use crate::records::scan::{Fate, Progress, bar, scan};
use crate::records::search::cost;
use crate::records::view::State;
use crate::time;

pub(super) const WORD: &str = "rerun";
/// The most bytes of an operation's name that no longer name has in its ids: they are cut at 255 bytes, or
/// where the character begins that goes beyond.
const MOST_BYTES: usize = 251;

/// The arguments of `rerun`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The records.
    #[command(flatten)]
    pub which: WhichArgs,
    /// The reason, and the operator's name.
    #[command(flatten)]
    pub why: WhyArgs,
    /// The fate of confirmed steps. It must be said where a record has one. With new keys a pending one fires
    /// by `repeat` alone.
    #[arg(long, value_enum)]
    pub steps: Option<Steps>,
    /// The keys that the handler derives from now on. It must be said.
    #[arg(long, value_enum)]
    pub keys: Option<Keys>,
    /// Shows what would be done, and writes nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// The fate of the confirmed steps of a record that runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Steps {
    /// They are skipped: the handler gets their results.
    Keep,
    /// They fire again.
    Repeat,
}

/// The keys that the handler derives from now on: of `claim.derive_key`, `derive_uuid` and `event_id`,
/// and those that its steps are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Keys {
    /// Other ones: a provider takes the effect for a new one, and what is created gets another id.
    New,
    /// Those that it had: a provider that honours them may answer with the first effect, and a
    /// transaction that creates something under one is refused.
    Same,
}

/// The error where `--keys` is missing.
const WHICH_KEYS: &str = "say which keys the handler derives from now on (`claim.derive_key`, `derive_uuid`, `event_id`, those of steps): \
     --keys new, and a provider takes the effect for a new one, and what is created gets another id; \
     --keys same, and a provider that honours keys may answer with the first effect, and a transaction that creates something under one is refused";

/// The records that are to run again: one, those of a list, or those of a filter.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Which records")]
pub struct WhichArgs {
    /// The record's id, as the table has it.
    #[arg(
        conflicts_with_all = ["token", "scope", "from", "operation", "completed_before"],
        required_unless_present_any = ["token", "from", "completed_since"]
    )]
    pub id: Option<String>,
    /// The token of a key.
    #[arg(long, requires = "operation", value_name = "TOKEN")]
    pub token: Option<String>,
    /// The scope of that key: the tenant.
    #[arg(long, requires = "token", value_name = "SCOPE")]
    pub scope: Option<String>,
    /// A file with an id on each line, or with what `list --json` prints.
    #[arg(
        long,
        conflicts_with_all = ["token", "scope", "operation", "completed_before"],
        value_name = "FILE"
    )]
    pub from: Option<PathBuf>,
    /// The operation of the key, or of all records that are to run again.
    #[arg(long, value_name = "NAME", value_parser = filled)]
    pub operation: Option<String>,
    /// All records of the operation that were completed at this time or later. They are counted first. A
    /// permanent failure is none: it runs again by its id, or by --from.
    #[arg(
        long,
        requires_all = ["operation", "completed_before"],
        conflicts_with_all = ["id", "token", "scope", "from"],
        value_name = "TIME",
        value_parser = time::parse
    )]
    pub completed_since: Option<EpochMillis>,
    /// And before this time.
    #[arg(
        long,
        requires = "completed_since",
        conflicts_with = "token",
        value_name = "TIME",
        value_parser = time::parse
    )]
    pub completed_before: Option<EpochMillis>,
}

/// The rerun of a record of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Rerun")]
pub struct Line {
    /// The id, as the table has it.
    pub id: String,
    /// Its result.
    pub done: Done,
    /// The reason why it was left alone, or the time at which it was done before.
    pub words: Option<String>,
}

/// The result of the rerun of a record of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// Its next delivery runs, as its next attempt.
    Given,
    /// The same, if it were no dry run.
    WouldBeGiven,
    /// It was given back before, for the same reason, perhaps by a command that was interrupted; or
    /// for another one, and no attempt has left a trace since.
    Before,
    /// It was left alone.
    Left,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (style, word) = match self.done {
            Done::Given => (GOOD, "rerun"),
            Done::WouldBeGiven => (GOOD, "would rerun"),
            Done::Before => (GOOD, "done before"),
            Done::Left => (ALARM, "left alone"),
        };
        write!(f, "{style}{word:<11}{style:#}  {}", self.id)?;
        match &self.words {
            Some(words) => write!(f, "  ({words})"),
            None => Ok(()),
        }
    }
}

/// Gives the key of a record that is final back, so that its next delivery is its next attempt.
///
/// The record keeps the reason, and the same reason gives the key back once: the command may be
/// given again until all is done. A key under which no attempt has left a trace since is not given
/// back again, whatever the reason.
///
/// # Errors
///
/// When a record isn't final, or moved; when the store fails.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    if args.keys.is_none() {
        return Err(Failure::usage(WHICH_KEYS));
    }
    let WhichArgs {
        id,
        token,
        scope,
        from,
        operation,
        ..
    } = &args.which;
    if id.is_some() || token.is_some() {
        let order = OrderArgs {
            which: Which {
                id: id.clone(),
                operation: operation.clone(),
                token: token.clone(),
                scope: scope.clone(),
                hash: None,
            },
            why: args.why.clone(),
            dry_run: args.dry_run,
            while_live: false,
        };
        let ending = |_: &Record, _| args.ending();
        let check = |record: &Record| args.check(record);
        return give(&order, WORD, context, ending, check).await;
    }
    if args.which.times().is_some_and(|times| times.is_empty()) {
        return Err(Failure::usage(
            "give --completed-before a later time than --completed-since",
        ));
    }
    let records = context.records().await?;
    let ids = match from {
        Some(file) => listed(file)?,
        None => filtered(args, &records, context).await?,
    };
    if ids.is_empty() {
        return Ok(Exit::Fine);
    }
    give_all(args, &ids, &records, context).await
}

impl Args {
    fn ending(&self) -> Ending {
        Ending::RunAgain {
            repeats_steps: self.steps == Some(Steps::Repeat),
            renews_keys: self.keys == Some(Keys::New),
        }
    }

    /// Returns the reason why a record can't run again, where there is one.
    fn check(&self, record: &Record) -> Result<(), String> {
        // A rerun whose attempts fail may be given again, in another way.
        let is_rerun =
            record.is_released() && acts(&record.journal).iter().any(|act| act.act == WORD);
        if record.status == Status::InProgress && !is_rerun {
            return Err(
                "the record isn't final: `explain` says what a delivery would be told".to_owned(),
            );
        }
        let repeats = self.steps == Some(Steps::Repeat);
        let renews = self.keys == Some(Keys::New);
        if !repeats && is_compensated(record) {
            return Err(
                "its saga was undone, and each delivery would store its failure again: --keys new --steps repeat begins the saga anew".to_owned(),
            );
        }
        if repeats && is_half_done(record) {
            return Err(
                "its saga is being undone, or waits for an operator: let it end, or settle its step, then rerun".to_owned(),
            );
        }
        let is_undone = handlers_steps(record)
            .any(|(name, entry)| name.ends_with(UNDO) && entry.state != StepState::Failed);
        if repeats && !renews && is_undone {
            return Err(
                "steps of its saga were undone, or may have been, and under the same keys a provider may answer with an effect that was undone: give --keys new".to_owned(),
            );
        }
        let pending = pending_steps(record);
        if !repeats && renews && !pending.is_empty() {
            return Err(format!(
                "its steps {pending:?} were under way when an attempt ended, and may have had their effect, which new keys repeat: look at \
                 the provider, then say that they fire again, --steps repeat, or give --keys same"
            ));
        }
        let confirmed = handlers_steps(record)
            .filter(|(_, entry)| matches!(entry.state, StepState::Confirmed(_)))
            .count();
        if confirmed > 0 && self.steps.is_none() {
            return Err(format!(
                "{confirmed} of its steps are confirmed: say whether they are skipped, --steps keep, or fire again, --steps repeat"
            ));
        }
        if self.steps == Some(Steps::Keep) {
            return gives_results(record);
        }
        Ok(())
    }
}

impl WhichArgs {
    /// The times between which records were completed, where they are given.
    fn times(&self) -> Option<Range<EpochMillis>> {
        Some(self.completed_since?..self.completed_before?)
    }

    /// Words the times, for behind the records; nothing where none are given.
    fn when(&self) -> String {
        let of = |times: Range<EpochMillis>| {
            let (since, before) = (time::text(times.start), time::text(times.end));
            format!(" that were completed from {since} until {before}")
        };
        self.times().map(of).unwrap_or_default()
    }

    /// Returns whether a record is asked for: each, unless times are given. These take no permanent failure: a
    /// card that was declined would be charged.
    fn takes(&self, record: &Record) -> bool {
        let is_completed = record.status == Status::Completed;
        let completed = record.completed_at.filter(|_| is_completed);
        let times = self.times();
        times.is_none_or(|times| completed.is_some_and(|at| times.contains(&at)))
    }
}

/// The ids of a file, each once: what `list --json` prints, where its lines are so; else an id on each
/// line, which may have blanks at its ends. Lines of both kinds are refused.
fn listed(file: &Path) -> Result<Vec<RecordId>, Failure> {
    let text = files::text(file)?;
    let mut seen = std::collections::HashSet::new();
    let (mut ids, mut is_json) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let entry: Option<Entry> = serde_json::from_str(line).ok();
        if *is_json.get_or_insert(entry.is_some()) != entry.is_some() {
            return Err(Failure::usage(format!(
                "{}, line {number}: give ids alone, or what `list --json` prints alone: this line is of the other kind than \
                 those before it",
                file.display()
            )));
        }
        let id = entry.map_or_else(|| line.to_owned(), |entry| entry.id);
        if seen.insert(id.clone()) {
            ids.push(RecordId::stored(id)?);
        }
    }
    if ids.is_empty() {
        return Err(Failure::usage(format!(
            "{} has no ids: give a file with an id on each line, or with what `list --json` prints",
            file.display()
        )));
    }
    Ok(ids)
}

/// A line of `list --json`.
#[derive(Deserialize)]
struct Entry {
    id: String,
}

/// The ids of the records that fit the filter, by a scan that says first what it costs. There are none
/// where all were given back before, for this reason: such a record no longer tells when it was completed.
async fn filtered(
    args: &Args,
    records: &Records,
    context: &Context,
) -> Result<Vec<RecordId>, Failure> {
    let which = &args.which;
    let operation = which.operation.as_deref().unwrap_or_default();
    if operation.len() > MOST_BYTES {
        return Err(Failure::usage(
            "an id has at most 255 bytes of its operation's name, so that longer names may look the same: give the ids by --from",
        ));
    }
    let namespace = context.global().namespace.as_deref();
    let namespace = needed(namespace, "the id of each record that the filter takes")?;
    if let Place::Redis(redis) = &records.place
        && redis.is_one_of_several().await?
    {
        return Err(Failure::usage(
            "the server is one node of a cluster, and the records of the others would be missed: on each node, `rerun --from` takes what `list --json` finds",
        ));
    }
    let cost = cost(records, context).await?;
    note(&cost);
    agree(context, "Go on?")?;
    let (mut ids, mut before) = (Vec::new(), 0);
    let now = records.now(context).await?;
    let order = Order {
        ending: args.ending(),
        act: args.why.act(WORD, now),
    };
    let is_done = |record: &Record| {
        let act = order.carried_out(record).ok().flatten();
        act.is_some_and(|act| act.reason == order.act.reason)
    };
    let progress = Progress::resume(None, &records.place, &cost, String::new())?;
    let each = |id: String, found: Found| {
        let is_asked_for = State::of(&found, now, SKEW_MARGIN) != State::Expired
            && is_of_operation(Some(namespace), operation, &id);
        let record = found.content.as_deref().ok().filter(|_| is_asked_for);
        if record.is_some_and(|record| which.takes(record)) {
            ids.push(RecordId::stored(id)?);
        } else if record.is_some_and(is_done) {
            before += 1;
        }
        Ok(Fate::Left)
    };
    scan(records, context, progress, None, cost.records, each).await?;
    // Redis may name one twice.
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        let none = format!(
            "there is no record of `{operation}` in the namespace `{namespace}`{}",
            which.when()
        );
        if before == 0 {
            return Err(Failure::usage(format!(
                "{none}: look at the times and the names. A record that was given back is completed again once its next delivery has \
                 run; permanent failures run again by their ids, or --from"
            )));
        }
        let before = counted(before, "record");
        note(format_args!(
            "{none}. Done before, for this reason: {before}"
        ));
    }
    Ok(ids)
}

/// Gives the keys of all of these records back, one by one.
async fn give_all(
    args: &Args,
    ids: &[RecordId],
    records: &Records,
    context: &Context,
) -> Result<Exit, Failure> {
    let count = ids.len();
    let all = counted(count as u64, "record");
    note(&all);
    if !args.dry_run {
        let (place, when) = (records.place.words(context), args.which.when());
        let question =
            format!("The next delivery of each of {all} in {place}{when} runs again. Rerun?");
        agree(context, &question)?;
    }
    let ahead = records.ahead(context).await?;
    let bar = bar(count as u64, 0);
    let stopped = |done: usize, error: Failure| {
        bar.finish_and_clear();
        if !args.dry_run {
            note(format_args!(
                "{done} of {count} done. Give the same command again, with the same reason, and it goes on"
            ));
        }
        error
    };
    let (mut given_back, mut before, mut left) = (0, 0, 0);
    for id in ids {
        let given = give_one(args, id, records, context, now_behind(ahead)).await;
        let (what, words) = match given {
            Ok(answer) => answer,
            Err(error) => return Err(stopped(given_back + before, error)),
        };
        match what {
            Done::Given | Done::WouldBeGiven => given_back += 1,
            Done::Before => before += 1,
            Done::Left => left += 1,
        }
        bar.inc(1);
        let line = Line {
            id: id.as_str().to_owned(),
            done: what,
            words,
        };
        if let Err(error) = bar.suspend(|| context.line(&line)) {
            // Nobody would learn what becomes of the others.
            let error = match what {
                Done::Given => error.written(),
                _ if args.dry_run => error,
                _ => error.stopped(),
            };
            return Err(stopped(given_back + before, error));
        }
    }
    ProgressBar::finish_and_clear(&bar);
    let would = if args.dry_run { "would be " } else { "" };
    note(format_args!(
        "{given_back} of {count} {would}given back, {before} done before, {left} left alone"
    ));
    Ok(Exit::if_found(left > 0))
}

type Answer = (Done, Option<String>);

async fn give_one(
    args: &Args,
    id: &RecordId,
    records: &Records,
    context: &Context,
    now: EpochMillis,
) -> Result<Answer, Failure> {
    let left = |words: &str| Ok((Done::Left, Some(words.to_owned())));
    let Some(found) = records.store.load(id, context.deadline()).await? else {
        return left("there is no record");
    };
    if State::of(&found, now, SKEW_MARGIN) == State::Expired {
        return left(
            "the record has expired: the next delivery runs anyway, with the keys that it had first",
        );
    }
    let Ok(record) = found.content.as_deref() else {
        return left("the record can't be understood");
    };
    let order = Order {
        ending: args.ending(),
        act: args.why.act(WORD, now),
    };
    let before = order.carried_out(record);
    if let Ok(Some(act)) = before {
        return Ok((Done::Before, Some(time::text(EpochMillis(act.at)))));
    }
    // Another operator may have had it run again since the scan.
    if !record.is_released() && !args.which.takes(record) {
        return left("it was not completed within the times that were asked for");
    }
    if let Err(words) = before.and_then(|_| args.check(record)) {
        return left(&words);
    }
    if args.steps == Some(Steps::Repeat) && was_ended_half_done(record) {
        return left(
            "its saga was ended half undone, or may have been (its state was erased), and what is not undone stays: rerun it alone, by its id",
        );
    }
    if let Some(words) = held(records, id, Some(&found), context).await?.words() {
        return left(words);
    }
    if args.dry_run {
        return Ok((Done::WouldBeGiven, None));
    }
    let timeout = context.global().timeout;
    match carry_out(&*records.store, id, &found, &order, now, timeout).await {
        Ok(_) => Ok((Done::Given, None)),
        Err(Failure::Moved(words)) => left(&words),
        Err(error) => Err(error),
    }
}
