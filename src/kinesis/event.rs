//! Defines the event that Lambda makes of records of a Kinesis data stream.
//!
//! [AWS's page](https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html) shows such an event.

use std::fmt;
use std::time::SystemTime;

use serde::Deserialize;

use super::aggregate::{self, Damaged, SubRecord};
use crate::batch::BodyError;
use crate::streams::{Data, OtherService, check_service, seconds};

/// Holds a batch of records of one shard.
///
/// Deserializing the event of another service fails with an error that names this service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct KinesisEvent {
    /// The records, in the order of their sequence numbers.
    #[serde(rename = "Records")]
    pub records: Vec<KinesisRecord>,
}

/// Holds one record. A field that the event lacks is `None`.
///
/// ```
/// use lambda_idempotency::kinesis::KinesisRecord;
///
/// let record: KinesisRecord = serde_json::from_str(
///     r#"{"kinesis": {"partitionKey": "tea", "sequenceNumber": "4959", "data": "aGVsbG8="}}"#,
/// )?;
/// assert_eq!(record.partition_key.as_deref(), Some("tea"));
/// assert_eq!(record.data()?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Received")]
#[non_exhaustive]
pub struct KinesisRecord {
    /// The id of the shard and the sequence number, joined by `:`. It is unique within the stream.
    pub event_id: Option<String>,
    /// The ARN of the stream. AWS's page shows no event of a consumer with enhanced fan-out; the
    /// ARN of a consumer makes the same keys as that of its stream.
    pub event_source_arn: Option<String>,
    /// The key by which the producer chose the shard. Records of one key are ordered.
    pub partition_key: Option<String>,
    /// The hash by which the producer chose the shard instead, of a record that was in an aggregate.
    pub explicit_hash_key: Option<String>,
    /// The number of the record in its shard, which records of one aggregate share. The reply names
    /// records by it.
    pub sequence_number: Option<String>,
    /// The place, from 0, of a record that was in an aggregate of the Kinesis Producer Library.
    pub sub_sequence_number: Option<usize>,
    /// The time at which the stream took the record in, with a resolution of milliseconds.
    pub approximate_arrival: Option<SystemTime>,
    pub(super) data: Data,
}

impl KinesisRecord {
    /// Gives the bytes that the producer sent. In a [`KinesisEvent`], an aggregate of the Kinesis
    /// Producer Library is given as it is.
    ///
    /// # Errors
    ///
    /// The record has no data, its data is not Base64, or the aggregate that it is can't be read.
    pub fn data(&self) -> Result<&[u8], BodyError> {
        self.data.bytes()
    }

    /// Takes the records out of an aggregate. Any other record stays as it is.
    pub(super) fn opened(mut self) -> Vec<Self> {
        const DAMAGED: BodyError = BodyError::new(
            "the data is an aggregate of the Kinesis Producer Library that can't be read",
        );
        let data = std::mem::take(&mut self.data);
        let inside = |(place, record): (usize, &SubRecord<'_>)| Self {
            partition_key: Some(record.partition_key.to_owned()),
            explicit_hash_key: record.explicit_hash_key.map(str::to_owned),
            sub_sequence_number: Some(place),
            data: Data::decoded(Ok(record.data)),
            ..self.clone()
        };
        let opened = data.bytes().ok().and_then(aggregate::open);
        let opened = opened.map(|records| match records {
            Ok(records) => records.iter().enumerate().map(inside).collect(),
            Err(Damaged) => vec![Self {
                data: Data::decoded(Err(DAMAGED)),
                ..self.clone()
            }],
        });
        opened.unwrap_or_else(|| vec![Self { data, ..self }])
    }
}

/// Shows the ids: the data and the partition key are not for logs.
impl fmt::Debug for KinesisRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinesisRecord")
            .field("event_id", &self.event_id)
            .field("event_source_arn", &self.event_source_arn)
            .field("sequence_number", &self.sequence_number)
            .field("sub_sequence_number", &self.sub_sequence_number)
            .field("approximate_arrival", &self.approximate_arrival)
            .finish_non_exhaustive()
    }
}

/// A record as Lambda writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    #[serde(rename = "eventID")]
    event_id: Option<String>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    /// SNS writes it with a capital letter.
    #[serde(alias = "EventSource")]
    event_source: Option<String>,
    kinesis: Option<Payload>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    partition_key: Option<String>,
    sequence_number: Option<String>,
    approximate_arrival_timestamp: Option<f64>,
    #[serde(default)]
    data: Data,
}

impl TryFrom<Received> for KinesisRecord {
    type Error = OtherService;

    fn try_from(received: Received) -> Result<Self, OtherService> {
        check_service(received.event_source, "aws:kinesis")?;
        let payload = received.kinesis.unwrap_or_default();
        Ok(Self {
            event_id: received.event_id,
            event_source_arn: received.event_source_arn,
            partition_key: payload.partition_key,
            explicit_hash_key: None,
            sequence_number: payload.sequence_number,
            sub_sequence_number: None,
            approximate_arrival: payload.approximate_arrival_timestamp.and_then(seconds),
            data: payload.data,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_record_lacks_is_none_and_its_data_an_error() {
        let record: KinesisRecord = serde_json::from_value(json!({})).unwrap();
        assert_eq!(record, KinesisRecord::default());
        assert_eq!(record.data(), Err(BodyError::MISSING));
        let bare: KinesisRecord = serde_json::from_value(json!({ "kinesis": {} })).unwrap();
        assert_eq!(bare, record);
    }

    #[test]
    fn the_event_of_another_service_is_named() {
        for (member, service) in [("eventSource", "aws:sqs"), ("EventSource", "aws:sns")] {
            let event = json!({ "Records": [{ member: service }] });
            let error = serde_json::from_value::<KinesisEvent>(event).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(&format!("an event of {service}")), "{said}");
        }
    }

    #[test]
    fn neither_data_nor_partition_key_is_shown() {
        let kinesis = json!({ "partitionKey": "secret-key", "data": "c2VjcmV0" });
        let record = serde_json::from_value::<KinesisRecord>(json!({ "kinesis": kinesis }));
        let shown = format!("{:?}", record.unwrap());
        assert!(
            !shown.contains("secret") && !shown.contains("115"),
            "{shown}"
        );
    }
}
