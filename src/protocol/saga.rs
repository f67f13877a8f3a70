//! What the journal says of a saga. Pure.

use serde::{Deserialize, Serialize};

use crate::protocol::journal::{Journal, StepResult, StepState};
use crate::protocol::record::{Failure, Record, Status};

/// The entry of a saga's state. A handler's step can't have this name.
pub(crate) const SAGA: &str = "@saga";

/// What a compensation's name ends with. A handler's step can't have a slash in its name.
const UNDO: &str = "/undo";

/// Returns the name of a step's compensation, which its key is derived from, too.
pub(crate) fn undo_of(step: &str) -> String {
    format!("{step}{UNDO}")
}

/// The status of a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SagaStatus {
    /// Its steps are under way, or wait for the next delivery.
    Running,
    /// All of its steps are done.
    Completed,
    /// What was done is being undone, or waits for the next delivery to be.
    Compensating,
    /// What was done is undone.
    Compensated,
    /// A person must settle one of its steps, or of its compensations.
    Stuck,
}

impl SagaStatus {
    /// Returns the status of a record's saga; `None` where it has none.
    pub fn of(record: &Record) -> Option<Self> {
        let state = SagaState::of(&record.journal)?;
        Some(match record.status {
            Status::Completed if state.failure.is_none() => Self::Completed,
            // A handler may return a success from there.
            Status::Completed | Status::Failed => Self::Compensated,
            _ if state.is_stuck(&record.journal) => Self::Stuck,
            _ if state.failure.is_some() => Self::Compensating,
            _ => Self::Running,
        })
    }

    /// Returns the word for it: `running`, `completed`, `compensating`, `compensated` or `stuck`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Compensating => "compensating",
            Self::Compensated => "compensated",
            Self::Stuck => "stuck",
        }
    }
}

/// The state of a saga, as its entry has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SagaState {
    /// The failure for which it is compensated: from then on nothing goes forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
    /// The steps that were confirmed by then, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) confirmed: Vec<String>,
    /// The step, or the compensation, that a person must settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stuck: Option<String>,
}

impl SagaState {
    /// Reads the state; `None` where no saga was begun. One that was erased has no more to say.
    pub(crate) fn of(journal: &Journal) -> Option<Self> {
        Some(match &journal.get(SAGA)?.state {
            StepState::Confirmed(StepResult::Text(text)) => {
                serde_json::from_str(text).unwrap_or_default()
            }
            _ => Self::default(),
        })
    }

    /// Tells whether a person must settle an entry, and has not done so.
    pub(crate) fn is_stuck(&self, journal: &Journal) -> bool {
        let entry = self.stuck.as_ref().and_then(|name| journal.get(name));
        entry.is_some_and(|entry| entry.state == StepState::Pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::clock::{EpochMillis, EpochSeconds};
    use crate::protocol::journal::{StepEntry, StepNote, is_step_name};

    fn record(status: Status, state: &SagaState, undo: StepState) -> Record {
        let mut record = Record::new(status, EpochSeconds(9));
        let text = StepResult::Text(serde_json::to_string(state).unwrap());
        for (name, state) in [(SAGA, StepState::Confirmed(text)), ("charge/undo", undo)] {
            let entry = StepEntry::new(state, 1, 1, EpochMillis(7));
            record.journal.put(StepNote::new(name, entry));
        }
        record
    }

    #[test]
    fn the_record_and_its_journal_give_the_status() {
        let running = SagaState::default();
        let back = SagaState {
            failure: Some(Failure {
                kind: "Declined".to_owned(),
                message: "declined".to_owned(),
            }),
            confirmed: vec!["charge".to_owned()],
            stuck: None,
        };
        let stuck = SagaState {
            stuck: Some("charge/undo".to_owned()),
            ..back.clone()
        };
        let (under_way, pending) = (Status::InProgress, || StepState::Pending);
        for (status, state, undo, expected) in [
            (under_way, &running, pending(), SagaStatus::Running),
            (under_way, &back, pending(), SagaStatus::Compensating),
            (under_way, &stuck, pending(), SagaStatus::Stuck),
            // A person has settled it.
            (
                under_way,
                &stuck,
                StepState::Failed,
                SagaStatus::Compensating,
            ),
            (Status::Failed, &back, pending(), SagaStatus::Compensated),
            (Status::Completed, &back, pending(), SagaStatus::Compensated),
            (
                Status::Completed,
                &running,
                pending(),
                SagaStatus::Completed,
            ),
        ] {
            let found = SagaStatus::of(&record(status, state, undo));
            assert_eq!(found, Some(expected), "{state:?}");
        }
        let plain = Record::new(under_way, EpochSeconds(9));
        assert_eq!(SagaStatus::of(&plain), None);
    }

    #[test]
    fn no_step_has_the_name_of_a_compensation() {
        assert!(!is_step_name(SAGA) && !is_step_name(&undo_of("charge")));
    }
}
