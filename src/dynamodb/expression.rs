//! States a change in the expressions of a single request. Every attribute name is aliased: several
//! are reserved words.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::change::{Change, Test, Value};
use super::journal;
use super::layout::{Attribute, TableLayout};
use super::value::number;

/// The expressions of a PutItem or an UpdateItem.
#[derive(Debug)]
pub(super) struct Expressions {
    /// DynamoDB refuses an empty expression.
    pub(super) update: Option<String>,
    pub(super) condition: String,
    pub(super) names: HashMap<String, String>,
    /// DynamoDB refuses an empty map.
    pub(super) values: Option<HashMap<String, AttributeValue>>,
}

impl Expressions {
    /// The update stays empty for a PutItem, since the item has the values.
    pub(super) fn of(layout: &TableLayout, change: &Change<'_>) -> Self {
        let mut aliases = Aliases {
            layout,
            names: HashMap::new(),
            values: HashMap::new(),
        };
        let tests = change.tests.iter().map(|test| aliases.test(test));
        let condition = tests.collect::<Vec<_>>().join(" AND ");
        let update = (!change.is_whole).then(|| aliases.update(change)).flatten();
        Self {
            update,
            condition,
            names: aliases.names,
            values: (!aliases.values.is_empty()).then_some(aliases.values),
        }
    }
}

/// Collects names and values; each name has one alias.
struct Aliases<'a> {
    layout: &'a TableLayout,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Aliases<'_> {
    fn name(&mut self, name: &str) -> String {
        let known = self.names.iter().find(|(_, known)| *known == name);
        if let Some((alias, _)) = known {
            return alias.clone();
        }
        let alias = format!("#n{}", self.names.len());
        self.names.insert(alias.clone(), name.to_owned());
        alias
    }

    fn attribute(&mut self, attribute: Attribute) -> String {
        let layout = self.layout;
        self.name(layout.name(attribute))
    }

    fn value(&mut self, value: &Value) -> String {
        let alias = format!(":v{}", self.values.len());
        self.values.insert(alias.clone(), value.clone().into());
        alias
    }

    fn test(&mut self, test: &Test) -> String {
        match test {
            Test::NoRecord => {
                let layout = self.layout;
                format!("attribute_not_exists({})", self.name(layout.partition()))
            }
            Test::Equals(attribute, value) => {
                format!("{} = {}", self.attribute(*attribute), self.value(value))
            }
            Test::Less(attribute, value) => {
                format!("{} < {}", self.attribute(*attribute), self.value(value))
            }
            Test::Absent(attribute) => {
                format!("attribute_not_exists({})", self.attribute(*attribute))
            }
            Test::OlderStep(step, revision) => {
                let step = self.name(step);
                let known = format!("{step}.{}", self.name(journal::REVISION));
                let revision = self.value(&number(*revision).into());
                format!("(attribute_not_exists({step}) OR {known} < {revision})")
            }
        }
    }

    fn update(&mut self, change: &Change<'_>) -> Option<String> {
        let mut sets: Vec<_> = change
            .sets
            .iter()
            .map(|(attribute, value)| {
                format!("{} = {}", self.attribute(*attribute), self.value(value))
            })
            .collect();
        for (step, entry) in &change.steps {
            sets.push(format!(
                "{} = {}",
                self.name(step),
                self.value(&entry.clone().into())
            ));
        }
        let removes: Vec<_> = change
            .removes
            .iter()
            .map(|attribute| self.attribute(*attribute))
            .collect();
        let clauses = [("SET", sets), ("REMOVE", removes)]
            .into_iter()
            .filter(|(_, parts)| !parts.is_empty())
            .map(|(verb, parts)| format!("{verb} {}", parts.join(", ")));
        let update = clauses.collect::<Vec<_>>().join(" ");
        (!update.is_empty()).then_some(update)
    }
}
