//! Decodes the event of an S3 bucket's notification.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::envelope::{object_key, s3_identity};
use crate::s3_events::sequencer::Sequencer;

/// Holds the records of one [notification][page]. The test event that S3 sends when notifications
/// are set up has none.
///
/// [page]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct S3Event {
    /// The records, in their order.
    pub records: Vec<S3Record>,
}

/// Holds one record as S3 delivers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct S3Record {
    /// The name of the event, such as `ObjectCreated:Put`.
    pub event_name: String,
    /// The time of the event, in ISO 8601.
    pub event_time: Option<String>,
    /// The name of the bucket.
    pub bucket: String,
    /// The object's key as it arrives, URL-encoded; [`object_key`](Self::object_key) decodes it.
    pub encoded_key: String,
    /// The object's size in bytes; `None` where it was deleted.
    pub size: Option<u64>,
    /// The object's entity tag.
    pub e_tag: Option<String>,
    /// The object's version, in a bucket with versions.
    pub version_id: Option<String>,
    /// The place of the event among those of its object; `None` where the event has none. AWS
    /// documents it for events that create or delete an object.
    pub sequencer: Option<Sequencer>,
    id: String,
    token: Option<String>,
    json: Box<str>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "Event")]
    event: Option<String>,
    #[serde(rename = "Records")]
    records: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    #[serde(rename = "eventSource")]
    _source: EventSource,
    event_name: String,
    event_time: Option<String>,
    s3: Entity,
}

/// The value that S3 documents; a record of another source is an error.
#[derive(Deserialize)]
enum EventSource {
    #[serde(rename = "aws:s3")]
    S3,
}

#[derive(Deserialize)]
struct Entity {
    bucket: Bucket,
    object: Object,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    key: String,
    size: Option<u64>,
    e_tag: Option<String>,
    version_id: Option<String>,
    sequencer: Option<Sequencer>,
}

impl<'de> Deserialize<'de> for S3Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const NO_NOTIFICATION: &str = "the event is no S3 notification: it has no `Records`";
        const NO_RECORD: &str = "the event holds a record that is not of S3";
        let wire = Wire::deserialize(deserializer)?;
        let records = match (wire.records, wire.event.as_deref()) {
            (Some(records), _) => records,
            (None, Some("s3:TestEvent")) => Vec::new(),
            (None, _) => return Err(D::Error::custom(NO_NOTIFICATION)),
        };
        // The parser's message may quote the record.
        let read = |(position, json): (usize, Box<RawValue>)| {
            let fields = serde_json::from_str(json.get());
            let fields = fields.map_err(|_| D::Error::custom(NO_RECORD))?;
            Ok(S3Record::new(position, fields, json))
        };
        let records: Result<_, D::Error> = records.into_iter().enumerate().map(read).collect();
        Ok(Self { records: records? })
    }
}

impl S3Record {
    fn new(position: usize, fields: Fields, json: Box<RawValue>) -> Self {
        let Entity { bucket, object } = fields.s3;
        let sequencer = object.sequencer.as_ref().map_or("", Sequencer::as_str);
        let token = s3_identity(
            bucket.name.clone(),
            object.key.clone(),
            sequencer.to_owned(),
        );
        Self {
            event_name: fields.event_name,
            event_time: fields.event_time,
            bucket: bucket.name,
            encoded_key: object.key,
            size: object.size,
            e_tag: object.e_tag,
            version_id: object.version_id,
            sequencer: object.sequencer,
            id: token
                .clone()
                .unwrap_or_else(|| format!("record-{position}")),
            token,
            json: json.into(),
        }
    }

    /// Gives the object's key, decoded: notifications have it URL-encoded, with `+` for a space.
    /// `None` where the decoded key is not UTF-8, which S3 never sends.
    pub fn object_key(&self) -> Option<String> {
        object_key(&self.encoded_key)
    }

    /// Gives the JSON text of the record.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The token, or the place in the event: the notification has no id of its own.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}
