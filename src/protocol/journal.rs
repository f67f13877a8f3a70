//! The journal keeps a request's steps within bounds. It does no I/O.

use std::collections::BTreeMap;
use std::fmt;

use crate::protocol::clock::EpochMillis;
use crate::protocol::omission::Omission;

/// The number of steps that a request may have.
pub const MAX_STEPS: usize = 50;

/// The longest name of a step, in bytes.
pub const MAX_STEP_NAME_BYTES: usize = 64;

/// The largest result, in bytes of JSON, that is kept for a step.
pub const MAX_STEP_RESULT_BYTES: usize = 8 * 1_024;

/// The largest journal, in bytes. The record that holds it needs room for the outcome, too.
pub const MAX_JOURNAL_BYTES: usize = 128 * 1_024;

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepState {
    /// Its effect was about to fire; it may have happened.
    Pending,
    /// Its effect happened, with this result.
    Confirmed(StepResult),
    /// Its effect did not happen.
    Failed,
}

/// The result of a step's effect, as it is stored.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepResult {
    /// Its JSON text.
    Text(String),
    /// It could not be kept.
    Omitted(Omission),
}

/// Shows no result: it may hold anything.
impl fmt::Debug for StepResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Omitted(reason) => f.debug_tuple("Omitted").field(reason).finish(),
        }
    }
}

/// One step's entry, to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StepNote {
    /// The step.
    pub name: String,
    /// Its new entry.
    pub entry: StepEntry,
}

impl StepNote {
    /// Makes a note of this entry for the step of this name.
    pub fn new(name: impl Into<String>, entry: StepEntry) -> Self {
        Self {
            name: name.into(),
            entry,
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

    /// Tells whether no step was ever begun.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Tells whether a store may write this note: it is newer than the entry of the same step.
    pub fn takes(&self, note: &StepNote) -> bool {
        let known = self.get(&note.name).map_or(0, |entry| entry.revision);
        known < note.entry.revision
    }

    /// Puts an entry in the place of the earlier one.
    pub fn put(&mut self, note: StepNote) {
        self.steps.insert(note.name, note.entry);
    }

    /// Returns how often an operator gave the request new derived keys: 0 for those that it had first.
    pub fn key_generation(&self) -> u32 {
        self.get(KEYS).map_or(0, |entry| entry.tries)
    }

    /// Makes the note that gives the request new derived keys, in place of those that its attempts had.
    pub fn next_keys(&self, at: EpochMillis) -> StepNote {
        let begun = StepEntry::begun(self.get(KEYS), at);
        let counted = StepState::Confirmed(StepResult::Text("null".to_owned()));
        StepNote::new(KEYS, begun.ended(counted, None, at))
    }

    /// Estimates how many bytes it takes, in a store or in memory.
    pub(crate) fn size(&self) -> usize {
        self.iter().map(|(name, entry)| entry.size(name)).sum()
    }

    /// Tells whether a step of this name could begin and its result be kept, however large.
    pub(crate) fn has_room_for(&self, name: &str) -> bool {
        // What operators noted is no step.
        let others = self.steps.keys().filter(|other| is_step_name(other));
        let count = others.filter(|other| *other != name).count();
        let bytes = self.size() - self.get(name).map_or(0, |entry| entry.size(name));
        let largest = name.len() + ENTRY_OVERHEAD + MAX_STEP_RESULT_BYTES;
        count < MAX_STEPS && bytes + largest <= MAX_JOURNAL_BYTES
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
    pub fn begun(before: Option<&Self>, at: EpochMillis) -> Self {
        Self {
            state: StepState::Pending,
            revision: before.map_or(0, |entry| entry.revision).saturating_add(1),
            tries: before.map_or(0, |entry| entry.tries).saturating_add(1),
            last_error: before.and_then(|entry| entry.last_error.clone()),
            at,
        }
    }

    /// Makes the entry that a try leaves: one revision more.
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
            StepState::Confirmed(StepResult::Text(text)) => text.len(),
            // It may still get one.
            StepState::Pending => MAX_STEP_RESULT_BYTES,
            _ => 0,
        };
        let error = self.last_error.as_ref().map_or(0, String::len);
        name.len() + result + error + ENTRY_OVERHEAD
    }
}

/// Tells whether a name can be used: letters, digits, `-`, `_` and `.`, so that it reads well in a
/// log and in a store.
pub(crate) fn is_step_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= MAX_STEP_NAME_BYTES && name.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: EpochMillis = EpochMillis(7);

    fn entry(state: StepState) -> StepEntry {
        StepEntry::begun(None, AT).ended(state, None, AT)
    }

    fn text(bytes: usize) -> StepState {
        StepState::Confirmed(StepResult::Text("x".repeat(bytes)))
    }

    #[test]
    fn tries_count_how_often_the_effect_was_about_to_fire() {
        let first = StepEntry::begun(None, AT);
        let failed = first.ended(StepState::Failed, Some("Timeout"), AT);
        let again = StepEntry::begun(Some(&failed), AT);
        assert_eq!([first.tries, failed.tries, again.tries], [1, 1, 2]);
        assert_eq!([first.revision, failed.revision, again.revision], [1, 2, 3]);
        assert_eq!(again.last_error.as_deref(), Some("Timeout"));
    }

