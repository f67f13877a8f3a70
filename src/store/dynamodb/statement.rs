//! A change as a PartiQL statement. Every name is quoted: several are reserved words.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, ReturnValuesOnConditionCheckFailure as OnFailure,
};

use super::change::{Change, Test};
use super::layout::TableLayout;

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    text: String,
    parameters: Vec<AttributeValue>,
}

impl Statement {
    /// A claim: INSERT is conditional by nature.
    pub(super) fn insert(table: &str, layout: &TableLayout, change: &Change) -> Self {
        let mut names = Vec::new();
        let mut parameters = Vec::new();
        for (name, value) in change.item(layout) {
            names.push(format!("{}: ?", quoted(&name, '\'')));
            parameters.push(value);
        }
        Self {
            text: format!(
                "INSERT INTO {} VALUE {{{}}}",
                quoted(table, '"'),
                names.join(", ")
            ),
            parameters,
        }
    }

    /// A write under the fence.
    pub(super) fn update(table: &str, layout: &TableLayout, change: &Change) -> Self {
        let name = |attribute| quoted(layout.name(attribute), '"');
        let mut clauses = vec![format!("UPDATE {}", quoted(table, '"'))];
        let mut conditions = Vec::new();
        let mut parameters = Vec::new();
        for (attribute, value) in &change.sets {
            clauses.push(format!("SET {}=?", name(*attribute)));
            parameters.push(value.clone());
        }
        for attribute in &change.removes {
            clauses.push(format!("REMOVE {}", name(*attribute)));
        }
        for (key, value) in &change.key {
            conditions.push(format!("{}=?", quoted(key, '"')));
            parameters.push(value.clone());
        }
        for test in &change.tests {
            match test {
                Test::Equals(attribute, value) => {
                    conditions.push(format!("{}=?", name(*attribute)));
                    parameters.push(value.clone());
                }
                Test::Less(attribute, value) => {
                    conditions.push(format!("{}<?", name(*attribute)));
                    parameters.push(value.clone());
                }
                Test::Absent(attribute) => {
                    conditions.push(format!("{} IS MISSING", name(*attribute)));
                }
                // An UPDATE finds its record by the key, so this can't hold; a claim is an INSERT.
                Test::NoRecord => {}
            }
        }
        Self {
            text: format!("{} WHERE {}", clauses.join(" "), conditions.join(" AND ")),
            parameters,
        }
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
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .build()
    }
}

/// A quote inside a name is doubled.
fn quoted(name: &str, quote: char) -> String {
    let escaped = name.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{escaped}{quote}")
}

fn size_of_value(value: &AttributeValue) -> usize {
    const WRAPPING: usize = 10;
    WRAPPING
        + match value {
            AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
            _ => 0,
        }
}
