//! The invariants of `docs/internals/protocol.md`, held against what one night left behind.

use std::fmt::Debug;

use lambda_idempotency::RecordId;
use lambda_idempotency::protocol::record::{Record, Status, StoredOutcome};

use crate::doors::http;
use crate::night::{BATCH, Night};
use crate::scenario::{Delivery, Door, MARGIN};
use crate::watched::{Change, Kind};
use crate::world::{Execution, What};

mod bookings;
mod drops;
mod operator;
mod results;
mod steps;

type Check = fn(&Night, &[RecordId]) -> Vec<String>;

/// Returns everything in a night that should not have happened.
pub fn broken(night: &Night, ids: &[RecordId], unsettled: &[usize]) -> Vec<String> {
    let mut broken = Vec::new();
    let checks: [(&str, Check); 14] = [
        (
            "a booking stands if and only if its record is completed",
            bookings::bookings_match,
        ),
        (
            "a final record stays as it is until it expires",
            final_records_stay,
        ),
        ("attempts count up", attempts_count_up),
        ("only the holder of the claim writes", the_fence_holds),
        ("a live lease is not taken over", live_leases_stay),
        ("no two run at once while the first has time", no_overlap),
        ("no handler starts after its claim's time", none_start_late),
        (
            "a handler ends with a lease that is renewed, or lasts until a deadline",
            none_outlive_their_lease,
        ),
        ("an attempt runs once", attempts_run_once),
        ("what callers are told is so", results::results_are_true),
        (
            "a step that is confirmed fires no more",
            steps::steps_fire_once,
        ),
        (
            "a run that was dropped holds its key until the next call alone",
            drops::keys_are_free,
        ),
        (
            "an operator changes what was asked for alone",
            operator::orders_are_followed,
        ),
        (
            "a batch is taken in order, each key once",
            batches_are_in_order,
        ),
    ];
    for (name, check) in checks {
        broken.extend(
            check(night, ids)
                .into_iter()
                .map(|what| format!("{name}: {what}")),
        );
    }
    broken.extend(
        unsettled
            .iter()
            .map(|key| format!("every key comes to an end: k-{key} did not")),
    );
    broken
}

/// Returns the lead of the fastest clock: expiry and leases are judged by the clock of the process that takes over.
fn ahead(night: &Night) -> i64 {
    let fastest = night.scenario.skews.iter().copied().max();
    fastest.unwrap_or(0).max(0)
}

/// Describes all that is wrong.
fn those<T: Debug>(all: &[T], is_wrong: impl Fn(&T) -> bool) -> Vec<String> {
    let wrong = all.iter().filter(|one| is_wrong(one));
    wrong.map(|one| format!("{one:?}")).collect()
}

fn is_final(record: &Record) -> bool {
    record.status != Status::InProgress
}

fn final_records_stay(night: &Night, _: &[RecordId]) -> Vec<String> {
    let touched = |change: &Change| match (&change.before, change.kind) {
        (Some(before), Kind::Replace | Kind::Commit) if is_final(before) => {
            change.at + ahead(night) < before.expiration.to_millis().0 + MARGIN
        }
        (Some(before), Kind::Swept) => change.at < before.expiration.to_millis().0,
        // The acts of an operator have their own check.
        (_, Kind::Operator(_)) | (None, _) => false,
        (Some(before), _) => is_final(before),
    };
    those(&night.changes, touched)
}

/// Returns whether a completion has expired as it arrives: a copy of it that is later than the retention. With a copy of its claim, just
/// as late, it may stand once more when TTL has deleted its record; it holds no booking, and is over for every process that meets it.
fn is_expired(completion: &Change) -> bool {
    completion.kind == Kind::Complete && expires_at_once(completion)
}

/// Returns whether the record has expired as it is written, as by a copy that is later than the retention.
fn expires_at_once(change: &Change) -> bool {
    let record = change.after.as_ref();
    record.is_some_and(|record| record.expiration.to_millis().0 <= change.at)
}

