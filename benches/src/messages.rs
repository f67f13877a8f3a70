//! The messages that every contender gets, from one template: as messages of SQS, and as records of Kinesis.

use data_encoding::BASE64;
use lambda_idempotency::sqs::SqsEvent;
use serde::Deserialize;
use serde_json::Value;

use crate::Error;

const TEMPLATE: &str = include_str!("../message.json");
const RECORD: &str = include_str!("../record.json");

/// The part of a body that a handler would look at.
#[derive(Deserialize)]
pub struct Payment {
    /// Its identity.
    pub payment_id: String,
    /// In cents.
    pub amount: u64,
}

/// The payment ids of one batch. Every contender, and every round, has a `prefix` of its own.
pub fn ids(prefix: &str, batch: usize, size: usize) -> Vec<String> {
    (0..size)
        .map(|position| format!("{prefix}-{batch:04}-{position:05}"))
        .collect()
}

/// An event as Lambda delivers it, parsed from JSON as the runtime parses it.
pub fn event(ids: &[String], receives: u32) -> Result<SqsEvent, Error> {
    let records = ids
        .iter()
        .map(|id| {
            let message = TEMPLATE
                .replace("{id}", id)
                .replace("{receives}", &receives.to_string());
            Ok(serde_json::from_str(&message)?)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let mut event = SqsEvent::default();
    event.records = records;
    Ok(event)
}

/// The text of an event of Kinesis, whose records hold the bodies of the same messages. Each record has its own partition key.
pub fn stream_event(ids: &[String]) -> Result<String, Error> {
    let records = ids
        .iter()
        .enumerate()
        .map(|(position, id)| {
            let message: Value = serde_json::from_str(&TEMPLATE.replace("{id}", id))?;
            let body = message.get("body").and_then(Value::as_str);
            let data = BASE64.encode(body.ok_or("a message without a body")?.as_bytes());
            Ok(RECORD
                .replace("{id}", id)
                .replace("{sequence}", &format!("4967{position:052}"))
                .replace("{data}", &data))
        })
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(format!(r#"{{"Records": [{}]}}"#, records.join(",")))
}
