//! Reads what the extended clients of SQS and SNS send in the place of a large payload.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::opened::Opened;

/// The classes that a pointer names: that of today's clients, and of the first one for Java.
const CLASSES: [&str; 2] = [
    "software.amazon.payloadoffloading.PayloadS3Pointer",
    "com.amazon.sqs.javamessaging.MessageS3Pointer",
];

/// Holds the place of a payload that a producer has put into S3.
///
/// It decodes from what a handler gets in its place, where nothing
/// [fetches](crate::batch::BatchLayer::fetch) the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[non_exhaustive]
pub struct S3Pointer {
    /// The name of the bucket.
    #[serde(rename = "s3BucketName")]
    pub bucket: String,
    /// The key of the object: a new one each time that the producer sends.
    #[serde(rename = "s3Key")]
    pub key: String,
}

/// Opens a pointer; `None` for any other text. `payload` is what the object holds, where it was
/// fetched.
pub(super) fn open(text: &str, payload: Option<&str>) -> Option<Opened> {
    let (class, object): (String, &RawValue) = serde_json::from_str(text).ok()?;
    let pointer = serde_json::from_str(object.get()).ok()?;
    CLASSES.contains(&class.as_str()).then(|| Opened {
        text: payload.unwrap_or(object.get()).to_owned(),
        keeps_id: true,
        pointer: payload.is_none().then_some(pointer),
        ..Opened::default()
    })
}

/// Tells whether a text is a pointer.
pub(crate) fn is_pointer(text: &str) -> bool {
    open(text, None).is_some()
}
