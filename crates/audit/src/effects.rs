//! Counts effects.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeValue, GlobalSecondaryIndexDescription, IndexStatus, KeySchemaElement, KeyType,
    ScalarAttributeType, Select,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::key::decimal;
use crate::record::Completed;
use crate::{AuditError, words};

/// The number of queries that are under way together.
const SIDE_BY_SIDE: usize = 16;
/// The longest partition key
/// ([limits](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html)).
const MAX_KEY_BYTES: usize = 2_048;

/// A record whose effects are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The record.
    pub record: Completed,
    /// The name of its effect.
    pub key: String,
}

/// Counts effects by their names.
pub trait Effects {
    /// Counts the effects of each record, in their order.
    fn count(
        &mut self,
        asked: &[Asked],
    ) -> impl Future<Output = Result<Vec<u64>, AuditError>> + Send;
}

/// Effects that are items of a DynamoDB table: an attribute holds the name.
#[derive(Debug)]
pub struct TableEffects {
    client: Client,
    table: String,
    attribute: String,
    how: How,
}

#[derive(Debug)]
enum How {
    /// The attribute is the partition key of the table, or of this index; it may be a number.
    Query {
        index: Option<String>,
        is_number: bool,
    },
    /// Each item was read, and counted by name.
    Counted(Names),
}

/// The number of items with each name. A number counts for each of its texts.
#[derive(Debug, Default)]
struct Names {
    texts: HashMap<String, u64>,
    numbers: HashMap<String, u64>,
}

impl Names {
    fn count(&self, key: &str) -> u64 {
        let of = |names: &HashMap<String, u64>, name: &str| names.get(name).copied().unwrap_or(0);
        of(&self.texts, key) + decimal(key).map_or(0, |number| of(&self.numbers, &number))
    }
}

impl TableEffects {
    /// Looks at the table. Where the attribute is the partition key of the table, or the only key of an
    /// index that is active or being updated, effects are asked for one by one; else the whole table is
    /// read now.
    ///
    /// # Errors
    ///
    /// When the table can't be read.
    pub async fn open(client: Client, table: &str, attribute: &str) -> Result<Self, AuditError> {
        let failed = |reason: String| AuditError::NotRead {
            doing: format!("read the effects of {table}"),
            reason,
        };
        let described = client.describe_table().table_name(table).send().await;
        let described = described.map_err(|error| failed(words(&error)))?;
        let described = described
            .table
            .ok_or_else(|| failed("no description".to_owned()))?;
        let mut definitions = described.attribute_definitions.iter().flatten();
        let is_number = definitions.any(|definition| {
            definition.attribute_name == attribute
                && definition.attribute_type == ScalarAttributeType::N
        });
        // Without a sort key, an item of the table itself is one effect at most.
        let own = described.key_schema.as_deref().unwrap_or_default();
        let indexes = described.global_secondary_indexes.unwrap_or_default();
        let index = indexes.into_iter().find(|index| is_whole(index, attribute));
        let how = match index {
            _ if is_hash(own, attribute) => How::Query {
                index: None,
                is_number,
            },
            Some(index) => How::Query {
                index: index.index_name,
                is_number,
            },
            None => How::Counted(count_all(&client, table, attribute).await.map_err(failed)?),
        };
        Ok(Self {
            client,
            table: table.to_owned(),
            attribute: attribute.to_owned(),
            how,
        })
    }

    async fn query(
        &self,
        index: Option<&str>,
        is_number: bool,
        key: &str,
    ) -> Result<u64, AuditError> {
        // DynamoDB refuses a query for what no key can be: there is no such item.
        let Some(value) = as_key(key, is_number) else {
            return Ok(0);
        };
        let pages = self
            .client
            .query()
            .table_name(&self.table)
            .set_index_name(index.map(str::to_owned))
            .key_condition_expression("#key = :key")
            .expression_attribute_names("#key", &self.attribute)
            .expression_attribute_values(":key", value)
            .select(Select::Count)
            .into_paginator()
            .send();
        let pages: Vec<_> = pages
            .try_collect()
            .await
            .map_err(|error| AuditError::NotRead {
                doing: format!("count the effects of {}", self.table),
                reason: words(&error),
            })?;
        Ok(pages
            .iter()
            .map(|page| u64::try_from(page.count).unwrap_or(0))
            .sum())
    }
}

