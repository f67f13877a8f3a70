//! Keeps a request's steps, and those of a saga, within bounds. It does no I/O.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::protocol::causes::unquoted;
use crate::protocol::clock::EpochMillis;
use crate::protocol::outcome::{Failure, Omission};

#[cfg(test)]
mod tests;

/// The number of steps that a request may have.
pub(crate) const MAX_STEPS: usize = 50;

/// The longest name of a step, in bytes.
pub(crate) const MAX_STEP_NAME_BYTES: usize = 64;

/// The largest result, in bytes of JSON, that is kept for a step.
#[doc(hidden)]
pub const MAX_STEP_RESULT_BYTES: usize = 8 * 1_024;

/// The largest journal, in bytes. The record that holds it needs room for the outcome, too.
pub(crate) const MAX_JOURNAL_BYTES: usize = 128 * 1_024;

/// The entry that counts how often the request was given new derived keys. A handler's step can't have
/// this name.
const KEYS: &str = "@keys";

/// The bytes that an entry takes beside its name, its result and its error: names of attributes,
/// numbers, a time.
const ENTRY_OVERHEAD: usize = 100;

/// The steps that a request's attempts have begun, by name. A takeover keeps it, a release too; a
/// fresh claim starts without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Journal {
    steps: BTreeMap<String, StepEntry>,
}

/// The entry of one step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StepEntry {
    /// The state of the step.
    pub state: StepState,
    /// The number of times that the entry was written. A store refuses an older one, so a write
    /// that arrives late changes nothing.
    pub revision: u32,
    /// The number of times that its effect was about to fire.
    pub tries: u32,
    /// The type of the error that it last ended with, never its message.
    pub last_error: Option<String>,
    /// The time when the entry was written.
    pub at: EpochMillis,
}

/// The state of a step.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepState {
    /// Its effect was about to fire; it may have happened.
    Pending,
    /// Its effect happened, with this result: its JSON text, or why it was not kept.
    Confirmed(Result<String, Omission>),
    /// Its effect did not happen.
    Failed,
}

/// Shows no result: it may hold anything.
impl fmt::Debug for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("Pending"),
            Self::Confirmed(Ok(text)) => write!(f, "Confirmed({} bytes)", text.len()),
            Self::Confirmed(Err(reason)) => f.debug_tuple("Confirmed").field(reason).finish(),
            Self::Failed => f.write_str("Failed"),
        }
    }
}

impl Journal {
    /// Returns the entry of a step.
    pub fn get(&self, name: &str) -> Option<&StepEntry> {
        self.steps.get(name)
    }

    /// Iterates over all steps, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &StepEntry)> {
        self.steps
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns whether no step was ever begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns whether a store may write this entry: it is newer than that of the same step.
    pub(crate) fn takes(&self, name: &str, entry: &StepEntry) -> bool {
        self.get(name).map_or(0, |known| known.revision) < entry.revision
    }

    /// Puts an entry instead of the earlier one.
    pub fn put(&mut self, name: impl Into<String>, entry: StepEntry) {
        self.steps.insert(name.into(), entry);
    }

    /// Returns how often an operator gave the request new derived keys: 0 for those that it had first.
    #[doc(hidden)]
    pub fn key_generation(&self) -> u32 {
        self.get(KEYS).map_or(0, |entry| entry.tries)
    }

    /// Returns the confirmed steps that an operator kept when it gave the request new derived keys: their
    /// effects have older ones.
    #[doc(hidden)]
    pub fn kept_steps(&self) -> impl Iterator<Item = &str> {
        let renewed_at = self.get(KEYS).map(|entry| entry.at);
        let kept = self.iter().filter(move |(name, entry)| {
            let is_confirmed = matches!(entry.state, StepState::Confirmed(_));
            is_confirmed && Some(entry.at) <= renewed_at && !name.starts_with('@')
        });
        kept.map(|(name, _)| name)
    }

