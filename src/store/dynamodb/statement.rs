//! A change as a PartiQL statement. Every name is quoted: several are reserved words.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, ReturnValuesOnConditionCheckFailure as OnFailure,
};

use super::change::{Change, Test};
use super::item::number;
use super::journal;
use super::layout::TableLayout;

/// Around the names of tables and attributes.
const DOUBLE: &str = "\"";

/// Around the names of an item's members.
const SINGLE: &str = "'";

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    text: String,
    parameters: Vec<AttributeValue>,
    /// What the reply shows of a record whose condition failed.
    on_failure: Option<OnFailure>,
}

impl Statement {
    /// A claim: INSERT is conditional by nature. Asked for or not, a duplicate's reply doesn't show the record that it met.
    pub(super) fn insert(table: &str, layout: &TableLayout, change: Change) -> Self {
        let mut statement = Self::starting("INSERT INTO ", change.sets.len() + change.key.len());
        statement.quoted(table, DOUBLE);
        let mut separator = " VALUE {";
        for (name, value) in change.key {
            statement.member(separator, &name, value);
            separator = ", ";
        }
        for (attribute, value) in change.sets {
            statement.member(separator, layout.name(attribute), value);
            separator = ", ";
        }
        statement.text.push('}');
        statement
    }

    fn member(&mut self, separator: &str, name: &str, value: AttributeValue) {
        self.text.push_str(separator);
        self.quoted(name, SINGLE);
        self.text.push_str(": ?");
        self.parameters.push(value);
    }

    /// A write under the fence.
    pub(super) fn update(table: &str, layout: &TableLayout, change: Change) -> Self {
        let parameters = change.sets.len() + change.key.len() + change.tests.len();
        let mut statement = Self::starting("UPDATE ", parameters);
        statement.on_failure = Some(OnFailure::AllOld);
        statement.quoted(table, DOUBLE);
        for (attribute, value) in change.sets {
            statement.text.push_str(" SET ");
            statement.compare(layout.name(attribute), "=", value);
        }
        if let Some((step, entry)) = change.step {
            statement.text.push_str(" SET ");
            statement.compare(&step, "=", entry);
        }
        for attribute in change.removes {
            statement.text.push_str(" REMOVE ");
            statement.quoted(layout.name(attribute), DOUBLE);
        }
        let mut separator = " WHERE ";
        for (name, value) in change.key {
            statement.text.push_str(separator);
            statement.compare(&name, "=", value);
            separator = " AND ";
        }
        for test in change.tests {
            statement.text.push_str(separator);
            match test {
                Test::Equals(attribute, value) => {
                    statement.compare(layout.name(attribute), "=", value);
                }
                Test::Less(attribute, value) => {
                    statement.compare(layout.name(attribute), "<", value);
                }
                Test::Absent(attribute) => statement.missing(layout.name(attribute)),
                // An UPDATE finds its record by the key, so this can't hold; a claim is an INSERT.
                Test::NoRecord => statement.missing(layout.partition()),
                Test::OlderStep(step, revision) => statement.older(&step, revision),
            }
        }
        statement
    }

    fn starting(verb: &str, parameters: usize) -> Self {
        let mut text = String::with_capacity(400);
        text.push_str(verb);
        Self {
            text,
            parameters: Vec::with_capacity(parameters),
            on_failure: None,
        }
    }

    fn compare(&mut self, name: &str, operator: &str, value: AttributeValue) {
        self.quoted(name, DOUBLE);
        self.text.push_str(operator);
        self.text.push('?');
        self.parameters.push(value);
    }

    fn missing(&mut self, name: &str) {
        self.quoted(name, DOUBLE);
        self.text.push_str(" IS MISSING");
    }

    fn older(&mut self, step: &str, revision: u32) {
        self.text.push('(');
        self.missing(step);
        self.text.push_str(" OR ");
        self.quoted(step, DOUBLE);
        self.text.push('.');
        self.compare(journal::REVISION, "<", number(revision));
        self.text.push(')');
    }

    /// A quote inside a name is doubled.
    fn quoted(&mut self, name: &str, quote: &str) {
        self.text.push_str(quote);
        if quote.bytes().any(|quote| name.as_bytes().contains(&quote)) {
            self.text.push_str(&name.replace(quote, &quote.repeat(2)));
        } else {
            self.text.push_str(name);
        }
        self.text.push_str(quote);
    }

    /// About how many bytes it adds to a request.
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