impl Effects for TableEffects {
    async fn count(&mut self, asked: &[Asked]) -> Result<Vec<u64>, AuditError> {
        match &self.how {
            How::Counted(counts) => Ok(asked.iter().map(|one| counts.count(&one.key)).collect()),
            How::Query { index, is_number } => {
                let mut queries = Vec::with_capacity(asked.len());
                for one in asked {
                    queries.push(self.query(index.as_deref(), *is_number, &one.key));
                }
                let counts = stream::iter(queries).buffered(SIDE_BY_SIDE);
                counts.try_collect().await
            }
        }
    }
}

fn is_hash(keys: &[KeySchemaElement], attribute: &str) -> bool {
    keys.iter()
        .any(|key| key.key_type == KeyType::Hash && key.attribute_name == attribute)
}

/// Returns whether an index has every item with this attribute. With a sort key, it lacks the items
/// that have no such attribute; while it is created or deleted, others, too.
fn is_whole(index: &GlobalSecondaryIndexDescription, attribute: &str) -> bool {
    let keys = index.key_schema();
    let status = index.index_status.as_ref();
    let is_partial = matches!(status, Some(IndexStatus::Creating | IndexStatus::Deleting));
    !is_partial && keys.len() == 1 && is_hash(keys, attribute)
}

/// A name as a key; `None` where no key can be it.
fn as_key(name: &str, is_number: bool) -> Option<AttributeValue> {
    if is_number {
        let number = decimal(name).filter(|number| is_key(number));
        return number.map(|_| AttributeValue::N(name.to_owned()));
    }
    let is_text = (1..=MAX_KEY_BYTES).contains(&name.len());
    is_text.then(|| AttributeValue::S(name.to_owned()))
}

/// Returns whether a number, as `decimal` writes it, can be a key.
fn is_key(number: &str) -> bool {
    let Some((digits, exponent)) = number.trim_start_matches('-').split_once('e') else {
        return true;
    };
    let magnitude = exponent.parse::<i64>().ok().and_then(|exponent| {
        let length = i64::try_from(digits.len()).ok()?;
        exponent.checked_add(length - 1)
    });
    digits.len() <= 38 && magnitude.is_some_and(|magnitude| (-130..=125).contains(&magnitude))
}

async fn count_all(client: &Client, table: &str, attribute: &str) -> Result<Names, String> {
    let scan = client
        .scan()
        .table_name(table)
        .projection_expression("#key");
    let scan = scan.expression_attribute_names("#key", attribute);
    let mut items = scan.into_paginator().items().send();
    let mut counts = Names::default();
    while let Some(item) = items.next().await {
        let item = item.map_err(|error| words(&error))?;
        let count = match item.get(attribute) {
            Some(AttributeValue::S(text)) => counts.texts.entry(text.clone()),
            Some(AttributeValue::N(number)) => {
                let Some(number) = decimal(number) else {
                    continue;
                };
                counts.numbers.entry(number)
            }
            _ => continue,
        };
        *count.or_default() += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_queried_while_it_is_whole() {
        let key = KeySchemaElement::builder()
            .attribute_name("payment")
            .key_type(KeyType::Hash);
        let index = GlobalSecondaryIndexDescription::builder().key_schema(key.build().unwrap());
        for (status, expected) in [
            (IndexStatus::Active, true),
            (IndexStatus::Updating, true),
            (IndexStatus::Creating, false),
            (IndexStatus::Deleting, false),
        ] {
            let index = index.clone().index_status(status).build();
            assert_eq!(is_whole(&index, "payment"), expected, "{index:?}");
        }
    }

    #[test]
    fn a_text_that_dynamodb_does_not_take_is_no_key() {
        for (bytes, expected) in [(0, false), (1, true), (2_048, true), (2_049, false)] {
            let name = "9".repeat(bytes);
            assert_eq!(as_key(&name, false).is_some(), expected, "{bytes}");
        }
        assert_eq!(as_key("p-17", true), None);
        let number = AttributeValue::N("12.50".to_owned());
        assert_eq!(as_key("12.50", true), Some(number));
    }

    #[test]
    fn a_number_that_dynamodb_does_not_take_is_no_key() {
        let nines = "9".repeat(39);
        for (text, expected) in [
            ("0", true),
            ("-12.50", true),
            (&nines[1..], true),
            (&nines, false),
            ("1e125", true),
            ("1e126", false),
            ("1e-130", true),
            ("1e-131", false),
        ] {
            assert_eq!(is_key(&decimal(text).unwrap()), expected, "{text}");
        }
    }
}
