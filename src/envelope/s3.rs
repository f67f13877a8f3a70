//! Opens S3 event notifications.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::envelope::{NO_S3_EVENT, NOT_ONE_RECORD, Opened, S3_TEST_EVENT, read};
use crate::protocol::fingerprint::Fingerprint;

/// Decodes an object's key as S3 sends it: URL-encoded, with `+` for a space; `None` where it is not
/// UTF-8.
#[cfg(any(feature = "streams", feature = "invoke"))]
pub(crate) fn object_key(encoded: &str) -> Option<String> {
    let spaced = encoded.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&spaced).decode_utf8();
    decoded.ok().map(std::borrow::Cow::into_owned)
}

#[derive(Deserialize)]
pub(crate) struct Notification<R> {
    #[serde(rename = "Event")]
    pub(crate) event: Option<String>,
    #[serde(rename = "Records")]
    pub(crate) records: Option<Vec<R>>,
}

#[derive(Deserialize)]
struct Record {
    s3: Entity<Object>,
}

#[derive(Deserialize)]
pub(crate) struct Entity<O> {
    pub(crate) bucket: Bucket,
    pub(crate) object: O,
}

#[derive(Deserialize)]
pub(crate) struct Bucket {
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct Object {
    key: String,
    sequencer: Option<String>,
}

pub(super) fn open(body: &str) -> Result<Opened, &'static str> {
    let notification: Notification<&RawValue> = read(body, NO_S3_EVENT)?;
    let Some(records) = notification.records else {
        let is_test = notification.event.as_deref() == Some("s3:TestEvent");
        return Err(if is_test { S3_TEST_EVENT } else { NO_S3_EVENT });
    };
    let [record] = records.as_slice() else {
        return Err(NOT_ONE_RECORD);
    };
    let Entity { bucket, object } = read::<Record>(record.get(), NO_S3_EVENT)?.s3;
    let id = identity(
        bucket.name,
        object.key,
        object.sequencer.unwrap_or_default(),
    );
    Ok(Opened {
        text: record.get().to_owned(),
        id,
        ..Opened::default()
    })
}

/// Makes the token of a notification; `None` where a part is missing. A selector makes the same
/// token of the same list. It is a hash, because an object key may be longer than a token.
pub(crate) fn identity(bucket: String, key: String, sequencer: String) -> Option<String> {
    let parts = [bucket, key, sequencer];
    let is_complete = parts.iter().all(|part| !part.is_empty());
    let identity = is_complete
        .then(|| Fingerprint::of(&parts).ok())
        .flatten()?;
    Some(identity.as_str().to_owned())
}