/// The number of the attempt that takes over. One that was released before it started doesn't count.
fn next(change: &Change) -> Option<u32> {
    let before = change.before.as_ref().map(|record| record.attempt);
    before.map(|attempt| attempt + u32::from(has_started(change)))
}

/// Returns whether the attempt that is taken over had begun its work, as far as its record says.
fn has_started(change: &Change) -> bool {
    !change
        .before
        .as_ref()
        .is_some_and(|record| record.is_released() && is_marked(record))
}

/// Returns whether the record has the mark of an attempt that did not begin its work. An attempt that is at work never has it.
fn is_marked(record: &Record) -> bool {
    record.last_error.as_deref() == Some("not started")
}

fn attempts_count_up(night: &Night, _: &[RecordId]) -> Vec<String> {
    let wrong = |change: &Change| {
        let before = change.before.as_ref().map(|record| record.attempt);
        let after = change.after.as_ref().map(|record| record.attempt);
        match change.kind {
            Kind::Create | Kind::Replace => after != Some(1),
            // An attempt that lost its first insert took the record over instead. When TTL has deleted the record, late copies of
            // that insert and of its successor's takeover skip a number, in a record that has expired as it is written.
            Kind::Resume if expires_at_once(change) => after < next(change),
            Kind::Resume => after != next(change) || change.after.as_ref().is_some_and(is_marked),
            Kind::Swept => false,
            Kind::Complete | Kind::Renew | Kind::Amend | Kind::Release | Kind::Operator(_) => {
                after != before
            }
            // In the claimless form it is a claim as well.
            Kind::Commit => after < before && after != Some(1),
        }
    };
    those(&night.changes, wrong)
}

fn the_fence_holds(night: &Night, _: &[RecordId]) -> Vec<String> {
    let fenced = [Kind::Complete, Kind::Renew, Kind::Amend, Kind::Release];
    let stale = |change: &Change| {
        fenced.contains(&change.kind)
            && !change
                .before
                .as_ref()
                .is_some_and(|before| !is_final(before) && before.owner == change.by)
    };
    those(&night.changes, stale)
}

fn live_leases_stay(night: &Night, _: &[RecordId]) -> Vec<String> {
    let early = |change: &Change| {
        matches!(change.kind, Kind::Resume | Kind::Replace)
            && change.before.as_ref().is_some_and(|before| {
                let lease = before.lease.map_or(0, |lease| lease.0);
                !is_final(before) && change.at + ahead(night) < lease
            })
    };
    those(&night.changes, early)
}

/// Beyond the margin, clocks that differ let two run; the fence still keeps their outcomes apart. A lease that is renewed holds for as
/// long as the claim says.
fn no_overlap(night: &Night, ids: &[RecordId]) -> Vec<String> {
    if !night.scenario.clocks_agree() {
        return Vec::new();
    }
    let mut broken = Vec::new();
    for first in &night.executions {
        // A process that died runs no more.
        let Some((ended, _)) = first.ended else {
            continue;
        };
        if first.claimless {
            continue;
        }
        let beside = night.executions.iter().filter(|second| {
            // Of two that began in the same instant, the one that is counted later.
            second.value > first.value
                && !second.claimless
                && second.key == first.key
                && (first.began..ended).contains(&second.began)
                && (second.began < first.may_run_until || first.ended_in_time)
                && ![first, second].into_iter().any(|execution| {
                    operator::is_released_live(night, &ids[first.key], execution, second.began)
                })
        });
        broken.extend(beside.map(|second| format!("{first:?} and {second:?}")));
    }
    broken
}

/// Holds whatever the clocks say: a claim's time is judged by the clock of the process that made it. Without a claim there is none.
fn none_start_late(night: &Night, _: &[RecordId]) -> Vec<String> {
    let late =
        |execution: &Execution| !execution.claimless && execution.began >= execution.may_run_until;
    those(&night.executions, late)
}

