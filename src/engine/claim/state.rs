//! The state of one attempt's steps.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::Engine;
use crate::engine::settings::Settings;
use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::Journal;
use crate::protocol::record::Failure;

/// The steps of one attempt.
#[derive(Debug)]
pub(super) struct Steps {
    /// `None` where nothing protects the run, so that nothing is written, and in the claimless
    /// form, which has no journal.
    pub(super) engine: Option<Arc<Engine>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The steps, with what this attempt has sent, whether or not it was answered.
    pub(super) journal: Journal,
    /// The steps that are running.
    pub(super) busy: BTreeSet<String>,
    /// The steps whose results the handler has been given.
    pub(super) given: BTreeSet<String>,
    pub(super) stop: Option<Stop>,
    pub(super) has_saga: bool,
    /// A saga is being undone.
    pub(super) goes_back: bool,
    /// The failure of a saga that was undone.
    pub(super) compensated: Option<Failure>,
}

/// The reason why an attempt can't go on, whatever its handler returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    LeaseLost,
    Interrupted { since: EpochMillis },
}

impl Steps {
    pub(super) fn new(engine: Option<Arc<Engine>>, journal: Journal) -> Self {
        Self {
            engine,
            state: Mutex::new(State {
                journal,
                ..State::default()
            }),
        }
    }

    /// Returns the engine's settings, where a journal is written.
    pub(super) fn settings(&self) -> Option<&Settings> {
        self.engine.as_ref().map(|engine| &engine.settings)
    }

    /// Locks the state. A panic elsewhere can't leave it half-changed: each change is one step.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
