//! Remembers the grouped actions that the function lacks the permission for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::statement::Verb;

/// The grouped actions that the service denied to the function.
#[derive(Clone, Debug, Default)]
pub(super) struct Denied(Arc<[AtomicBool; 3]>);

/// A permission that groups alone need.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Insert,
    Update,
    Get,
}

impl From<Verb> for Action {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Insert => Self::Insert,
            Verb::Update => Self::Update,
        }
    }
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Insert => "dynamodb:PartiQLInsert",
            Self::Update => "dynamodb:PartiQLUpdate",
            Self::Get => "dynamodb:BatchGetItem",
        }
    }
}

impl Denied {
    pub(super) fn has(&self, action: Action) -> bool {
        self.flag(action)
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    pub(super) fn note(&self, action: Action, table: &str) {
        let first = self
            .flag(action)
            .is_some_and(|flag| !flag.swap(true, Ordering::Relaxed));
        if first {
            tracing::warn!(
                event = "groups_denied",
                table,
                action = action.name(),
                "idempotency: requests go out one by one; allow the function this action to group them"
            );
        }
    }

    fn flag(&self, action: Action) -> Option<&AtomicBool> {
        self.0.get(action as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_has_the_name_that_a_policy_allows_it_by() {
        assert_eq!(Action::from(Verb::Insert).name(), "dynamodb:PartiQLInsert");
        assert_eq!(Action::from(Verb::Update).name(), "dynamodb:PartiQLUpdate");
        assert_eq!(Action::Get.name(), "dynamodb:BatchGetItem");
    }

    #[test]
    fn a_denial_is_remembered_for_its_own_action_and_by_all_clones() {
        let denied = Denied::default();
        let clone = denied.clone();
        denied.note(Action::Update, "records");
        denied.note(Action::Update, "records");
        assert!(clone.has(Action::Update));
        assert!(!clone.has(Action::Insert) && !clone.has(Action::Get));
    }
}
