//! The writes that an operator may make.

use lambda_idempotency::RecordId;
use lambda_idempotency::protocol::record::{Omission, RELEASED, Record, Status, StoredOutcome};

use super::{is_final, those};
use crate::night::Night;
use crate::operator::Act;
use crate::watched::{Change, Kind};
use crate::world::Execution;

/// Nothing runs again that was done, unless that was asked for; and a whole record is left.
pub fn orders_are_followed(night: &Night, _: &[RecordId]) -> Vec<String> {
    let wrong = |change: &Change| match (change.kind, &change.before, &change.after) {
        (Kind::Operator(act), Some(before), Some(after)) => {
            !is_asked_for(change.at, act, before) || !is_left(act, before, after)
        }
        (Kind::Operator(_), _, _) => true,
        _ => false,
    };
    those(&night.changes, wrong)
}

/// Returns whether the act fits the record that its write met.
fn is_asked_for(at: i64, act: Act, met: &Record) -> bool {
    match act {
        Act::Release => {
            let is_over = met.lease.is_some_and(|lease| lease.0 <= at);
            met.status == Status::Failed || (is_over && !met.is_released())
        }
        Act::ReleaseLive => met.status == Status::InProgress && !met.is_released(),
        Act::Redact | Act::Rerun | Act::RerunInFull => is_final(met),
    }
}

fn is_left(act: Act, met: &Record, left: &Record) -> bool {
    let redacted = StoredOutcome::Omitted(Omission::Redacted);
    let ends = if act == Act::Redact {
        left.status == met.status && left.outcome == Some(redacted) && left.lease.is_none()
    } else {
        left.is_released()
            && left.lease == Some(RELEASED)
            && left.outcome.is_none()
            && left.completed_at.is_none()
    };
    let stays = (left.attempt, &left.fingerprint, left.started_at)
        == (met.attempt, &met.fingerprint, met.started_at);
    ends && stays && left.owner != met.owner && left.expiration >= met.expiration
}

/// Returns whether an attempt of the key was released while it was live, so that it may run on beside its successor.
pub fn released_live(night: &Night, id: &RecordId, by: i64) -> bool {
    did(night, id, &[Act::ReleaseLive], 0, by, |_| true)
}

/// Returns whether the execution's own attempt was released while it was live.
pub fn is_released_live(night: &Night, id: &RecordId, of: &Execution, by: i64) -> bool {
    let is_its = |record: &Record| record.attempt == of.attempt;
    did(night, id, &[Act::ReleaseLive], 0, by, is_its)
}

/// Returns whether the key's outcome was erased by then.
pub fn redacted(night: &Night, id: &RecordId, by: i64) -> bool {
    did(night, id, &[Act::Redact], 0, by, |_| true)
}

/// Returns whether the key was to run again, in that time.
pub fn reran(night: &Night, id: &RecordId, from: i64, by: i64) -> bool {
    did(night, id, &[Act::Rerun, Act::RerunInFull], from, by, |_| {
        true
    })
}

fn did(
    night: &Night,
    id: &RecordId,
    acts: &[Act],
    from: i64,
    by: i64,
    over: impl Fn(&Record) -> bool,
) -> bool {
    night.changes.iter().any(|change| {
        change.id == *id
            && matches!(change.kind, Kind::Operator(act) if acts.contains(&act))
            && (from..=by).contains(&change.at)
            && change.before.as_ref().is_some_and(&over)
    })
}
