//! The results that callers are told.

use lambda_idempotency::protocol::record::{Record, Status};
use lambda_idempotency::{Fingerprint, RecordId};

use super::{completions, is_expired, operator};
use crate::doors::payload;
use crate::night::Night;
use crate::watched::{Change, Kind};
use crate::world::{End, Execution, What};

pub fn results_are_true(night: &Night, ids: &[RecordId]) -> Vec<String> {
    let mut broken = Vec::new();
    let deliveries = &night.scenario.deliveries;
    for result in &night.results {
        let key = deliveries.get(result.delivery).map_or(
            result.delivery.saturating_sub(deliveries.len()),
            |delivery| delivery.key,
        );
        let mine: Vec<&Execution> = night
            .executions
            .iter()
            .filter(|execution| execution.delivery == result.delivery)
            .collect();
        let recorded = |value| {
            completions(night, result.at)
                .any(|(change, found)| change.id == ids[key] && found == Some(value))
        };
        let ever_recorded =
            |value| completions(night, i64::MAX).any(|(_, found)| found == Some(value));
        let recorded_by = |value, counts: &dyn Fn(&Change) -> bool| {
            completions(night, i64::MAX)
                .any(|(change, found)| found == Some(value) && counts(change))
        };
        // Tells whether a write of the attempt stood when it was answered. A recorded outcome may have expired by the clock of a process
        // that is ahead, and been replaced, before that.
        let stood = |counts: &dyn Fn(&Change) -> bool| {
            mine.iter().any(|execution| {
                recorded_by(execution.value, &|change| {
                    counts(change) && !is_replaced(night, change, result.at)
                })
            })
        };
        let succeeded = |value| {
            mine.iter().any(|execution| {
                execution.value == value && matches!(execution.ended, Some((_, End::Succeeded)))
            })
        };
        let is_true = match &result.what {
            What::Executed(value) => succeeded(*value) && recorded(*value),
            What::Unrecorded(value) => succeeded(*value),
            What::Replayed(value) => {
                recorded(*value)
                    && night.executions[*value].key == key
                    && same_payload(night, result.delivery, *value)
            }
            What::Acknowledged => is_done(night, ids, result.delivery, key, result.at),
            What::Refused(code) => match *code {
                "an outcome of another kind" | "a batch that failed" | "an unexpected answer" => {
                    false
                }
                "outcome_omitted" => operator::redacted(night, &ids[key], result.at),
                // Neither then nor later: whatever is still on the wire. A record that was to run again says no more what its
                // attempt had written.
                "condition_failed" | "not_committed" => {
                    !mine.iter().any(|execution| ever_recorded(execution.value))
                        || operator::reran(night, &ids[key], 0, result.at)
                }
                // A copy may be so late that it has expired when it arrives.
                "lease_lost" => !stood(&|change| !is_expired(change)),
                "timed_out" => {
                    !mine.is_empty() && !mine.iter().any(|execution| ever_recorded(execution.value))
                }
                "handler_failed" | "unrecorded" | "outcome_unknown" => !mine.is_empty(),
                // A status says little of what became of the run; and a step may have found out about an interruption.
                "HTTP 409" | "HTTP 422" | "HTTP 500" | "HTTP 503" | "interrupted" => true,
                // The claimless form finds out when its handler has run. Nothing of it is committed while the record that it met
                // is there; a send without an answer may arrive when that has expired and been swept, and the key is fresh again.
                _ if mine.iter().all(|execution| execution.claimless) => {
                    !stood(&|change| !(change.late && is_fresh_again(night, change)))
                }
                // Those who come again and again ran in an earlier call.
                _ => mine.is_empty() || result.delivery >= deliveries.len(),
            },
            What::Reported | What::Crashed | What::HungUp | What::Panicked => true,
        };
        if !is_true {
            broken.push(format!("{result:?}, of {mine:?}"));
        }
    }
    broken
}

/// Returns whether a completion no longer stood by then: its record was swept, replaced as expired, or changed by an operator.
fn is_replaced(night: &Night, completion: &Change, by: i64) -> bool {
    let fresh = |change: &&Change| {
        change.id == completion.id
            && matches!(
                change.kind,
                Kind::Replace | Kind::Swept | Kind::Commit | Kind::Operator(_)
            )
            && (completion.at..=by).contains(&change.at)
            && change.before == completion.after
    };
    night.changes.iter().any(|change| fresh(&change))
}

/// Returns whether the record that stood under the key before was swept.
fn is_fresh_again(night: &Night, commit: &Change) -> bool {
    let swept = |change: &Change| {
        change.id == commit.id && change.kind == Kind::Swept && change.at <= commit.at
    };
    commit.before.is_none() && night.changes.iter().any(swept)
}

/// Returns whether the delivery and the one whose value this is carry the same payload. A patient caller tries both.
fn same_payload(night: &Night, delivery: usize, value: usize) -> bool {
    let deliveries = &night.scenario.deliveries;
    let origin = night.executions[value].delivery;
    match (deliveries.get(delivery), deliveries.get(origin)) {
        (Some(one), Some(other)) => one.payload == other.payload,
        _ => true,
    }
}

/// Returns whether a message's work was done when it was acknowledged.
fn is_done(night: &Night, ids: &[RecordId], delivery: usize, key: usize, at: i64) -> bool {
    let deliveries = &night.scenario.deliveries;
    let ran = night.executions.iter().any(|execution| {
        execution.key == key
            && same_payload(night, delivery, execution.value)
            && matches!(execution.ended, Some((ended, End::Succeeded)) if ended <= at)
    });
    let bound = |record: &Record| match (deliveries.get(delivery), &record.fingerprint) {
        (Some(delivery), Some(fingerprint)) => {
            *fingerprint == Fingerprint::json(payload(delivery).as_bytes())
        }
        _ => true,
    };
    ran || completions(night, at).any(|(change, _)| {
        change.id == ids[key]
            && change
                .after
                .as_ref()
                .is_some_and(|record| record.status == Status::Completed && bound(record))
    })
}
