//! The same records through the SDK, by hand: what any library has to cost at least.
//!
//! Nothing is decoded, hashed or decided here. Ids, owners and fingerprints are given, of the lengths that the layer's have, so
//! that what goes over the wire is the same.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::AttributeValue::{self, N, S};
use aws_sdk_dynamodb::types::{
    BatchStatementErrorCodeEnum as Code, BatchStatementRequest, KeysAndAttributes,
    ReturnValuesOnConditionCheckFailure as OnFailure,
};
use futures_util::future::try_join_all;
use serde_json::Value;

use crate::Error;

/// The most statements of a group.
pub const MOST_STATEMENTS: usize = 25;
const MOST_KEYS: usize = 100;

/// The way in which the requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// One message after the other.
    Serial,
    /// All messages of a batch at once.
    AtOnce,
    /// In groups of at most 25.
    Groups,
    /// Read first, in groups: for messages that have been here before.
    Reads,
}

/// The record of one message.
#[derive(Clone, Debug)]
pub struct Record {
    id: String,
    owner: String,
    validation: String,
    outcome: String,
}

impl Record {
    /// The record of a payment.
    pub fn of(payment_id: &str) -> Self {
        Self::with("charge", payment_id, "\"done\"".to_owned())
    }

    /// The record of an operation, with this outcome in JSON.
    pub fn with(operation: &str, payment_id: &str, outcome: String) -> Self {
        Self {
            id: format!("bench#{operation}#{payment_id:->64}"),
            owner: format!("{payment_id:->32}"),
            validation: format!("{payment_id:->64}"),
            outcome,
        }
    }

    fn item(&self) -> HashMap<String, AttributeValue> {
        ATTRIBUTES
            .iter()
            .map(|name| (*name).to_owned())
            .zip(self.values())
            .collect()
    }

    /// In the order in which [`Raw::new`]'s INSERT leaves them open.
    fn parameters(&self) -> Vec<AttributeValue> {
        vec![
            S(self.id.clone()),
            S(self.owner.clone()),
            N("1763640061000".to_owned()),
            N("1764244800".to_owned()),
            N("1763640000000".to_owned()),
            S(self.validation.clone()),
        ]
    }

    /// In the order of [`ATTRIBUTES`].
    fn values(&self) -> [AttributeValue; 9] {
        [
            S(self.id.clone()),
            S("INPROGRESS".to_owned()),
            S(self.owner.clone()),
            N("1".to_owned()),
            N("1763640061000".to_owned()),
            N("1764244800".to_owned()),
            N("1763640000000".to_owned()),
            N("1".to_owned()),
            S(self.validation.clone()),
        ]
    }
}

const ATTRIBUTES: [&str; 9] = [
    "id",
    "status",
    "owner",
    "attempt",
    "in_progress_expiration",
    "expiration",
    "started_at",
    "v",
    "validation",
];

/// The SDK, by hand.
#[derive(Clone, Debug)]
pub struct Raw {
    client: Client,
    table: String,
    style: Style,
    insert: String,
    update: String,
}

impl Raw {
    /// On a table.
    pub fn new(client: Client, table: &str, style: Style) -> Self {
        Self {
            client,
            table: table.to_owned(),
            style,
            // As short as can be: what is the same each time is no parameter.
            insert: format!(
                "INSERT INTO \"{table}\" VALUE {{'id':?,'status':'INPROGRESS','owner':?,'attempt':1,\
                 'in_progress_expiration':?,'expiration':?,'started_at':?,'v':1,'validation':?}}"
            ),
            update: format!(
                "UPDATE \"{table}\" SET \"status\"='COMPLETED' SET \"completed_at\"=? SET \"expiration\"=? \
                 SET \"data\"=? REMOVE \"in_progress_expiration\" WHERE \"id\"=? AND \"owner\"=? \
                 AND \"status\"='INPROGRESS'"
            ),
        }
    }

    /// Takes a batch through, and returns the number of its messages that were new.
    pub async fn batch(&self, records: &[Record]) -> Result<usize, Error> {
        let mut new = 0;
        match self.style {
            Style::Serial => {
                for record in records {
                    new += usize::from(self.one(record).await?);
                }
            }
            Style::AtOnce => {
                let all = try_join_all(records.iter().map(|record| self.one(record))).await?;
                new = all.into_iter().filter(|new| *new).count();
            }
            Style::Groups => {
                for group in records.chunks(MOST_STATEMENTS) {
                    new += self.group(group).await?;
                }
            }
            Style::Reads => {
                let all: Vec<_> = records.iter().collect();
                self.read(&all).await?;
            }
        }
        Ok(new)
    }

    /// Claims and completes a message, and tells whether it was new.
    async fn one(&self, record: &Record) -> Result<bool, Error> {
        if let Some(met) = self.claim(record).await? {
            parse(&met)?;
            return Ok(false);
        }
        self.complete(record).await?;
        Ok(true)
    }

