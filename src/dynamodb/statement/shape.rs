//! Recognises changes that share the text of their statement.

use super::super::change::{Change, Test, Value};
use super::super::layout::Attribute;

/// The part of a change that the text shows.
#[derive(Debug, Default)]
pub(super) struct Shape {
    sets: Vec<(Attribute, Shown)>,
    removes: Vec<Attribute>,
    tests: Vec<Tested>,
    /// The text has the step's name, which is not kept here.
    has_step: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Tested {
    NoRecord,
    Equals(Attribute, Shown),
    /// A test whose text is not kept.
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
            has_step: !change.steps.is_empty(),
        }
    }

    /// Tests whether this change has the same shape.
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
            && change.steps.is_empty()
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

/// The form of a value in the text: a value that is the same each time is in the text itself, which
/// makes a request shorter.
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

#[cfg(test)]
mod tests;
