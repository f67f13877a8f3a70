//! Makes records of streams and of Kafka as Lambda delivers them.

use data_encoding::BASE64;
use lambda_runtime::{Context, LambdaEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::TestError;
use crate::dynamodb_streams::DynamoDbStreamEvent;
use crate::kafka::KafkaEvent;
use crate::kinesis::KinesisEvent;

/// Makes a record of a Kinesis data stream, a DynamoDB stream or a Kafka topic as Lambda delivers it.
///
/// ```
/// use lambda_idempotency::testing::TestRecord;
/// use lambda_idempotency::{Idempotency, kinesis, store::MemoryStore};
/// use serde_json::json;
/// use tower::{Service, ServiceBuilder};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(MemoryStore::new()).namespace("stock").build()?;
/// let mut worker = ServiceBuilder::new()
///     .layer(kinesis::BatchLayer::new(once))
///     .service_fn(async |message: kinesis::Message<serde_json::Value>| {
///         if message.body["delta"] == 0 { Err("nothing to book") } else { Ok(()) }
///     });
///
/// let event = TestRecord::kinesis([
///     TestRecord::json(1, &json!({"delta": 5}))?.key("tea"),
///     TestRecord::json(2, &json!({"delta": 0}))?.key("mate"),
/// ])?;
/// let reply = worker.call(event).await?;
/// assert_eq!(reply.batch_item_failures, ["2"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is the description of a record"]
pub struct TestRecord {
    place: u64,
    key: Option<String>,
    data: Vec<u8>,
}

impl TestRecord {
    /// Makes a record with this place in its stream, which is its sequence number or its offset, and
    /// with this data.
    pub fn new(place: u64, data: impl Into<Vec<u8>>) -> Self {
        Self {
            place,
            key: None,
            data: data.into(),
        }
    }

    /// Makes a record whose data is this value as JSON.
    ///
    /// # Errors
    ///
    /// When the value can't be written as JSON.
    pub fn json<T: Serialize + ?Sized>(place: u64, data: &T) -> Result<Self, TestError> {
        Ok(Self::new(place, serde_json::to_vec(data)?))
    }

    /// Sets the partition key of a Kinesis record, or the key of a Kafka record. Default: `"key"`,
    /// or none in Kafka.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes the event of records of one shard of a Kinesis data stream, in this order. It has no
    /// deadline: set `event.context.deadline`, in milliseconds since 1970, for one. Outside Lambda
    /// handlers go on after it: set [`at_deadline`](crate::Settings::at_deadline) to
    /// [`End`](crate::AtDeadline::End) to see what Lambda does.
    ///
    /// # Errors
    ///
    /// When this crate can't read the event that it wrote, which is a mistake in the crate.
    pub fn kinesis(
        records: impl IntoIterator<Item = Self>,
    ) -> Result<LambdaEvent<KinesisEvent>, TestError> {
        let records = records.into_iter().map(|record| {
            json!({
                "eventID": format!("shardId-000000000000:{}", record.place),
                "eventSource": "aws:kinesis",
                "eventSourceARN": "arn:aws:kinesis:eu-central-1:123456789012:stream/stream",
                "kinesis": {
                    "partitionKey": record.key.unwrap_or_else(|| "key".to_owned()),
                    "sequenceNumber": record.place.to_string(),
                    "data": BASE64.encode(&record.data),
                },
            })
        });
        event(&json!({ "Records": records.collect::<Vec<_>>() }))
    }

    /// Makes the event of records of partition 0 of one topic, in this order; as
    /// [`kinesis`](Self::kinesis) does.
    ///
    /// # Errors
    ///
    /// As [`kinesis`](Self::kinesis).
    pub fn kafka(
        records: impl IntoIterator<Item = Self>,
    ) -> Result<LambdaEvent<KafkaEvent>, TestError> {
        let records = records.into_iter().map(|record| {
            json!({
                "topic": "topic",
                "partition": 0,
                "offset": record.place,
                "timestamp": 1_763_640_000_000_u64,
                "timestampType": "CREATE_TIME",
                "key": record.key.map(|key| BASE64.encode(key.as_bytes())),
                "value": BASE64.encode(&record.data),
                "headers": [],
            })
        });
        event(&json!({
            "eventSource": "aws:kafka",
            "eventSourceArn": "arn:aws:kafka:eu-central-1:123456789012:cluster/cluster/1",
            "bootstrapServers": "b-1.cluster.kafka.eu-central-1.amazonaws.com:9092",
            "records": { "topic-0": records.collect::<Vec<_>>() },
        }))
    }

    /// Makes the event of changes of one table's items, in this order; as [`kinesis`](Self::kinesis)
    /// does. The data of each record is the event's `dynamodb` member: JSON with `Keys`,
    /// and `NewImage` or `OldImage`, whose values have their types, such as `{"S": "tea"}`. A
    /// change without an `OldImage` is an `INSERT`, one without a `NewImage` a `REMOVE`.
    ///
    /// # Errors
    ///
    /// When the data isn't JSON of this form.
    pub fn dynamodb(
        records: impl IntoIterator<Item = Self>,
    ) -> Result<LambdaEvent<DynamoDbStreamEvent>, TestError> {
        let records = records.into_iter().map(|record| {
            let mut change: Value = serde_json::from_slice(&record.data)?;
            let name = match (change.get("OldImage"), change.get("NewImage")) {
                (None, _) => "INSERT",
                (_, None) => "REMOVE",
                _ => "MODIFY",
            };
            if let Some(change) = change.as_object_mut() {
                change.insert("SequenceNumber".to_owned(), json!(record.place.to_string()));
            }
            Ok(json!({
                "eventID": record.place.to_string(),
                "eventName": name,
                "eventSource": "aws:dynamodb",
                "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/table/stream/2026-01-01T00:00:00.000",
                "dynamodb": change,
            }))
        });
        let records = records.collect::<Result<Vec<_>, TestError>>()?;
        event(&json!({ "Records": records }))
    }
}

fn event<T: DeserializeOwned>(event: &Value) -> Result<LambdaEvent<T>, TestError> {
    let event = serde_json::from_str(&event.to_string())?;
    Ok(LambdaEvent::new(event, Context::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kafka_record_has_what_was_set() {
        let records = [
            TestRecord::new(7, "{}").key("tea"),
            TestRecord::new(8, "{}"),
        ];
        let event = TestRecord::kafka(records).unwrap().payload;
        let offsets: Vec<_> = event.records.iter().map(|record| record.offset).collect();
        assert_eq!(offsets, [Some(7), Some(8)]);
    }

    #[test]
    fn a_change_is_named_by_its_images() {
        let item = json!({ "id": { "S": "tea" } });
        let changes = [
            json!({ "Keys": item, "NewImage": item }),
            json!({ "Keys": item, "OldImage": item }),
            json!({ "Keys": item, "OldImage": item, "NewImage": item }),
        ];
        let records = (1..)
            .zip(&changes)
            .map(|(place, change)| TestRecord::json(place, change).unwrap());
        let event = TestRecord::dynamodb(records).unwrap().payload;
        let names: Vec<_> = event
            .records
            .iter()
            .map(|record| record.event_name.as_deref())
            .collect();
        assert_eq!(names, [Some("INSERT"), Some("REMOVE"), Some("MODIFY")]);
        let failed = TestRecord::dynamodb([TestRecord::new(1, "no JSON")]).map(|_| ());
        assert!(failed.is_err());
    }
}
