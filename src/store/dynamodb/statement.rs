//! Changes as PartiQL statements, in the JSON of a request. Every name is quoted: several are reserved words.

use aws_sdk_dynamodb::types::AttributeValue;

use super::change::{Change, Test, Value};
use super::item::number;
use super::journal;
use super::layout::TableLayout;
use crate::json;

mod body;
mod shape;
#[cfg(test)]
mod tests;

pub(super) use body::Group;

use shape::{Shape, Shown};

/// Around the names of tables and attributes.
const DOUBLE: char = '"';

/// Around the names of an item's members, and around words.
const SINGLE: char = '\'';

/// What the statements of a group do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// A claim: conditional by nature. Asked for or not, a duplicate's reply doesn't show the record that it met.
    Insert,
    /// A write under the fence.
    Update,
}

/// Makes the statements of one group. Most of them differ in their parameters alone: so the text is kept, and written anew only
/// for a change of another shape.
#[derive(Debug)]
pub(super) struct Statements<'a> {
    verb: Verb,
    table: &'a str,
    layout: &'a TableLayout,
    shape: Shape,
    text: String,
    /// The text as JSON. The SDK would escape it anew for each statement.
    escaped: Vec<u8>,
    /// The last statement that was made.
    statement: Vec<u8>,
}

impl<'a> Statements<'a> {
    pub(super) fn of(verb: Verb, table: &'a str, layout: &'a TableLayout) -> Self {
        Self {
            verb,
            table,
            layout,
            shape: Shape::default(),
            text: String::new(),
            escaped: Vec::new(),
            statement: Vec::new(),
        }
    }

    /// The change as a statement with its parameters; it stays until the next is made.
    pub(super) fn make(&mut self, change: &Change<'_>) -> &[u8] {
        if !self.shape.fits(change) {
            self.shape = Shape::of(change);
            self.text.clear();
            match self.verb {
                Verb::Insert => self.insert(change),
                Verb::Update => self.update(change),
            }
            self.escaped.clear();
            json::write_string(&self.text, &mut self.escaped);
        }
        let out = &mut self.statement;
        out.clear();
        out.extend_from_slice(br#"{"Statement":"#);
        out.extend_from_slice(&self.escaped);
        let mut separator: &[u8] = br#","Parameters":["#;
        parameters(self.verb, change, |value| {
            out.extend_from_slice(separator);
            separator = b",";
            body::write_value(value, out);
        });
        out.extend_from_slice(match self.verb {
            // A duplicate's reply wouldn't show what it met.
            Verb::Insert => b"]}",
            Verb::Update => br#"],"ReturnValuesOnConditionCheckFailure":"ALL_OLD"}"#,
        });
        out
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
            self.compare(self.layout.name(*attribute), "=", value.into());
        }
        if let Some((step, _)) = &change.step {
            self.text.push_str(" SET ");
            self.compare(step, "=", Shown::Parameter);
        }
        for attribute in &change.removes {
            self.text.push_str(" REMOVE ");
            self.quoted(self.layout.name(*attribute), DOUBLE);
        }
        let mut separator = " WHERE ";
        for (name, _) in &change.key {
            self.text.push_str(separator);
            self.compare(name, "=", Shown::Parameter);
            separator = " AND ";
        }
        for test in &change.tests {
            self.text.push_str(separator);
            self.test(test);
        }
    }

    fn test(&mut self, test: &Test) {
        let layout = self.layout;
        match test {
            Test::Equals(attribute, value) => {
                self.compare(layout.name(*attribute), "=", value.into());
            }
            Test::Less(attribute, value) => {
                self.compare(layout.name(*attribute), "<", value.into());
            }
            Test::Absent(attribute) => self.missing(layout.name(*attribute)),
            // An UPDATE finds its record by the key, so this can't hold; a claim is an INSERT.
            Test::NoRecord => self.missing(layout.partition()),
            Test::OlderStep(step, _) => {
                self.text.push('(');
                self.missing(step);
                self.text.push_str(" OR ");
                self.quoted(step, DOUBLE);
                self.text.push('.');
                self.compare(journal::REVISION, "<", Shown::Parameter);
                self.text.push(')');
            }
        }
    }

    fn compare(&mut self, name: &str, operator: &str, value: Shown) {
        self.quoted(name, DOUBLE);
        self.text.push_str(operator);
        self.shown(value);
    }

    fn missing(&mut self, name: &str) {
        self.quoted(name, DOUBLE);
        self.text.push_str(" IS MISSING");
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

/// What the text leaves open, in its order: at least the key.
fn parameters(verb: Verb, change: &Change<'_>, mut write: impl FnMut(&AttributeValue)) {
    if verb == Verb::Insert {
        change.key.iter().for_each(|(_, value)| write(value));
    }
    for (_, value) in &change.sets {
        if let Value::Given(value) = value {
            write(value);
        }
    }
    if let Some((_, entry)) = &change.step {
        write(entry);
    }
    if verb == Verb::Update {
        change.key.iter().for_each(|(_, value)| write(value));
    }
    for test in &change.tests {
        match test {
            Test::Equals(_, Value::Given(value)) | Test::Less(_, Value::Given(value)) => {
                write(value);
            }
            Test::OlderStep(_, revision) => write(&number(*revision)),
            Test::Equals(..) | Test::Less(..) | Test::NoRecord | Test::Absent(_) => {}
        }
    }
}
