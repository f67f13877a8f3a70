//! States changes in PartiQL. Every name is quoted: several are reserved words.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, ReturnValuesOnConditionCheckFailure as OnFailure,
};

use crate::dynamodb::change::{Change, Test, Value};
use crate::dynamodb::layout::{Attribute, TableLayout};
use crate::protocol::record::RecordWrite;

#[cfg(test)]
mod tests;

/// Quotes the names of tables and attributes.
const DOUBLE: char = '"';

/// Quotes the names of an item's members, and words.
const SINGLE: char = '\'';

/// The action of the statements of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// A claim: conditional by nature. The reply to a duplicate never shows the record that it met.
    Insert,
    /// A write under the fence.
    Update,
}

impl Verb {
    /// Answers with a write's action in a group; `None` for one that is sent alone. In a table with
    /// two keys a claim is: a table that has the first key only would take an INSERT.
    pub(super) fn of(layout: &TableLayout, write: &RecordWrite) -> Option<Self> {
        match write {
            RecordWrite::Create(_) => (!layout.is_composite()).then_some(Self::Insert),
            RecordWrite::Complete(_) | RecordWrite::Release(_) => Some(Self::Update),
            _ => None,
        }
    }
}

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    text: String,
    parameters: Vec<AttributeValue>,
    /// The part of a record that the reply shows where the condition failed.
    on_failure: Option<OnFailure>,
}

/// Makes the statements of one group. Most of them differ in their parameters alone, so the text is
/// kept, and written anew only for a change of another shape.
#[derive(Debug)]
pub(super) struct Statements<'a> {
    verb: Verb,
    table: &'a str,
    layout: &'a TableLayout,
    shape: Shape,
    text: String,
}

/// Collects the parameters, in the order of the text.
fn parameters(verb: Verb, change: Change<'_>) -> Vec<AttributeValue> {
    let mut all = Vec::with_capacity(change.key.len() + change.sets.len() + change.tests.len());
    let mut key = change.key.into_iter().map(|(_, value)| value);
    if verb == Verb::Insert {
        all.extend(key.by_ref());
    }
    let given = |value| match value {
        Value::Given(value) => Some(value),
        Value::Word(_) | Value::Count(_) => None,
    };
    all.extend(
        change
            .sets
            .into_iter()
            .filter_map(|(_, value)| given(value)),
    );
    all.extend(key);
    all.extend(change.tests.into_iter().filter_map(|test| match test {
        Test::Equals(_, value) => given(value),
        _ => None,
    }));
    all
}

impl<'a> Statements<'a> {
    pub(super) fn of(verb: Verb, table: &'a str, layout: &'a TableLayout) -> Self {
        Self {
            verb,
            table,
            layout,
            shape: Shape::default(),
            text: String::new(),
        }
    }

    /// Makes the statement of a change; `None` where it has a condition or a step that only a single
    /// request states.
    pub(super) fn make(&mut self, change: Change<'_>) -> Option<Statement> {
        let is_stated = |test: &Test| match self.verb {
            Verb::Insert => matches!(test, Test::NoRecord),
            Verb::Update => matches!(test, Test::Equals(..)),
        };
        if !change.steps.is_empty() || !change.tests.iter().all(is_stated) {
            return None;
        }
        if !self.shape.fits(&change) {
            self.shape = Shape::of(&change);
            self.text.clear();
            match self.verb {
                Verb::Insert => self.insert(&change),
                Verb::Update => self.update(&change),
            }
        }
        Some(Statement {
            text: self.text.clone(),
            parameters: parameters(self.verb, change),
            on_failure: (self.verb == Verb::Update).then_some(OnFailure::AllOld),
        })
    }

    fn insert(&mut self, change: &Change<'_>) {
        self.text.push_str("INSERT INTO ");
        self.quoted(self.table, DOUBLE);
        let mut separator = " VALUE {";
        for (name, _) in &change.key {
            self.member(separator, name, Shown::Parameter);
            separator = ",";
        }
        for (attribute, value) in &change.sets {
            self.member(separator, self.layout.name(*attribute), value.into());
            separator = ",";
        }
        self.text.push('}');
    }

