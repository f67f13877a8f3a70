//! A change as the expressions of a single request. Every attribute name is aliased: several are reserved words.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::change::{Change, Test, Value};
use super::item::number;
use super::journal;
use super::layout::{Attribute, TableLayout};

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
    /// For a PutItem: the condition alone, since the item itself says what is written.
    pub(super) fn of_put(layout: &TableLayout, change: &Change<'_>) -> Self {
        let mut aliases = Aliases::new(layout);
        let condition = aliases.condition(&change.tests);
        aliases.finish(None, condition)
    }

    /// For an UpdateItem.
    pub(super) fn of_update(layout: &TableLayout, change: &Change<'_>) -> Self {
        let mut aliases = Aliases::new(layout);
        let condition = aliases.condition(&change.tests);
        let update = aliases.update(change);
        aliases.finish(update, condition)
    }
}

/// Collects names and values; each is stated once.
struct Aliases<'a> {
    layout: &'a TableLayout,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl<'a> Aliases<'a> {
    fn new(layout: &'a TableLayout) -> Self {
        Self {
            layout,
            names: HashMap::new(),
            values: HashMap::new(),
        }
    }

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

    fn condition(&mut self, tests: &[Test]) -> String {
        let conditions: Vec<_> = tests.iter().map(|test| self.test(test)).collect();
        conditions.join(" AND ")
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
        if let Some((step, entry)) = &change.step {
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

    fn finish(self, update: Option<String>, condition: String) -> Expressions {
        Expressions {
            update,
            condition,
            names: self.names,
            values: (!self.values.is_empty()).then_some(self.values),
        }
    }
}