    /// Returns whether its record is kept as long as an outcome, once it is final: it says that the effect of a
    /// step may have happened, whether or not a saga has undone it, or that an operator gave the request new
    /// derived keys.
    pub(crate) fn is_to_be_kept(&self) -> bool {
        let mut steps = self.iter().filter(|(name, _)| is_step_name(name));
        self.key_generation() > 0 || steps.any(|(_, entry)| entry.state != StepState::Failed)
    }

    /// Makes the entry that gives the request new derived keys, in place of those that its attempts had.
    #[doc(hidden)]
    pub fn next_keys(&self, at: EpochMillis) -> (String, StepEntry) {
        let begun = StepEntry::begun(self.get(KEYS), at);
        let counted = StepState::Confirmed(Ok("null".to_owned()));
        (KEYS.to_owned(), begun.ended(counted, None, at))
    }

    /// Estimates how many bytes it takes, in a store or in memory.
    pub(crate) fn size(&self) -> usize {
        self.iter().map(|(name, entry)| entry.size(name)).sum()
    }

    /// Returns whether a step of this name could begin and its result be kept, however large, beside those
    /// that have begun and have no entry yet.
    pub(crate) fn has_room_for<'a>(
        &self,
        name: &str,
        begun: impl Iterator<Item = &'a String>,
    ) -> bool {
        let largest = |name: &str| name.len() + ENTRY_OVERHEAD + MAX_STEP_RESULT_BYTES;
        let unnoted = begun.filter(|other| self.get(other).is_none());
        let (unnoted, their_bytes) = unnoted.fold((0, 0), |(count, bytes), other| {
            (count + 1, bytes + largest(other))
        });
        // A note of operators is no step.
        let others = self.steps.keys().filter(|other| is_step_name(other));
        let count = others.filter(|other| *other != name).count() + unnoted;
        let bytes = self.size() + their_bytes - self.get(name).map_or(0, |entry| entry.size(name));
        count < MAX_STEPS && bytes + largest(name) <= MAX_JOURNAL_BYTES
    }
}

/// Of several entries of one step, the last one stays.
impl<N: Into<String>> FromIterator<(N, StepEntry)> for Journal {
    fn from_iter<I: IntoIterator<Item = (N, StepEntry)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        Self {
            steps: entries.map(|(name, entry)| (name.into(), entry)).collect(),
        }
    }
}

impl StepEntry {
    /// Makes an entry without an error, as a store decodes it.
    pub fn new(state: StepState, revision: u32, tries: u32, at: EpochMillis) -> Self {
        Self {
            state,
            revision,
            tries,
            last_error: None,
            at,
        }
    }

    /// Makes the entry of a step whose effect is about to fire: one revision and one try more than
    /// before.
    #[doc(hidden)]
    pub fn begun(before: Option<&Self>, at: EpochMillis) -> Self {
        Self {
            state: StepState::Pending,
            revision: before.map_or(0, |entry| entry.revision).saturating_add(1),
            tries: before.map_or(0, |entry| entry.tries).saturating_add(1),
            last_error: None,
            at,
        }
    }

    /// Makes the entry that a try leaves: one revision more.
    #[doc(hidden)]
    pub fn ended(&self, state: StepState, error: Option<&str>, at: EpochMillis) -> Self {
        Self {
            state,
            revision: self.revision.saturating_add(1),
            tries: self.tries,
            last_error: error.map(str::to_owned).or_else(|| self.last_error.clone()),
            at,
        }
    }

    fn size(&self, name: &str) -> usize {
        let result = match &self.state {
            StepState::Confirmed(Ok(text)) => text.len(),
            // It may still get one.
            StepState::Pending => MAX_STEP_RESULT_BYTES,
            _ => 0,
        };
        let error = self.last_error.as_ref().map_or(0, String::len);
        name.len() + result + error + ENTRY_OVERHEAD
    }
}

/// Returns whether a name can be used: letters, digits, `-`, `_` and `.`, so that it reads well in a
/// log and in a store.
pub(crate) fn is_step_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= MAX_STEP_NAME_BYTES && name.chars().all(allowed)
}

/// The entry of a saga's state. A handler's step can't have this name.
#[doc(hidden)]
pub const SAGA: &str = "@saga";

