//! Lambda's events, as far as the relay reads them: keys and sequence numbers. The events of the outbox are read from the table.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A batch of the table's stream; or an operator's request for parked events; or, with neither, a schedule's wish for a sweep.
#[derive(Debug, Deserialize)]
pub(crate) struct Trigger {
    #[serde(rename = "Records")]
    pub(crate) records: Option<Vec<StreamRecord>>,
    pub(crate) parked: Option<Parked>,
    /// The place where the answer to an earlier request for parked events ended.
    pub(crate) from: Option<Place>,
}

/// The key of an item in the outbox, behind which a scan goes on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Place {
    pub(crate) aggregate: String,
    pub(crate) id: String,
}

/// An operator's request for all parked events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Parked {
    Count,
    PutBack,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StreamRecord {
    #[serde(rename = "eventName")]
    event_name: String,
    dynamodb: Change,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change {
    keys: HashMap<String, Key>,
    sequence_number: String,
}

#[derive(Debug, Deserialize)]
struct Key {
    #[serde(rename = "S")]
    text: Option<String>,
}

/// An event that the stream announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) aggregate: String,
    pub(crate) id: String,
    pub(crate) sequence_number: String,
}

/// The new events of a batch. The relay's own marks, and what TTL deletes, come by as well.
pub(crate) fn announced(records: Vec<StreamRecord>) -> Vec<Announced> {
    let is_new = |record: &StreamRecord| record.event_name == "INSERT";
    let named = |record: StreamRecord| {
        let mut keys = record.dynamodb.keys;
        let mut text = |name| keys.remove(name).and_then(|key| key.text);
        let (aggregate, id) = (text("aggregate"), text("id"));
        if aggregate.is_none() || id.is_none() {
            tracing::error!(
                "a stream record without the outbox's keys: is this another table's stream?"
            );
        }
        Some(Announced {
            aggregate: aggregate?,
            id: id?,
            sequence_number: record.dynamodb.sequence_number,
        })
    };
    records
        .into_iter()
        .filter(is_new)
        .filter_map(named)
        .collect()
}

/// The records that are to be delivered again: Lambda goes back to the lowest of these.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    batch_item_failures: Vec<Failure>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

impl Answer {
    pub(crate) fn of(sequence_numbers: Vec<String>) -> Self {
        let failure = |item_identifier| Failure { item_identifier };
        Self {
            batch_item_failures: sequence_numbers.into_iter().map(failure).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_events_are_taken_from_a_batch_and_nothing_else() {
        let trigger = r#"{ "Records": [
            { "eventName": "INSERT", "dynamodb": { "Keys": { "aggregate": { "S": "a" }, "id": { "S": "1" } }, "SequenceNumber": "10" } },
            { "eventName": "MODIFY", "dynamodb": { "Keys": { "aggregate": { "S": "a" }, "id": { "S": "1" } }, "SequenceNumber": "11" } },
            { "eventName": "INSERT", "dynamodb": { "Keys": { "pk": { "N": "1" } }, "SequenceNumber": "12" } }
        ] }"#;
        let trigger: Trigger = serde_json::from_str(trigger).unwrap();
        let expected = Announced {
            aggregate: "a".to_owned(),
            id: "1".to_owned(),
            sequence_number: "10".to_owned(),
        };
        assert_eq!(announced(trigger.records.unwrap()), [expected]);
    }

    #[test]
    fn a_request_for_parked_events_goes_on_where_another_ended() {
        let place = Place {
            aggregate: "order-17".to_owned(),
            id: "4a".to_owned(),
        };
        let answer = serde_json::json!({ "parked": "put_back", "from": &place });
        let trigger: Trigger = serde_json::from_value(answer).unwrap();
        assert_eq!(
            (trigger.parked, trigger.from),
            (Some(Parked::PutBack), Some(place))
        );
    }

    #[test]
    fn a_schedule_has_no_records() {
        let trigger: Trigger = serde_json::from_str(r#"{ "source": "aws.scheduler" }"#).unwrap();
        assert!(trigger.records.is_none());
    }

    #[test]
    fn failures_are_named_as_lambda_expects() {
        let answer = serde_json::to_value(Answer::of(vec!["10".to_owned()])).unwrap();
        let expected = r#"{"batchItemFailures":[{"itemIdentifier":"10"}]}"#;
        assert_eq!(answer.to_string(), expected);
    }
}