    fn member(&mut self, separator: &str, name: &str, value: Shown) {
        self.text.push_str(separator);
        self.quoted(name, SINGLE);
        self.text.push(':');
        self.shown(value);
    }

    fn update(&mut self, change: &Change<'_>) {
        self.text.push_str("UPDATE ");
        self.quoted(self.table, DOUBLE);
        for (attribute, value) in &change.sets {
            self.text.push_str(" SET ");
            self.equate(self.layout.name(*attribute), value.into());
        }
        for attribute in &change.removes {
            self.text.push_str(" REMOVE ");
            self.quoted(self.layout.name(*attribute), DOUBLE);
        }
        let mut separator = " WHERE ";
        for (name, _) in &change.key {
            self.text.push_str(separator);
            self.equate(name, Shown::Parameter);
            separator = " AND ";
        }
        for (attribute, value) in change.tests.iter().filter_map(compared) {
            self.text.push_str(separator);
            self.equate(self.layout.name(attribute), value);
        }
    }

    fn equate(&mut self, name: &str, value: Shown) {
        self.quoted(name, DOUBLE);
        self.text.push('=');
        self.shown(value);
    }

    fn shown(&mut self, value: Shown) {
        match value {
            Shown::Word(word) => self.quoted(word, SINGLE),
            Shown::Count(count) => self.text.push_str(&count.to_string()),
            Shown::Parameter => self.text.push('?'),
        }
    }

    /// A quote inside a name is doubled.
    fn quoted(&mut self, name: &str, quote: char) {
        self.text.push(quote);
        for part in name.split_inclusive(quote) {
            self.text.push_str(part);
            if part.ends_with(quote) {
                self.text.push(quote);
            }
        }
        self.text.push(quote);
    }
}

impl Statement {
    /// Estimates the bytes that the statement adds to a request.
    pub(super) fn size(&self) -> usize {
        let parameters: usize = self.parameters.iter().map(size_of_value).sum();
        self.text.len() + parameters
    }

    pub(super) fn into_request(self) -> Result<BatchStatementRequest, BuildError> {
        BatchStatementRequest::builder()
            .statement(self.text)
            .set_parameters(Some(self.parameters))
            .set_return_values_on_condition_check_failure(self.on_failure)
            .build()
    }
}

fn size_of_value(value: &AttributeValue) -> usize {
    const WRAPPING: usize = 10;
    WRAPPING
        + match value {
            AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
            // Bytes travel in Base64.
            AttributeValue::B(bytes) => bytes.as_ref().len() / 3 * 4 + 4,
            AttributeValue::M(members) => members
                .iter()
                .map(|(name, value)| name.len() + size_of_value(value))
                .sum(),
            _ => 0,
        }
}

/// The part of a change that the text shows.
#[derive(Debug, Default)]
struct Shape {
    sets: Vec<(Attribute, Shown)>,
    removes: Vec<Attribute>,
    tests: Vec<(Attribute, Shown)>,
}

impl Shape {
    fn of(change: &Change<'_>) -> Self {
        Self {
            sets: change.sets.iter().map(shown).collect(),
            removes: change.removes.clone(),
            tests: change.tests.iter().filter_map(compared).collect(),
        }
    }

    /// Tests whether this change has the same shape.
    fn fits(&self, change: &Change<'_>) -> bool {
        let tests = change.tests.iter().filter_map(compared);
        self.sets.iter().copied().eq(change.sets.iter().map(shown))
            && self.removes == change.removes
            && self.tests.iter().copied().eq(tests)
    }
}

fn shown((attribute, value): &(Attribute, Value)) -> (Attribute, Shown) {
    (*attribute, value.into())
}

/// Returns what a test compares; `None` for the one of an INSERT, which its text does not have.
fn compared(test: &Test) -> Option<(Attribute, Shown)> {
    match test {
        Test::Equals(attribute, value) => Some((*attribute, value.into())),
        _ => None,
    }
}

/// The form of a value in the text: a value that is the same each time is in the text itself, which
/// makes a request shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
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