/// Holds whatever the clocks say, as long as no step has told the handler of a lost fence. A batch's messages aren't renewed before its
/// deadline.
fn none_outlive_their_lease(night: &Night, _: &[RecordId]) -> Vec<String> {
    let renews = night.scenario.renewed.is_some() && night.scenario.door != Door::Sqs;
    let late = |execution: &Execution| {
        let delivery = night.scenario.deliveries.get(execution.delivery);
        let is_held =
            |delivery: &Delivery| delivery.steps == 0 && (renews || delivery.deadline.is_some());
        let is_held = !execution.claimless && delivery.is_some_and(is_held);
        is_held && execution.ended.is_some() && !execution.ended_in_time
    };
    those(&night.executions, late)
}

/// Between two executions of one attempt lies a fresh start.
///
/// An attempt is a claim, and its number is not enough to tell two claims apart: a fresh start begins again with 1. Clocks within the
/// margin keep the two in order. Beyond the margin, the successor may start afresh while its predecessor has time left, and
/// start to run before it: then both have the number 1, and the fresh start comes before both. So there, two executions are taken for
/// one attempt's only where their claims end at the same time as well.
fn attempts_run_once(night: &Night, ids: &[RecordId]) -> Vec<String> {
    let mut broken = Vec::new();
    let agree = night.scenario.clocks_agree();
    for (position, first) in night.executions.iter().enumerate() {
        for second in &night.executions[position + 1..] {
            let same = first.key == second.key
                && first.attempt == second.attempt
                && (agree || first.may_run_until == second.may_run_until)
                && !first.claimless
                && !second.claimless;
            let fresh = |change: &Change| {
                change.id == ids[first.key]
                    && matches!(change.kind, Kind::Create | Kind::Replace)
                    && (first.began..=second.began).contains(&change.at)
            };
            // The first's own claim may carry the same instant.
            let own = night
                .changes
                .iter()
                .filter(|change| fresh(change) && change.at == first.began)
                .count()
                .min(1);
            if same && night.changes.iter().filter(|change| fresh(change)).count() <= own {
                broken.push(format!("{first:?} and {second:?}"));
            }
        }
    }
    broken
}

/// The value that a record would replay.
fn outcome(night: &Night, record: &Record) -> Option<usize> {
    match (&record.outcome, night.scenario.door) {
        (Some(StoredOutcome::Inline(text)), Door::Http) => http::value(text),
        (Some(StoredOutcome::Inline(text)), _) => text.parse().ok(),
        _ => None,
    }
}

/// The completions that applied by then: of which record, with which value.
fn completions(night: &Night, by: i64) -> impl Iterator<Item = (&Change, Option<usize>)> {
    let done = move |change: &&Change| {
        matches!(change.kind, Kind::Complete | Kind::Commit) && change.at <= by
    };
    night.changes.iter().filter(done).map(|change| {
        let value = change
            .after
            .as_ref()
            .and_then(|record| outcome(night, record));
        (change, value)
    })
}

fn batches_are_in_order(night: &Night, _: &[RecordId]) -> Vec<String> {
    if night.scenario.door != Door::Sqs {
        return Vec::new();
    }
    let mut broken = Vec::new();
    let numbered: Vec<_> = night.scenario.deliveries.iter().enumerate().collect();
    let ran = |number: usize| {
        night
            .executions
            .iter()
            .any(|execution| execution.delivery == number)
    };
    let reported = |number: usize| {
        let mut results = night.results.iter();
        results.any(|result| result.delivery == number && result.what == What::Reported)
    };
    for batch in numbered.chunks(BATCH) {
        for (position, (earlier, first)) in batch.iter().enumerate() {
            for (later, second) in &batch[position + 1..] {
                if first.key == second.key && ran(*earlier) && ran(*later) {
                    broken.push(format!(
                        "messages {earlier} and {later} of one key both ran"
                    ));
                }
                let ordered = night.scenario.fifo && first.group() == second.group();
                if ordered && reported(*earlier) && (ran(*later) || !reported(*later)) {
                    broken.push(format!(
                        "message {later} went on after {earlier} of its group was reported"
                    ));
                }
            }
        }
    }
    broken
}
