//! Holds one record of a Kafka topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::batch::BodyError;
use crate::streams::{Data, HeaderBytes, text, token};

/// The body of a record without a value.
const NO_VALUE: &[u8] = b"null";

/// Holds one record as Lambda delivers it. Lambda sends key and value in Base64, which is decoded
/// here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KafkaRecord {
    /// The place in its partition; `None` where the event has none, which Kafka never sends.
    pub offset: Option<u64>,
    /// The time that Kafka has for the record, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// Says whose time it is: `CREATE_TIME` is the producer's, `LOG_APPEND_TIME` the broker's.
    pub timestamp_type: Option<String>,
    /// The schema of the key, where the mapping has a schema registry.
    pub key_schema: Option<SchemaMetadata>,
    /// The schema of the value, where the mapping has a schema registry.
    pub value_schema: Option<SchemaMetadata>,
    cluster: Option<Arc<str>>,
    topic_partition: Arc<str>,
    id: Option<String>,
    key: Option<Data>,
    value: Option<Data>,
    headers: Vec<(String, HeaderBytes)>,
}

/// Holds what Lambda tells of a schema that it took from a [registry][page]. With the record format
/// `SOURCE`, Lambda takes the schema's id from the bytes, so that it is here alone.
///
/// [page]: https://docs.aws.amazon.com/lambda/latest/dg/services-consume-kafka-events.html
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SchemaMetadata {
    /// The id in the registry: a number in Confluent's, a UUID in Glue's.
    #[serde(default, deserialize_with = "text_or_number")]
    pub schema_id: Option<String>,
    /// `AVRO`, `PROTOBUF` or `JSON`.
    #[serde(default, deserialize_with = "text_or_number")]
    pub data_format: Option<String>,
}

fn text_or_number<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// Reads what is no object as nothing: it is beside the record, and costs no batch.
fn object<'de, D: Deserializer<'de>>(value: D) -> Result<Option<SchemaMetadata>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(value)?).ok())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fields {
    offset: Option<u64>,
    timestamp: Option<i64>,
    timestamp_type: Option<String>,
    #[serde(default, deserialize_with = "object")]
    key_schema_metadata: Option<SchemaMetadata>,
    #[serde(default, deserialize_with = "object")]
    value_schema_metadata: Option<SchemaMetadata>,
    key: Option<Data>,
    value: Option<Data>,
    headers: Option<Vec<BTreeMap<String, HeaderBytes>>>,
}

impl KafkaRecord {
    pub(super) fn new(
        cluster: Option<Arc<str>>,
        topic_partition: &Arc<str>,
        fields: Fields,
    ) -> Self {
        let offset = fields.offset.filter(|_| !topic_partition.is_empty());
        Self {
            offset: fields.offset,
            timestamp: fields.timestamp,
            timestamp_type: fields.timestamp_type,
            key_schema: fields.key_schema_metadata,
            value_schema: fields.value_schema_metadata,
            cluster,
            topic_partition: Arc::clone(topic_partition),
            id: offset.map(|offset| format!("{topic_partition}-{offset}")),
            key: fields.key,
            value: fields.value,
            headers: fields.headers.into_iter().flatten().flatten().collect(),
        }
    }

    /// Names topic and partition as the event does, such as `movements-0`.
    pub fn topic_partition(&self) -> &str {
        &self.topic_partition
    }

    /// Names the topic.
    pub fn topic(&self) -> &str {
        let parts = self.topic_partition.rsplit_once('-');
        parts.map_or(&self.topic_partition, |(topic, _)| topic)
    }

    /// Gives the number of the partition.
    pub fn partition(&self) -> Option<u32> {
        let (_, partition) = self.topic_partition.rsplit_once('-')?;
        partition.parse().ok()
    }

    /// Gives the bytes of the record's key; `None` where it has none.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_ref()?.bytes().ok()
    }

    /// Gives the record's key as text, or in Base64 where it is not UTF-8; `None` where it has
    /// none.
    pub fn key_text(&self) -> Option<String> {
        self.key().map(text)
    }

    /// Gives the bytes of the value; `None` where it is null.
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_ref()?.bytes().ok()
    }

    /// Tells whether the value is null: on a compacted topic, such a record deletes its key.
    pub fn is_tombstone(&self) -> bool {
        self.value.is_none()
    }

    /// Gives the bytes of the last header of this name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.last(name)?.bytes()
    }

    pub(super) fn header_text(&self, name: &str) -> Option<String> {
        self.last(name)?.text()
    }

    fn last(&self, name: &str) -> Option<&HeaderBytes> {
        let mut headers = self.headers.iter().rev();
        headers.find_map(|(own, value)| (own == name).then_some(value))
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub(super) fn token(&self) -> Option<String> {
        Some(token(self.cluster.as_deref()?, self.id()?))
    }

    pub(super) fn body(&self) -> Result<&[u8], BodyError> {
        self.value.as_ref().map_or(Ok(NO_VALUE), Data::bytes)
    }
}
