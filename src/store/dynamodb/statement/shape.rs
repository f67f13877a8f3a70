//! Which changes share their words.

use super::super::change::{Change, Test, Value};
use super::super::layout::Attribute;

/// A change, as far as the text shows it.
#[derive(Debug, Default)]
pub(super) struct Shape {
    sets: Vec<(Attribute, Shown)>,
    removes: Vec<Attribute>,
    tests: Vec<Tested>,
    /// A step's name is in the text, and is not kept.
    has_step: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Tested {
    NoRecord,
    Equals(Attribute, Shown),
    /// In words that are not kept.
    Otherwise,
}

impl Shape {
    pub(super) fn of(change: &Change<'_>) -> Self {
        let sets = change.sets.iter();
        Self {
            sets: sets
                .map(|(attribute, value)| (*attribute, value.into()))
                .collect(),
            removes: change.removes.clone(),
            tests: change.tests.iter().map(Tested::of).collect(),
            has_step: change.step.is_some(),
        }
    }

    /// Whether it is this change's, too.
    pub(super) fn fits(&self, change: &Change<'_>) -> bool {
        let mut sets = self.sets.iter().zip(&change.sets);
        let same_sets = sets.all(|((attribute, shown), (other, value))| {
            attribute == other && *shown == value.into()
        });
        let mut tests = self.tests.iter().zip(&change.tests);
        let same_tests =
            tests.all(|(known, test)| *known != Tested::Otherwise && *known == Tested::of(test));
        self.sets.len() == change.sets.len()
            && self.tests.len() == change.tests.len()
            && self.removes == change.removes
            && !self.has_step
            && change.step.is_none()
            && same_sets
            && same_tests
    }
}

impl Tested {
    fn of(test: &Test) -> Self {
        match test {
            Test::NoRecord => Self::NoRecord,
            Test::Equals(attribute, value) => Self::Equals(*attribute, value.into()),
            Test::Less(..) | Test::Absent(_) | Test::OlderStep(..) => Self::Otherwise,
        }
    }
}

/// How the text shows a value: what is the same each time stands in the text itself, which makes a request shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Word(&'static str),
    Count(i64),
    Parameter,
}

impl From<&Value> for Shown {
    fn from(value: &Value) -> Self {
        match value {
            Value::Word(word) => Self::Word(word),
            Value::Count(count) => Self::Count(*count),
            Value::Given(_) => Self::Parameter,
        }
    }
}