    /// Claims; the text of the outcome that the claim met instead.
    pub async fn claim(&self, record: &Record) -> Result<Option<String>, Error> {
        let claim = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(record.item()))
            .condition_expression("attribute_not_exists(#n0)")
            .expression_attribute_names("#n0", "id")
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .send();
        match claim
            .await
            .map_err(aws_sdk_dynamodb::error::SdkError::into_service_error)
        {
            Ok(_) => Ok(None),
            Err(PutItemError::ConditionalCheckFailedException(met)) => {
                let item = met.item.ok_or("a refusal without its item")?;
                Ok(Some(text(&item)?.to_owned()))
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Stores the outcome.
    pub async fn complete(&self, record: &Record) -> Result<(), Error> {
        self.client
            .update_item()
            .table_name(&self.table)
            .key("id", S(record.id.clone()))
            .update_expression("SET #n0 = :v0, #n1 = :v1, #n2 = :v2, #n3 = :v3 REMOVE #n4")
            .condition_expression("#n5 = :v4 AND #n0 = :v5")
            .expression_attribute_names("#n0", "status")
            .expression_attribute_names("#n1", "completed_at")
            .expression_attribute_names("#n2", "expiration")
            .expression_attribute_names("#n3", "data")
            .expression_attribute_names("#n4", "in_progress_expiration")
            .expression_attribute_names("#n5", "owner")
            .expression_attribute_values(":v0", S("COMPLETED".to_owned()))
            .expression_attribute_values(":v1", N("1763640000001".to_owned()))
            .expression_attribute_values(":v2", N("1764244801".to_owned()))
            .expression_attribute_values(":v3", S(record.outcome.clone()))
            .expression_attribute_values(":v4", S(record.owner.clone()))
            .expression_attribute_values(":v5", S("INPROGRESS".to_owned()))
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .send()
            .await?;
        Ok(())
    }

    /// Claims and completes a group, and returns the number of messages that were new.
    pub async fn group(&self, group: &[Record]) -> Result<usize, Error> {
        let claims = group
            .iter()
            // A duplicate's reply doesn't show what it met, so nothing is asked for.
            .map(|record| statement(&self.insert, record.parameters(), None))
            .collect::<Result<_, Error>>()?;
        let claimed = self.send(claims).await?;
        let mut winners = Vec::with_capacity(group.len());
        let mut losers = Vec::new();
        for (record, code) in group.iter().zip(claimed) {
            match code {
                None => winners.push(record),
                Some(Code::DuplicateItem) => losers.push(record),
                Some(other) => return Err(format!("INSERT: {other}").into()),
            }
        }
        if !winners.is_empty() {
            let completions = winners
                .iter()
                .map(|record| {
                    let values = vec![
                        N("1763640000001".to_owned()),
                        N("1764244801".to_owned()),
                        S(record.outcome.clone()),
                        S(record.id.clone()),
                        S(record.owner.clone()),
                    ];
                    statement(&self.update, values, Some(OnFailure::AllOld))
                })
                .collect::<Result<_, Error>>()?;
            if let Some(code) = self.send(completions).await?.into_iter().flatten().next() {
                return Err(format!("UPDATE: {code}").into());
            }
        }
        self.read(&losers).await?;
        Ok(winners.len())
    }

    /// Sends the statements, and returns the error code of each that failed.
    async fn send(
        &self,
        statements: Vec<BatchStatementRequest>,
    ) -> Result<Vec<Option<Code>>, Error> {
        let reply = self
            .client
            .batch_execute_statement()
            .set_statements(Some(statements))
            .send()
            .await?;
        let responses = reply.responses.unwrap_or_default().into_iter();
        Ok(responses
            .map(|response| response.error.and_then(|error| error.code))
            .collect())
    }

    async fn read(&self, records: &[&Record]) -> Result<(), Error> {
        for group in records.chunks(MOST_KEYS) {
            let keys = group
                .iter()
                .map(|record| HashMap::from([("id".to_owned(), S(record.id.clone()))]))
                .collect();
            let wanted = KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .consistent_read(true)
                .build()?;
            let reply = self
                .client
                .batch_get_item()
                .request_items(&self.table, wanted)
                .send()
                .await?;
            let items = reply.responses.unwrap_or_default();
            let items = items
                .get(&self.table)
                .map(Vec::as_slice)
                .unwrap_or_default();
            // They come in any order: whoever replays has to know which is whose.
            let by_id: HashMap<_, _> = items
                .iter()
                .filter_map(|item| Some((item.get("id")?.as_s().ok()?.as_str(), item)))
                .collect();
            for record in group {
                outcome(by_id.get(record.id.as_str()).copied())?;
            }
        }
        Ok(())
    }
}

fn statement(
    text: &str,
    values: Vec<AttributeValue>,
    on_failure: Option<OnFailure>,
) -> Result<BatchStatementRequest, Error> {
    Ok(BatchStatementRequest::builder()
        .statement(text)
        .set_parameters(Some(values))
        .set_return_values_on_condition_check_failure(on_failure)
        .build()?)
}

/// The text of the outcome that is replayed; there must be one.
fn text(item: &HashMap<String, AttributeValue>) -> Result<&str, Error> {
    let data = item.get("data").ok_or("nothing to replay")?;
    Ok(data.as_s().map_err(|_| "an outcome that is no string")?)
}

/// Parses the outcome that is replayed: a word, or a response.
fn outcome(item: Option<&HashMap<String, AttributeValue>>) -> Result<(), Error> {
    parse(text(item.ok_or("nothing to replay")?)?)
}

fn parse(text: &str) -> Result<(), Error> {
    let outcome: Value = serde_json::from_str(text)?;
    std::hint::black_box(outcome);
    Ok(())
}