    #[test]
    fn a_journal_is_empty_until_its_first_step_begins() {
        let mut journal = Journal::default();
        assert!(journal.is_empty());
        assert_eq!((journal.get("charge"), journal.iter().count()), (None, 0));
        let begun = StepEntry::begun(None, AT);
        journal.put(StepNote::new("charge", begun.clone()));
        assert!(!journal.is_empty());
        assert_eq!(journal.iter().collect::<Vec<_>>(), [("charge", &begun)]);
    }

    #[test]
    fn a_step_takes_its_name_its_result_and_its_error_and_a_pending_one_the_largest_result() {
        let size = |state: StepState, error: Option<&str>| {
            let mut journal = Journal::default();
            let begun = StepEntry::begun(None, AT);
            journal.put(StepNote::new("charge", begun.ended(state, error, AT)));
            journal.size() - "charge".len() - ENTRY_OVERHEAD
        };
        assert_eq!(size(StepState::Failed, None), 0);
        assert_eq!(size(StepState::Failed, Some("Timeout")), 7);
        assert_eq!(size(text(5), None), 5);
        assert_eq!(size(text(5), Some("Timeout")), 5 + 7);
        let omitted = StepState::Confirmed(StepResult::Omitted(Omission::TooLarge));
        assert_eq!(size(omitted, None), 0);
        assert_eq!(size(StepState::Pending, None), MAX_STEP_RESULT_BYTES);
    }

    #[test]
    fn a_step_that_is_known_keeps_its_place_in_a_full_journal() {
        let mut full = Journal::default();
        for number in 0..15 {
            let name = format!("step-{number:02}");
            full.put(StepNote::new(name, entry(text(MAX_STEP_RESULT_BYTES))));
        }
        assert!(!full.has_room_for("step-15"));
        assert!(full.has_room_for("step-07"));
    }

    #[test]
    fn an_older_note_is_not_taken() {
        let mut journal = Journal::default();
        let pending = StepNote {
            name: "charge".to_owned(),
            entry: StepEntry::begun(None, AT),
        };
        let confirmed = StepNote {
            entry: pending.entry.ended(text(1), None, AT),
            ..pending.clone()
        };
        assert!(journal.takes(&pending));
        journal.put(confirmed.clone());
        assert!(!journal.takes(&pending));
        assert!(!journal.takes(&confirmed));
    }

    #[test]
    fn the_number_of_steps_and_their_size_are_bounded() {
        let mut many = Journal::default();
        for number in 0..MAX_STEPS {
            assert!(many.has_room_for(&format!("step-{number}")));
            many.put(StepNote {
                name: format!("step-{number}"),
                entry: entry(text(1)),
            });
        }
        assert!(!many.has_room_for("one-more"));
        assert!(many.has_room_for("step-0"), "it has its place");

        let mut large = Journal::default();
        let mut count = 0;
        while large.has_room_for(&format!("step-{count}")) {
            large.put(StepNote {
                name: format!("step-{count}"),
                entry: entry(text(MAX_STEP_RESULT_BYTES)),
            });
            count += 1;
        }
        assert_eq!(count, 15);
    }

    #[test]
    fn a_step_begins_only_if_the_largest_result_would_fit() {
        // What is left beside the steps that are there, to the byte.
        let filled = |spare: usize| {
            let mut journal = Journal::default();
            let largest = 1 + ENTRY_OVERHEAD + MAX_STEP_RESULT_BYTES;
            let room = MAX_JOURNAL_BYTES - largest - spare;
            let last_error = "x".repeat(room - 1 - ENTRY_OVERHEAD);
            let entry = StepEntry {
                last_error: Some(last_error),
                ..entry(StepState::Failed)
            };
            let name = "a".to_owned();
            journal.put(StepNote { name, entry });
            journal
        };
        assert_eq!(
            filled(0).size(),
            MAX_JOURNAL_BYTES - MAX_STEP_RESULT_BYTES - 101
        );
        assert!(filled(0).has_room_for("b"));
        assert!(!filled(0).has_room_for("bb"));
        assert!(filled(1).has_room_for("bb"));
    }

    #[test]
    fn each_note_of_new_keys_is_the_next_generation_and_takes_the_place_of_no_step() {
        let mut journal = Journal::default();
        assert_eq!(journal.key_generation(), 0);
        for generation in 1..4 {
            let note = journal.next_keys(AT);
            assert!(journal.takes(&note) && !is_step_name(&note.name));
            journal.put(note);
            assert_eq!(journal.key_generation(), generation);
        }
        for number in 1..MAX_STEPS {
            journal.put(StepNote::new(format!("step-{number}"), entry(text(1))));
        }
        assert!(journal.has_room_for("step-0"));
        journal.put(StepNote::new("step-0", entry(text(1))));
        assert!(!journal.has_room_for("one-more") && journal.has_room_for("step-0"));
    }

    #[test]
    fn names_are_short_and_plain() {
        for name in ["charge", "send-mail.2", &"x".repeat(64)] {
            assert!(is_step_name(name), "{name}");
        }
        for name in ["", "a b", "a:b", "ü", "a\n", &"x".repeat(65)] {
            assert!(!is_step_name(name), "{name}");
        }
    }
}
