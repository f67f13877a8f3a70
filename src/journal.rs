//! What is known of a request's steps: the values, and their bounds. No I/O.

use std::collections::BTreeMap;
use std::fmt;

use crate::clock::EpochMillis;
use crate::omission::Omission;

/// How many steps a request may have.
pub const MAX_STEPS: usize = 50;

/// How long a step's name may be, in bytes.
pub const MAX_STEP_NAME_BYTES: usize = 64;

/// The largest result, in bytes of JSON, that is kept for a step.
pub const MAX_STEP_RESULT_BYTES: usize = 8 * 1_024;

/// How large a journal may become, in bytes: far below the 400 KB that DynamoDB takes in an item, since the outcome needs room
/// there, too.
pub const MAX_JOURNAL_BYTES: usize = 128 * 1_024;

/// What an entry takes beside its name, its result and its error: names of attributes, numbers, a time.
const ENTRY_OVERHEAD: usize = 100;

/// The steps that a request's attempts have begun, by name. A takeover keeps it, a release too; a fresh claim starts without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Journal {
    steps: BTreeMap<String, StepEntry>,
}

/// What is known of one step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepEntry {
    /// Where it stands.
    pub state: StepState,
    /// How often the entry was written. A store refuses an older one, so a write that arrives late changes nothing.
    pub revision: u32,
    /// How often its effect was about to fire.
    pub tries: u32,
    /// The type of the error that it last ended with, never its message.
    pub last_error: Option<String>,
    /// When the entry was written.
    pub at: EpochMillis,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepState {
    /// Its effect was about to fire; it may have happened.
    Pending,
    /// Its effect happened, and this came of it.
    Confirmed(StepResult),
    /// Its effect did not happen.
    Failed,
}

/// What came of a step's effect, as it is stored.
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
pub struct StepNote {
    /// The step.
    pub name: String,
    /// What is known of it from now on.
    pub entry: StepEntry,
}

impl Journal {
    /// What is known of a step.
    pub fn get(&self, name: &str) -> Option<&StepEntry> {
        self.steps.get(name)
    }

    /// All steps, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &StepEntry)> {
        self.steps
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Whether no step was ever begun.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a store may write this note: it is newer than what stands there.
    pub fn takes(&self, note: &StepNote) -> bool {
        let known = self.get(&note.name).map_or(0, |entry| entry.revision);
        known < note.entry.revision
    }

    /// Puts an entry in the place of what stood there.
    pub fn put(&mut self, note: StepNote) {
        self.steps.insert(note.name, note.entry);
    }

    /// About how many bytes it takes, in an item or in memory.
    pub(crate) fn size(&self) -> usize {
        self.iter().map(|(name, entry)| entry.size(name)).sum()
    }

    /// Whether a step of this name could begin and its result be kept, however large.
    pub(crate) fn has_room_for(&self, name: &str) -> bool {
        let (count, bytes) = match self.get(name) {
            Some(entry) => (self.steps.len() - 1, self.size() - entry.size(name)),
            None => (self.steps.len(), self.size()),
        };
        let largest = name.len() + ENTRY_OVERHEAD + MAX_STEP_RESULT_BYTES;
        count < MAX_STEPS && bytes + largest <= MAX_JOURNAL_BYTES
    }
}

impl StepEntry {
    /// A step that is about to let its effect fire: one revision and one try more than what is known of it.
    pub fn begun(before: Option<&Self>, at: EpochMillis) -> Self {
        Self {
            state: StepState::Pending,
            revision: before.map_or(0, |entry| entry.revision).saturating_add(1),
            tries: before.map_or(0, |entry| entry.tries).saturating_add(1),
            last_error: before.and_then(|entry| entry.last_error.clone()),
            at,
        }
    }

    /// What the try left: one revision more.
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

/// Whether a name can be used: letters, digits, `-`, `_` and `.`, so that it reads well in a log and in the table.
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
    fn names_are_short_and_plain() {
        for name in ["charge", "send-mail.2", &"x".repeat(64)] {
            assert!(is_step_name(name), "{name}");
        }
        for name in ["", "a b", "a:b", "ü", "a\n", &"x".repeat(65)] {
            assert!(!is_step_name(name), "{name}");
        }
    }
}
