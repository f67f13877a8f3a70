//! What the commands that end a record share: their flags, what they ask, what they report.

use std::fmt;
use std::time::Duration;

use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::record::{Found, Record, Status};
use lambda_idempotency::store::Store;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ask::agree;
use crate::context::{Context, now};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{DIM, GOOD, HEADING, note};
use crate::records::acts::Act;
use crate::records::explain::SKEW_MARGIN;
use crate::records::find::{Target, Which, find};
use crate::records::get::no_record;
use crate::records::operate::{Ending, Order, carry_out};
use crate::records::view::{RecordView, State};
use crate::time;

/// The flags of a command that ends a record.
#[derive(Debug, clap::Args)]
pub struct OrderArgs {
    /// Which record.
    #[command(flatten)]
    pub which: Which,
    /// Why. It is kept in the record, and shown by `get` and `explain`.
    #[arg(long, value_name = "WHY", value_parser = reason)]
    pub reason: String,
    /// Who you are.
    #[arg(long, env = "USER", value_name = "NAME")]
    pub by: String,
    /// Shows what would be done, and writes nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Also while an attempt may still run: its lease isn't over. It asks a second question.
    #[arg(long)]
    pub while_live: bool,
}

fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > 500 || text.chars().any(char::is_control) {
        return Err("say why in 1 to 500 characters, on one line".to_owned());
    }
    Ok(text.to_owned())
}

/// What a command did to a record, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Operation")]
pub struct Report {
    /// What was done, and why.
    pub act: Act,
    /// Whether it was only shown.
    pub dry_run: bool,
    /// The record as it was.
    pub before: RecordView,
    /// The record as it is now; absent where nothing was written.
    pub after: Option<RecordView>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(after) = &self.after else {
            return write!(
                f,
                "{HEADING}{}{HEADING:#}\n{DIM}would {}: nothing was written{DIM:#}\n\n{}",
                self.before.id, self.act.act, self.before
            );
        };
        write!(
            f,
            "{GOOD}{}{GOOD:#}: {} before\n\n{after}",
            self.act.act,
            self.before.state.word()
        )
    }
}

/// Looks the record up, checks that the order fits it, asks, and carries it out.
///
/// `order` makes the ending from the record that was found, or says why it can't.
pub(crate) async fn give(
    args: &OrderArgs,
    word: &str,
    context: &Context,
    order: impl FnOnce(&Record, EpochMillis) -> Result<Ending, String>,
) -> Result<Exit, Failure> {
    let records = context.records().await?;
    let Target { id, found } = find(&args.which, &records, context).await?;
    let found = found.ok_or_else(|| no_record(id.as_str()))?;
    let now = now();
    let before = RecordView::of(&id, &found, now, SKEW_MARGIN);
    let record = found.content.as_deref().map_err(|reason| {
        Failure::usage(format!(
            "the record can't be understood, so it is left alone: {reason}"
        ))
    })?;
    let ending = order(record, now).map_err(Failure::Usage)?;
    let live = live_until(&found, record, now);
    if let Some(until) = live.filter(|_| !args.while_live) {
        return Err(Failure::usage(format!(
            "an attempt may still run: its lease ends {} ({}). Wait until then. If you know that it is dead, or accept that it \
             loses the key, add --while-live",
            time::text(until),
            time::distance(until, now)
        )));
    }
    let act = Act {
        at: now.0,
        act: word.to_owned(),
        by: args.by.clone(),
        reason: args.reason.clone(),
    };
    let mut report = Report {
        act: act.clone(),
        dry_run: args.dry_run,
        before,
        after: None,
    };
    if args.dry_run {
        context.output().report(&report)?;
        return Ok(Exit::Fine);
    }
    let state = report.before.state.word();
    agree(
        context,
        &format!("The record {} is {state}. {}?", id.as_str(), capital(word)),
    )?;
    if live.is_some() {
        agree(
            context,
            "Its attempt may still run: it loses the key, and what it does may happen twice. Are you sure?",
        )?;
    }
    let order = Order { ending, act };
    carry_out(
        &records.store,
        &id,
        &found,
        &order,
        now,
        context.global().timeout,
    )
    .await?;
    let Act {
        at,
        act,
        by,
        reason,
    } = &order.act;
    let at = time::text(EpochMillis(*at));
    note(format_args!("{at} {act} {} by {by}: {reason}", id.as_str()));
    let after = records.store.load(&id, context.deadline()).await?;
    report.after = after.map(|found| RecordView::of(&id, &found, now, SKEW_MARGIN));
    context.output().report(&report)?;
    Ok(Exit::Fine)
}

/// When the lease of an attempt that may still run ends.
fn live_until(found: &Found, record: &Record, now: EpochMillis) -> Option<EpochMillis> {
    let is_live = State::of(found, now, SKEW_MARGIN) == State::InProgress;
    record
        .lease
        .filter(|_| is_live && record.status == Status::InProgress)
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
            "the record has failed for good. `release` gives the key back, so that the next delivery runs".to_owned(),
        ),
        _ => Ok(()),
    }
}

/// The record's own expiration, or this long from now, whichever is later.
pub(crate) fn kept_until(
    record: &Record,
    keep: Duration,
    now: EpochMillis,
) -> lambda_idempotency::EpochSeconds {
    record.expiration.max((now + keep).ceil_seconds())
}
