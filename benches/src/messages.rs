//! The messages that every contender gets, from one template.

use lambda_idempotency::sqs::SqsEvent;
use serde::Deserialize;

use crate::Error;

const TEMPLATE: &str = include_str!("../message.json");

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
