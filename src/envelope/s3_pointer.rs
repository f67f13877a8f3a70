//! Reads what the extended clients of SQS and SNS send in the place of a large payload.

use serde_json::value::RawValue;

use super::opened::{Opened, S3Pointer};

/// The classes that a pointer names: that of today's clients, and of the first one for Java.
const CLASSES: [&str; 2] = [
    "software.amazon.payloadoffloading.PayloadS3Pointer",
    "com.amazon.sqs.javamessaging.MessageS3Pointer",
];

/// Opens a pointer; `None` for any other text. `payload` is what the object holds, where it was
/// fetched.
pub(super) fn open(text: &str, payload: Option<&str>) -> Option<Opened> {
    let (place, pointer) = read(text)?;
    Some(Opened {
        text: payload.unwrap_or(place.get()).to_owned(),
        keeps_id: true,
        pointer: payload.is_none().then_some(pointer),
        ..Opened::default()
    })
}

/// Tells whether a text is a pointer.
#[cfg(feature = "batch")]
pub(crate) fn is_pointer(text: &str) -> bool {
    read(text).is_some()
}

fn read(text: &str) -> Option<(&RawValue, S3Pointer)> {
    let (class, place): (String, &RawValue) = serde_json::from_str(text).ok()?;
    let pointer = serde_json::from_str(place.get()).ok()?;
    CLASSES
        .contains(&class.as_str())
        .then_some((place, pointer))
}
