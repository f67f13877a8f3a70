//! The keys that callers leave behind when they hang up, in a process that lives on.

use lambda_idempotency::{OnCrash, RecordId};

use crate::night::Night;
use crate::scenario::{Delivery, Door};
use crate::watched::{Change, Kind};
use crate::world::{BASE, Execution, What};

/// The time that a delivery's invocation must have left, at least, to send the endings that others have left.
const ENOUGH: i64 = 300;

/// Where no call fails, a key is not held by a run that was dropped before this call of the same process began. A process that was told
/// to leave crashed attempts to an operator sends nothing.
pub fn keys_are_free(night: &Night, ids: &[RecordId]) -> Vec<String> {
    let scenario = &night.scenario;
    if scenario.door != Door::Engine
        || scenario.trouble > 0.0
        || scenario.crashed != OnCrash::RunAgain
    {
        return Vec::new();
    }
    let mut broken = Vec::new();
    for result in &night.results {
        let Some(delivery) = scenario.deliveries.get(result.delivery) else {
            continue;
        };
        let sends = !dies(delivery) && delivery.deadline.is_none_or(|left| left > ENOUGH);
        if result.what != What::Refused("in_flight") || !sends {
            continue;
        }
        let Some(holder) = holder(night, &ids[delivery.key], delivery.key, result.at) else {
            continue;
        };
        let began = BASE.0 + delivery.at;
        if let Some(held_by) = scenario.deliveries.get(holder.delivery)
            && held_by.worker == delivery.worker
            && was_dropped(night, holder.delivery, began)
        {
            broken.push(format!("{result:?} by {holder:?}"));
        }
    }
    broken
}

fn dies(delivery: &Delivery) -> bool {
    delivery.cut_off().is_some_and(|(_, dies)| dies)
}

fn was_dropped(night: &Night, delivery: usize, before: i64) -> bool {
    night.results.iter().any(|result| {
        result.delivery == delivery && result.what == What::HungUp && result.at < before
    })
}

/// The execution that had claimed the key by then. Where no call fails, it begins with its claim.
fn holder<'a>(night: &'a Night, id: &RecordId, key: usize, by: i64) -> Option<&'a Execution> {
    let is_claim = |change: &&Change| {
        change.id == *id
            && change.at <= by
            && matches!(change.kind, Kind::Create | Kind::Replace | Kind::Resume)
    };
    let claim = night.changes.iter().rfind(is_claim)?;
    let attempt = claim.after.as_ref()?.attempt;
    night.executions.iter().find(|execution| {
        // One without a claim may have begun in the same instant.
        !execution.claimless
            && execution.key == key
            && execution.attempt == attempt
            && execution.began == claim.at
    })
}
