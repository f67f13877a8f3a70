//! What journaled steps promise.

use lambda_idempotency::RecordId;
use lambda_idempotency::journal::StepState;

use crate::night::Night;
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
        let is_fresh =
            |change: &Change| matches!(change.kind, Kind::Create | Kind::Replace | Kind::Swept);
        let mine = |change: &&Change| change.id == ids[effect.key] && change.at <= effect.at;
        let name = format!("step-{}", effect.step);
        // Backwards, until the key was fresh. What was written in the same instant may have been written after.
        let confirmed = night
            .changes
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
