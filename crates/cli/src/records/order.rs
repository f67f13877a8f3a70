//! The common parts of the commands that end a record: their flags, questions and reports.

use std::fmt;

use lambda_idempotency::protocol::record::{Found, Record, Status};
use lambda_idempotency::{EpochMillis, RecordId};
use lambda_idempotency_audit::is_http;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ask::agree;
use crate::connect::Place;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{DIM, GOOD, HEADING, NL, WARNING, note};
use crate::records::acts::Act;
use crate::records::explain::SKEW_MARGIN;
use crate::records::find::{Target, Which, find};
use crate::records::get::no_record;
use crate::records::open::held;
use crate::records::operate::{
    Ending, Order, carry_out, is_half_done, left_by_redaction, readable, was_ended_half_done,
};
use crate::records::outcome::is_response;
use crate::records::view::{RecordView, State};
use crate::time;

/// The flags of a command that ends a record.
#[derive(Debug, clap::Args)]
pub struct OrderArgs {
    /// The record.
    #[command(flatten)]
    pub which: Which,
    /// The reason, and the operator's name.
    #[command(flatten)]
    pub why: WhyArgs,
    /// Shows what would be done, and writes nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Also while an attempt may still run: its lease isn't over. It asks a second question.
    #[arg(long)]
    pub while_live: bool,
}

/// The reason for which a record is ended, and the name of the operator.
#[derive(Clone, Debug, clap::Args)]
pub struct WhyArgs {
    /// The reason. It is kept in the record, and shown by `get` and `explain`.
    #[arg(long, value_name = "WHY", value_parser = line)]
    pub reason: String,
    /// Your name.
    #[arg(long, env = "USER", value_name = "NAME", value_parser = line)]
    pub by: String,
}

impl WhyArgs {
    /// The act of this word.
    pub(crate) fn act(&self, word: &str, now: EpochMillis) -> Act {
        Act {
            at: now.0,
            act: word.to_owned(),
            by: self.by.clone(),
            reason: self.reason.clone(),
            left: None,
            given: None,
        }
    }
}

fn line(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > 500 || text.chars().any(char::is_control) {
        return Err("give 1 to 500 characters, on one line".to_owned());
    }
    Ok(text.to_owned())
}

/// A command's act on a record, done or only shown.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Operation")]
pub struct Report {
    /// The act, with its reason.
    pub act: Act,
    /// Whether it was only shown.
    pub dry_run: bool,
    /// Whether the record was written: not by a dry run, and not where it was done before.
    pub written: bool,
    /// The record as it was; of `redact`, without what it erases.
    pub before: RecordView,
    /// The record as it is now; absent in a dry run, unless it was done before.
    pub after: Option<RecordView>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.after.is_none() {
            write!(
                f,
                "{HEADING}{}{HEADING:#}{NL}{DIM}would {}: nothing was written{DIM:#}",
                self.before.id, self.act.act
            )?;
            // A record that was written shows it.
            if let Some(left) = &self.act.left {
                write!(f, "{NL}{WARNING}left for you to delete: {left}{WARNING:#}")?;
            }
        } else if self.written {
            let before = self.before.state.word();
            write!(f, "{GOOD}{}{GOOD:#}: {before} before", self.act.act)?;
        } else {
            let at = time::text(EpochMillis(self.act.at));
            let act = &self.act.act;
            write!(
                f,
                "{act} was done before, at {at}: {DIM}nothing was written{DIM:#}"
            )?;
        }
        let view = self.after.as_ref().unwrap_or(&self.before);
        write!(f, "{NL}{NL}{view}")
    }
}

