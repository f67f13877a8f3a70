//! `list`: finds records by what became of them.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use lambda_idempotency::protocol::record::{Found, Record};
use lambda_idempotency::{EpochMillis, RecordId, SagaStatus};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::filled;
use crate::ask::agree;
use crate::connect::Place;
use crate::context::{Context, now_behind};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{counted, note};
use crate::records::explain::SKEW_MARGIN;
use crate::records::operate::waiting_steps;
use crate::records::scan::{Fate, Progress, scan};
use crate::records::search::cost;
use crate::records::view::State;
use crate::time;

/// The arguments of `list`. Without a state, every record is listed.
#[derive(Clone, Debug, clap::Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Args {
    /// An attempt died, or couldn't store its outcome, and nothing came after it: the lease is over.
    #[arg(long)]
    pub stuck: bool,
    /// A step waits for an operator.
    #[arg(long)]
    pub interrupted: bool,
    /// A saga waits for an operator: a step of unknown fate, or a compensation that failed permanently.
    #[arg(long)]
    pub saga_stuck: bool,
    /// Failed permanently.
    #[arg(long)]
    pub failed: bool,
    /// Begun, without an outcome, and no attempt followed: its lease ended longer ago than --quiet or,
    /// where its key was given back, its last attempt began longer ago.
    #[arg(long)]
    pub abandoned: bool,
    /// The time for which an abandoned record has been quiet.
    #[arg(long, requires = "abandoned", default_value = "15m", value_parser = time::duration, value_name = "DURATION")]
    pub quiet: Duration,
    /// Its last attempt began longer ago than this.
    #[arg(long, value_parser = time::duration, value_name = "DURATION")]
    pub older_than: Option<Duration>,
    /// Its key has had at least so many attempts: 2, and it was taken over or failed before.
    #[arg(long, value_name = "NUMBER")]
    pub attempts: Option<u32>,
    /// Of this operation alone.
    #[arg(long, value_name = "NAME", value_parser = filled)]
    pub operation: Option<String>,
    /// Ends after so many.
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<NonZeroUsize>,
    /// Keeps in this file how far the scan has come, and goes on from there.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
}

/// A record of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Entry {
    /// The id, as the table has it.
    pub id: String,
    /// Its state now.
    pub state: State,
    /// The number of attempts that the key has had.
    pub attempt: Option<u32>,
    /// The time at which the last attempt claimed it.
    pub started_at: Option<String>,
    /// The type of the error that ended the last attempt, or why the record can't be understood.
    pub last_error: Option<String>,
    #[serde(skip)]
    age: String,
}

impl Entry {
    fn of(id: String, found: &Found, state: State, now: EpochMillis) -> Self {
        let (record, unreadable) = match &found.content {
            Ok(record) => (Some(record), None),
            Err(reason) => (None, Some(reason.clone())),
        };
        let started = record.and_then(|record| record.started_at);
        Self {
            id,
            state,
            attempt: record.map(|record| record.attempt),
            started_at: started.map(time::text),
            last_error: record
                .and_then(|record| record.last_error.clone())
                .or(unreadable),
            age: started
                .map(|at| time::distance(at, now))
                .unwrap_or_default(),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = self.state.style();
        write!(
            f,
            "{style}{:<11}{style:#}  {:<12}  {}",
            self.state.word(),
            self.age,
            self.id
        )?;
        if let Some(attempt) = self.attempt.filter(|attempt| *attempt > 1) {
            write!(f, "  attempt {attempt}")?;
        }
        match &self.last_error {
            Some(error) => write!(f, "  ({error})"),
            None => Ok(()),
        }
    }
}

impl Args {
    /// Describes which records are listed: a scan that is gone on with lists the same.
    fn filter(&self, namespace: Option<&str>) -> String {
        let filter = Self {
            limit: None,
            resume: None,
            ..self.clone()
        };
        format!("{filter:?} {namespace:?}")
    }

