//! Opens the envelope that an AWS service puts around a producer's message. Pure.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protocol::fingerprint::Fingerprint;

mod event_bridge;
mod s3;
mod sns;
#[cfg(test)]
mod tests;

#[cfg(feature = "invoke")]
pub(crate) use crate::envelope::event_bridge::open as open_event_bridge;
#[cfg(feature = "batch")]
pub(crate) use crate::envelope::is_pointer as is_s3_pointer;
#[cfg(any(feature = "streams", feature = "invoke"))]
pub(crate) use crate::envelope::s3::object_key;
#[cfg(feature = "streams")]
pub(crate) use crate::envelope::s3::{
    Entity as S3Entity, Notification as S3Notification, identity as s3_identity,
};
#[cfg(feature = "invoke")]
pub(crate) use crate::envelope::sns::open as open_sns;

/// The envelope that a service puts around what its producer sent.
///
/// [`BatchLayer::envelope`](crate::batch::BatchLayer::envelope) takes it. The handler then gets what is
/// inside, selectors look inside, and the fingerprint is of what is inside: what the service makes
/// anew for each copy (ids, times, signatures) doesn't count.
///
/// | | what is inside | key, unless one is set | fingerprint, unless one is set |
/// |---|---|---|---|
/// | [`Sns`](Self::Sns) | `Message`, a JSON text | `MessageId` | `TopicArn` and `Message` |
/// | [`EventBridge`](Self::EventBridge) | `detail` | `id` | `source`, `detail-type`, `account` and `detail` |
/// | [`S3`](Self::S3) | the record in `Records` | bucket, object key and `sequencer` | the record |
/// | [`S3Pointer`](Self::S3Pointer) | the object's content, or the pointer | that of what is around it | the content, or nothing |
///
/// Topic, source, type and account count, because two of them may carry equal messages that ask for
/// different work. A producer that retries makes a new `MessageId` or `id`: set a key that is an
/// identity of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Envelope {
    /// An [SNS notification][page], from a topic without raw message delivery. With [raw message
    /// delivery][raw] there is no envelope. The attributes that
    /// [`key_attribute`](crate::batch::BatchLayer::key_attribute) finds are those in `MessageAttributes`.
    ///
    /// [page]: https://docs.aws.amazon.com/sns/latest/dg/sns-sqs-as-subscriber.html
    /// [raw]: https://docs.aws.amazon.com/sns/latest/dg/sns-large-payload-raw-message-delivery.html
    Sns,
    /// An [event of an EventBridge bus][page], as a rule without an input path or a transformer
    /// hands it on.
    ///
    /// [page]: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-events-structure.html
    EventBridge,
    /// An [S3 event notification][page] with its one record. Events that neither create nor delete
    /// an object (tags, access, restores) have no `sequencer`, so they need a key of your own. The
    /// test event that S3 sends when notifications are set up is reported: it has no record.
    ///
    /// [page]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
    S3,
    /// The [pointer][page] that an extended client of SQS or SNS sends for a payload in S3. A body
    /// that is none is taken as it is: the clients put only large payloads into S3.
    ///
    /// A producer that sends again puts its payload into another object. So the pointer counts
    /// neither for the key nor for the fingerprint. Let the layer
    /// [fetch](crate::batch::BatchLayer::fetch) the object: its content is then decoded, keyed and
    /// compared as a body is. Else the handler gets the pointer, as an [`S3Pointer`], messages of
    /// one key are not compared, and the key is that of an attribute
    /// ([`key_attribute`](crate::batch::BatchLayer::key_attribute)), or the message's own.
    ///
    /// [page]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-managing-large-messages.html
    S3Pointer,
}