/// The end of a compensation's name. A handler's step can't have a slash in its name.
#[doc(hidden)]
pub const UNDO: &str = "/undo";

/// The error of a compensation that no delivery can fire.
#[doc(hidden)]
pub const BY_HAND: &str = "by hand";

/// Returns the name of a step's compensation, which its key is derived from, too.
pub(crate) fn undo_of(step: &str) -> String {
    format!("{step}{UNDO}")
}

/// The status of a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
#[non_exhaustive]
pub enum SagaStatus {
    /// Its steps are under way, or wait for the next delivery.
    Running,
    /// All of its steps are done.
    Completed,
    /// Its completed steps are being undone, or wait for the next delivery to be.
    Compensating,
    /// Its completed steps are undone.
    Compensated,
    /// Its completed steps are not undone: its handler failed permanently without
    /// [`Saga::abort`](crate::Saga::abort), or an operator ended it while it compensated.
    Failed,
    /// An operator must settle one of its steps, or of its compensations.
    Stuck,
}

#[doc(hidden)]
impl SagaStatus {
    /// Returns the word for it: `running`, `completed`, `compensating`, `compensated`, `failed` or
    /// `stuck`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Compensating => "compensating",
            Self::Compensated => "compensated",
            Self::Failed => "failed",
            Self::Stuck => "stuck",
        }
    }
}

/// The state of a saga, as its entry has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)]
pub struct SagaState {
    /// The failure for which it is compensated: from then on nothing goes forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The steps that were confirmed by then, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<String>,
    /// The step, or the compensation, that an operator must settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stuck: Option<String>,
    /// An operator has erased the rest.
    #[serde(skip)]
    pub is_erased: bool,
}

impl Journal {
    /// Returns the journal, unless the state of its saga can't be read: where the saga `goes_on`, it may
    /// be compensating, and must not go forward again.
    pub(crate) fn checked(self, goes_on: bool) -> Result<Self, String> {
        if goes_on
            && let Some(StepState::Confirmed(Ok(text))) = self.get(SAGA).map(|entry| &entry.state)
        {
            let state = serde_json::from_str::<SagaState>(text);
            state.map_err(|error| format!("`step:{SAGA}`: {}", unquoted(&error)))?;
        }
        Ok(self)
    }
}

#[doc(hidden)]
impl SagaState {
    /// Reads the state; `None` where no saga was begun, or an operator has it begin anew. One that was erased
    /// has no more to say.
    pub fn of(journal: &Journal) -> Option<Self> {
        Some(match &journal.get(SAGA)?.state {
            StepState::Failed => return None,
            StepState::Confirmed(Ok(text)) => serde_json::from_str(text).unwrap_or_default(),
            _ => Self {
                is_erased: true,
                ..Self::default()
            },
        })
    }

    /// Returns whether it is compensated: each step that was confirmed is undone, or was settled as failed.
    pub(crate) fn is_undone(&self, journal: &Journal) -> bool {
        if self.is_erased {
            // Its list of them is erased, too: each step counts.
            let mut steps = journal.iter().filter(|(name, _)| is_step_name(name));
            return steps.all(|(step, _)| is_undone(journal, step));
        }
        self.failure.is_some() && self.confirmed.iter().all(|step| is_undone(journal, step))
    }

    /// Returns whether an operator must settle an entry, and has not done so.
    pub(crate) fn is_stuck(&self, journal: &Journal) -> bool {
        let entry = self.stuck.as_ref().and_then(|name| journal.get(name));
        entry.is_some_and(|entry| entry.state == StepState::Pending)
    }
}

/// Returns whether nothing is left to undo of a confirmed step: its undo is confirmed, or it was settled as
/// failed.
pub(crate) fn is_undone(journal: &Journal, step: &str) -> bool {
    let state = |name: &str| journal.get(name).map(|entry| &entry.state);
    state(step) == Some(&StepState::Failed)
        || matches!(state(&undo_of(step)), Some(StepState::Confirmed(_)))
}
