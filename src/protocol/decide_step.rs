//! Decides what to do about a step, from its entry in the journal.

use crate::protocol::OnCrash;
use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::{StepEntry, StepResult, StepState};

/// The decision about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepDecision<'a> {
    /// Record it as pending, then let its effect happen.
    Fire,
    /// Its effect happened, with this result.
    Skip(&'a StepResult),
    /// It may have happened, and the policy wants a person to look.
    Interrupted {
        /// The time when it began.
        since: EpochMillis,
    },
}

/// Decides what to do about a step, given its entry. The function is pure.
pub fn decide_step(known: Option<&StepEntry>, crashed: OnCrash) -> StepDecision<'_> {
    match known.map(|entry| (&entry.state, entry.at)) {
        Some((StepState::Confirmed(result), _)) => StepDecision::Skip(result),
        Some((StepState::Pending, since)) if crashed == OnCrash::Interrupt => {
            StepDecision::Interrupted { since }
        }
        _ => StepDecision::Fire,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: EpochMillis = EpochMillis(7);
    const AFTER: OnCrash = OnCrash::RunAgainAfter(std::time::Duration::from_hours(1));

    fn entry(state: StepState) -> StepEntry {
        StepEntry::begun(None, AT).ended(state, None, AT)
    }

    #[test]
    fn what_is_confirmed_is_skipped_under_every_policy() {
        for crashed in [OnCrash::RunAgain, AFTER, OnCrash::Interrupt] {
            let known = entry(StepState::Confirmed(StepResult::Text("1".to_owned())));
            let decision = decide_step(Some(&known), crashed);
            assert!(matches!(decision, StepDecision::Skip(StepResult::Text(_))));
        }
    }

    #[test]
    fn what_is_pending_fires_again_or_waits_for_a_person() {
        let known = entry(StepState::Pending);
        let decide = |crashed| decide_step(Some(&known), crashed);
        assert_eq!(decide(OnCrash::RunAgain), StepDecision::Fire);
        assert_eq!(
            decide(OnCrash::Interrupt),
            StepDecision::Interrupted { since: AT }
        );
    }

    #[test]
    fn what_failed_or_never_began_fires_under_every_policy() {
        let failed = entry(StepState::Failed);
        for known in [None, Some(&failed)] {
            for crashed in [OnCrash::RunAgain, OnCrash::Interrupt] {
                assert_eq!(decide_step(known, crashed), StepDecision::Fire);
            }
        }
    }
}