impl Envelope {
    /// Opens a body; `None` where it is taken as it is.
    fn open(self, body: &str, payload: Option<&str>) -> Result<Option<Opened>, &'static str> {
        match self {
            Self::Sns => sns::open(body).map(Some),
            Self::EventBridge => event_bridge::open(body).map(Some),
            Self::S3 => s3::open(body).map(Some),
            Self::S3Pointer => Ok(open_pointer(body, payload)),
        }
    }

    /// Opens a body that is in these envelopes, the outermost first; `None` where there are none.
    /// `payload` is what an [`S3Pointer`] among them stands for, where it was fetched.
    pub(crate) fn open_all(
        envelopes: &[Self],
        body: &[u8],
        payload: Option<&str>,
    ) -> Result<Option<Opened>, &'static str> {
        let mut opened: Option<Opened> = None;
        for envelope in envelopes {
            let text = match &opened {
                Some(outer) => &outer.text,
                // Bytes that are no text are in no envelope.
                None => std::str::from_utf8(body).unwrap_or_default(),
            };
            let Some(mut inner) = envelope.open(text, payload)? else {
                continue;
            };
            if let Some(outer) = opened {
                inner.context.splice(..0, outer.context);
                if inner.attributes.is_empty() {
                    inner.attributes = outer.attributes;
                }
                if inner.keeps_id {
                    inner.id = outer.id;
                    inner.keeps_id = outer.keeps_id;
                }
            }
            let is_closed = inner.pointer.is_some();
            opened = Some(inner);
            // Further envelopes would be inside the object.
            if is_closed {
                break;
            }
        }
        Ok(opened)
    }
}

// Each text says why a body is not in its envelope, without any of its content.
const NO_NOTIFICATION: &str = "the body is no SNS notification (JSON with the texts `Type`, `MessageId`, `TopicArn` and `Message`): with raw message delivery there is no envelope, so declare none";
const OTHER_SNS_TYPE: &str = "the body is an SNS message of another `Type` than `Notification`, such as the confirmation of a subscription";
const NO_BUS_EVENT: &str = "the body is no EventBridge event (JSON with `id`, `source`, `detail-type` and `detail`): where the rule's target has an input path or a transformer, there is no envelope, so declare none";
const NO_S3_EVENT: &str =
    "the body is no S3 notification (JSON with `Records`, and `s3` in the record)";
const S3_TEST_EVENT: &str =
    "the body is the test event that S3 sends when notifications are set up: it has no record";
const NOT_ONE_RECORD: &str = "the S3 notification has another number of records than one";
pub(crate) const UNDECLARED_POINTER: &str = "the body is the pointer of an extended client to a payload in S3: declare `Envelope::S3Pointer`, after the envelope that the pointer is in, if any";

/// Holds what an envelope contains.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// The JSON text inside.
    pub(crate) text: String,
    /// The id that the service gave the message, where it identifies one.
    pub(crate) id: Option<String>,
    /// No service did: the id is that of what is around it.
    pub(crate) keeps_id: bool,
    /// The text says where the payload is, which is no part of the request.
    pub(crate) pointer: Option<S3Pointer>,
    /// The attributes beside the text.
    pub(crate) attributes: HashMap<String, String>,
    /// The part of the envelope that says what the text asks for.
    pub(crate) context: Vec<Fingerprint>,
}

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

/// Reads a JSON object. The parser's message is dropped, because it quotes the text.
fn read<'a, T: Deserialize<'a>>(body: &'a str, error: &'static str) -> Result<T, &'static str> {
    // Of a list, it would take the values by their places.
    if !body.trim_start().starts_with('{') {
        return Err(error);
    }
    serde_json::from_str(body).map_err(|_| error)
}

/// The classes that a pointer names: that of today's clients, and of the first one for Java.
const CLASSES: [&str; 2] = [
    "software.amazon.payloadoffloading.PayloadS3Pointer",
    "com.amazon.sqs.javamessaging.MessageS3Pointer",
];

/// Opens a pointer; `None` for any other text. `payload` is what the object holds, where it was
/// fetched.
fn open_pointer(text: &str, payload: Option<&str>) -> Option<Opened> {
    let (place, pointer) = read_pointer(text)?;
    Some(Opened {
        text: payload.unwrap_or(place.get()).to_owned(),
        keeps_id: true,
        pointer: payload.is_none().then_some(pointer),
        ..Opened::default()
    })
}

/// Returns whether a text is a pointer.
#[cfg(feature = "batch")]
pub(crate) fn is_pointer(text: &str) -> bool {
    read_pointer(text).is_some()
}

fn read_pointer(text: &str) -> Option<(&RawValue, S3Pointer)> {
    let (class, place): (String, &RawValue) = serde_json::from_str(text).ok()?;
    let pointer = read(place.get(), UNDECLARED_POINTER).ok()?;
    CLASSES
        .contains(&class.as_str())
        .then_some((place, pointer))
}