/// Looks the record up, checks that the order fits it, asks, and carries it out.
///
/// `ending` makes the ending of the record that was found; `check` returns the reason why it can't be
/// ended so. An order that was carried out before is not checked, and not carried out again.
pub(crate) async fn give(
    args: &OrderArgs,
    word: &str,
    context: &Context,
    ending: impl FnOnce(&Record, EpochMillis) -> Ending,
    check: impl FnOnce(&Record) -> Result<(), String>,
) -> Result<Exit, Failure> {
    let records = context.records().await?;
    let Target { id, found } = find(&args.which, &records, context).await?;
    let found = found.ok_or_else(|| no_record(&args.which, id.as_str(), &records))?;
    let now = records.now(context).await?;
    let mut before = RecordView::of(&id, &found, now, SKEW_MARGIN);
    let is_expired = before.state == State::Expired;
    let or_expired = |error: Failure| if is_expired { expired() } else { error };
    let record = readable(&found).map_err(or_expired)?;
    let (ending, mut act) = (ending(record, now), args.why.act(word, now));
    if ending == Ending::Redacted {
        let is_in_dynamodb = matches!(records.place, Place::DynamoDb(_));
        act.left = left_by_redaction(&id, record, is_in_dynamodb);
        before.leave_out_erased();
    }
    act.given = ending.given(record);
    let order = Order { ending, act };
    let mut report = Report {
        act: order.act.clone(),
        dry_run: args.dry_run,
        written: false,
        before,
        after: None,
    };
    let earlier = order.carried_out(record);
    // The next delivery runs, whatever was done before; a rerun would decide nothing, either.
    let decides_nothing = match order.ending {
        Ending::Redacted => false,
        Ending::RunAgain { .. } => true,
        _ => matches!(earlier, Ok(Some(_))),
    };
    if is_expired && decides_nothing {
        return Err(expired());
    }
    if let Ok(Some(act)) = earlier {
        report.act = act;
        report.after = Some(report.before.clone());
        context.report(&report)?;
        return Ok(Exit::Fine);
    }
    let fits = earlier.and_then(|_| check(record));
    fits.map_err(|words| or_expired(Failure::Usage(words)))?;
    let live = live_until(&found, record, now);
    if let Some(until) = live.filter(|_| !args.while_live) {
        return Err(Failure::usage(format!(
            "an attempt may still run: its lease ends {} ({}). Wait until then. If you know that it is dead, or accept that it \
             loses the key, add --while-live",
            time::text(until),
            time::distance(until, now)
        )));
    }
    let held = held(&records, &id, Some(&found), context).await?;
    if let Some(words) = held.words() {
        return Err(Failure::usage(format!("{words}. Wait until it ends")));
    }
    let is_unread = is_unread_over_http(&id, &order.ending);
    if is_unread {
        note(
            "By its name, the operation is one of the HTTP layer, which can't read this outcome: give --status and --body-file, \
             unless the handler runs without the layer",
        );
    }
    if args.dry_run {
        context.report(&report)?;
        return Ok(Exit::Fine);
    }
    let state = report.before.state.word();
    let (word, place) = (capital(word), records.place.words(context));
    let question = format!("The record {} in {place} is {state}. {word}?", id.as_str());
    agree(context, &question)?;
    if live.is_some() {
        agree(
            context,
            "Its attempt may still run: it loses the key, and what it does may happen twice. Are you sure?",
        )?;
    }
    if is_unread {
        agree(context, "Does the handler run without the layer?")?;
    }
    if leaves_saga(&order.ending, record) {
        agree(
            context,
            "No delivery would go on with its saga, and what is not undone stays. Are you sure?",
        )?;
    }
    let timeout = context.global().timeout;
    let left = carry_out(&*records.store, &id, &found, &order, now, timeout).await?;
    let act = &order.act;
    let at = time::text(EpochMillis(act.at));
    note(format_args!(
        "{at} {} {} by {}: {}",
        act.act,
        id.as_str(),
        act.by,
        act.reason
    ));
    report.written = true;
    report.after = Some(RecordView::of(&id, &left, now, SKEW_MARGIN));
    context.written(&report)?;
    Ok(Exit::Fine)
}

fn expired() -> Failure {
    Failure::usage(
        "the record has expired: the next delivery runs the handler, as for a new key, and no act on the record changes that",
    )
}

/// Returns whether duplicates can't read the outcome, if the operation is one of the HTTP layer.
fn is_unread_over_http(id: &RecordId, ending: &Ending) -> bool {
    matches!(ending, Ending::Final { status: Status::Completed, outcome, .. } if is_http(id.as_str()) && !is_response(outcome))
}

/// Returns whether the ending leaves what a saga has done and not undone.
fn leaves_saga(ending: &Ending, record: &Record) -> bool {
    match ending {
        Ending::Final { .. } => is_half_done(record),
        Ending::RunAgain { repeats_steps, .. } => *repeats_steps && was_ended_half_done(record),
        _ => false,
    }
}

/// Returns the time at which the lease of an attempt that may still run ends; where another library
/// wrote none, the time at which the record expires.
fn live_until(found: &Found, record: &Record, now: EpochMillis) -> Option<EpochMillis> {
    let is_live = State::of(found, now, SKEW_MARGIN) == State::InProgress;
    let expires = || record.expiration.to_millis() + SKEW_MARGIN;
    (is_live && record.status == Status::InProgress).then(|| record.lease.unwrap_or_else(expires))
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Refuses a record that is final.
pub(crate) fn not_final(record: &Record) -> Result<(), String> {
    match record.status {
        Status::Completed => Err("the record is completed: duplicates get its outcome. `redact` replaces that".to_owned()),
        Status::Failed => Err(
            "the record has failed permanently. `release` gives the key back, so that the next delivery runs".to_owned(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lambda_idempotency::EpochSeconds;

    use super::*;

    #[test]
    fn an_attempt_without_a_lease_may_run_until_its_record_expires() {
        let (now, hour) = (EpochMillis(1_795_000_000_000), Duration::from_hours(1));
        let record = Record::new(Status::InProgress, EpochSeconds(1_795_000_000));
        let found = Found::readable(record.clone());
        let expires = now + SKEW_MARGIN;
        assert_eq!(live_until(&found, &record, now - hour), Some(expires));
        assert_eq!(live_until(&found, &record, now + hour), None);
    }
}
