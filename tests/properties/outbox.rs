//! Every event in an outbox is read as it is or named unreadable, and the relay takes exactly the new ones from its stream.

use std::collections::HashMap;

use arbitrary::{Arbitrary, Unstructured};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::outbox::StoredEvent;
use serde_json::Value;

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the relay's own, as far as it reads events"
)]
#[path = "../../functions/outbox-relay/src/event.rs"]
mod event;

use event::{Announced, Trigger, announced};

/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    of_stream(data);
    of_item(data);
}

/// As JSON, the event that triggers the relay.
fn of_stream(data: &[u8]) {
    let Ok(trigger) = serde_json::from_slice::<Trigger>(data) else {
        return;
    };
    let taken = announced(trigger.records.unwrap_or_default());
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let text = |record: &Value, name: &str| {
        Some(record["dynamodb"]["Keys"][name]["S"].as_str()?.to_owned())
    };
    let records = value["Records"].as_array().cloned().unwrap_or_default();
    let new = records
        .iter()
        .filter(|record| record["eventName"] == "INSERT");
    let expected = new.filter_map(|record| {
        Some(Announced {
            aggregate: text(record, "aggregate")?,
            id: text(record, "id")?,
            sequence_number: record["dynamodb"]["SequenceNumber"].as_str()?.to_owned(),
        })
    });
    assert_eq!(taken, expected.collect::<Vec<_>>());
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Text(String),
    Number(i64),
    Digits(String),
    Binary(Vec<u8>),
    Missing,
}

const ATTRIBUTES: [&str; 8] = [
    "id",
    "type",
    "aggregate",
    "data",
    "recorded_at",
    "transaction",
    "position",
    "pending",
];

/// As arbitrary values, an item of the table.
fn of_item(data: &[u8]) {
    let Ok(kinds) = <[Kind; 8]>::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    let mut item = HashMap::new();
    for (name, kind) in ATTRIBUTES.into_iter().zip(kinds) {
        let value = match kind {
            Kind::Text(text) => AttributeValue::S(text),
            Kind::Number(number) => AttributeValue::N(number.to_string()),
            Kind::Digits(digits) => AttributeValue::N(digits),
            Kind::Binary(bytes) => AttributeValue::B(Blob::new(bytes)),
            Kind::Missing => continue,
        };
        item.insert(name.to_owned(), value);
    }
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
    let number = |name: &str| item.get(name).and_then(|value| value.as_n().ok());
    match StoredEvent::from_item(&item) {
        Ok(event) => {
            let read = [
                Some(&event.id),
                Some(&event.kind),
                Some(&event.aggregate),
                Some(&event.data),
                Some(&event.transaction),
            ];
            assert_eq!(
                read,
                ["id", "type", "aggregate", "data", "transaction"].map(text)
            );
            assert_eq!(
                Some(event.recorded_at.0),
                number("recorded_at").and_then(|digits| digits.parse().ok())
            );
            assert_eq!(
                Some(event.position),
                number("position").and_then(|digits| digits.parse::<i64>().ok()?.try_into().ok())
            );
            assert_eq!(event.is_published, !item.contains_key("pending"));
        }
        Err(error) => {
            let name = error.split('`').nth(1).expect("the attribute's name");
            let is_whole = number(name).is_some_and(|digits| digits.parse::<u32>().is_ok());
            let is_fine = match name {
                "recorded_at" | "position" => is_whole,
                _ => text(name).is_some(),
            };
            assert!(!is_fine, "{name} can be read: {item:?}");
        }
    }
}