    fn wants(
        &self,
        namespace: Option<&str>,
        id: &str,
        found: &Found,
        state: State,
        now: EpochMillis,
    ) -> bool {
        let operation = self.operation.as_ref();
        let is_another = operation.is_some_and(|of| !is_of_operation(namespace, of, id));
        if state == State::Expired || is_another || is_elsewhere(namespace, id) {
            return false;
        }
        let record = found.content.as_deref().ok();
        let started = record.and_then(|record| record.started_at);
        let is_old = |age: Duration| started.is_some_and(|at| at < now - age);
        if self.older_than.is_some_and(|age| !is_old(age)) {
            return false;
        }
        let has_had = |attempts: u32| record.is_some_and(|record| record.attempt >= attempts);
        if self.attempts.is_some_and(|attempts| !has_had(attempts)) {
            return false;
        }
        let any =
            self.stuck || self.interrupted || self.saga_stuck || self.failed || self.abandoned;
        !any || (self.stuck && state == State::Stuck)
            || (self.interrupted && record.is_some_and(|record| !waiting_steps(record).is_empty()))
            || (self.saga_stuck && record.and_then(SagaStatus::of) == Some(SagaStatus::Stuck))
            || (self.failed && state == State::Failed)
            || (self.abandoned
                && record.is_some_and(|record| self.is_abandoned(record, state, now)))
    }

    fn is_abandoned(&self, record: &Record, state: State, now: EpochMillis) -> bool {
        let quiet_since = match state {
            State::Stuck => record.lease,
            State::Released => record.started_at,
            _ => None,
        };
        quiet_since.is_some_and(|since| since < now - self.quiet)
    }
}

/// Returns whether an id is one of this operation, in this namespace where one is given. A raw id is of none.
pub(crate) fn is_of_operation(namespace: Option<&str>, operation: &str, id: &str) -> bool {
    // As ids have it: cut at 255 bytes, between the namespace and the hash.
    let operation = operation
        .get(..operation.floor_char_boundary(255))
        .unwrap_or(operation);
    RecordId::parts_of(id).is_some_and(|(_, of, _)| of == operation) && !is_elsewhere(namespace, id)
}

/// Returns whether an id is one of another namespace than the one that is given. A raw id is of none.
pub(crate) fn is_elsewhere(namespace: Option<&str>, id: &str) -> bool {
    let namespace = namespace.zip(RecordId::parts_of(id));
    namespace.is_some_and(|(namespace, (of, ..))| of != namespace)
}

/// Finds records by what became of them, by a scan that says first what it costs.
///
/// # Errors
///
/// When it isn't agreed to, or the store fails.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let records = context.records().await?;
    let mut cost = cost(&records, context).await?;
    if let (Some(_), Place::Redis(redis)) = (&args.resume, &records.place) {
        cost.which = redis.process().await?;
    }
    note(&cost);
    agree(context, "Go on?")?;
    let file = args.resume.as_deref();
    let namespace = context.global().namespace.as_deref();
    let filter = args.filter(namespace);
    let progress = Progress::resume(file, &records.place, &cost, filter)?;
    let ahead = records.ahead(context).await?;
    let mut listed = 0;
    let each = |id: String, found: Found| {
        let now = now_behind(ahead);
        let state = State::of(&found, now, SKEW_MARGIN);
        if !args.wants(namespace, &id, &found, state, now) {
            return Ok(Fate::Left);
        }
        context.line(&Entry::of(id, &found, state, now))?;
        listed += 1;
        let is_last = args.limit.is_some_and(|limit| listed >= limit.get());
        Ok(if is_last { Fate::Last } else { Fate::Taken })
    };
    let progress = match scan(&records, context, progress, file, cost.records, each).await {
        // Its reader has read enough of what was found.
        Err(Failure::BrokenPipe) => return Ok(Exit::Found),
        scanned => scanned?,
    };
    let read = counted(progress.read, "record");
    note(format_args!("{listed} of {read}"));
    match file {
        Some(file) if progress.is_done() => note(format_args!(
            "The list is complete: delete {} to begin anew",
            file.display()
        )),
        Some(_) => note("There may be more: give the same command again"),
        None => {}
    }
    Ok(Exit::if_found(listed > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_found_in_the_id_however_long_it_is() {
        let long = "ö".repeat(200);
        let cut = "ö".repeat(127);
        let hash = "0f".repeat(32);
        for (operation, id) in [
            ("charge", format!("payments#charge#{hash}")),
            ("a#b", format!("payments#a#b#{hash}")),
            (&long, format!("payments#{cut}#{hash}")),
        ] {
            for namespace in [None, Some("payments")] {
                assert!(is_of_operation(namespace, operation, &id), "{id}");
                let other = format!("payments#other#{hash}");
                assert!(!is_of_operation(namespace, operation, &other));
                assert!(!is_of_operation(namespace, operation, "raw"));
                assert!(!is_of_operation(namespace, operation, "payments#charge#17"));
            }
            assert!(!is_of_operation(Some("refunds"), operation, &id));
        }
    }
}
