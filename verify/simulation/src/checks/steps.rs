//! The promises of journaled steps.

use lambda_idempotency::RecordId;
use lambda_idempotency::protocol::journal::StepState;

use super::operator;
use crate::night::Night;
use crate::operator::Act;
use crate::scenario::MARGIN;
use crate::watched::{Change, Kind};
use crate::world::Effect;

/// Once its result stands in the journal, until the key is fresh again; always with the same key; and whoever skips it gets
/// what an effect of this step gave.
pub fn steps_fire_once(night: &Night, ids: &[RecordId]) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, effect) in night.effects.iter().enumerate() {
        let same = |other: &&Effect| other.key == effect.key && other.step == effect.step;
        let others = night.effects.iter().take(number).filter(same);
        if others.clone().any(|other| other.derived != effect.derived) {
            broken.push(format!("{effect:?} was given another key"));
        }
        let is_fresh = |change: &Change| {
            matches!(
                change.kind,
                Kind::Create | Kind::Replace | Kind::Swept | Kind::Operator(Act::RerunInFull)
            )
        };
        let mine = |change: &&Change| change.id == ids[effect.key] && change.at <= effect.at;
        let name = format!("step-{}", effect.step);
        // Backwards, until the key was fresh. A write of the same instant may have come after the effect.
        let confirmed = known(night, ids, effect)
            .iter()
            .rev()
            .filter(mine)
            .take_while(|change| !is_fresh(change))
            .find(|change| {
                let record = change.after.as_ref();
                let entry = record.and_then(|record| record.journal.get(&name));
                change.at < effect.at
                    && entry.is_some_and(|entry| matches!(entry.state, StepState::Confirmed(_)))
            });
        if let Some(change) = confirmed {
            broken.push(format!("{effect:?} after {change:?}"));
        }
    }
    for execution in &night.executions {
        for (step, effect) in execution.steps.iter().enumerate() {
            let origin = &night.effects[*effect];
            if origin.key != execution.key || origin.step != step {
                broken.push(format!("{execution:?} was given what {origin:?} gave"));
            }
        }
    }
    broken
}

/// The changes that an effect has to respect. Within the margin, all before it: nobody confirms a step while another has time to let
/// it fire. Beyond the margin, or after an operator's release, a successor may take a live claim over and confirm the step, while its predecessor waits for
/// the answer to its own note: then only what stood there when its claim was made counts.
fn known<'a>(night: &'a Night, ids: &[RecordId], effect: &Effect) -> &'a [Change] {
    let released = operator::released_live(night, &ids[effect.key], effect.at);
    if night.scenario.clocks_agree() && !released {
        return &night.changes;
    }
    let execution = &night.executions[effect.value];
    let is_its_claim = |change: &Change| {
        let claim = change.after.as_ref();
        change.id == ids[effect.key]
            && matches!(change.kind, Kind::Create | Kind::Replace | Kind::Resume)
            && claim.is_some_and(|claim| {
                claim.attempt == execution.attempt
                    && claim.lease.map(|lease| lease.0) == Some(execution.claimed_until + MARGIN)
            })
    };
    let claimed = night.changes.iter().position(is_its_claim);
    // A takeover's own change shows what it took over.
    &night.changes[..claimed.map_or(0, |position| position + 1)]
}
