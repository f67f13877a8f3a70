//! Holds what was inside of an envelope, or why it could not be opened.

use std::collections::HashMap;

use serde::Deserialize;

use crate::protocol::fingerprint::Fingerprint;

/// Says why a body is not in its envelope, without any of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvelopeError {
    #[error(
        "the body is no SNS notification (JSON with the texts `Type`, `MessageId`, `TopicArn` and `Message`): with raw message delivery there is no envelope, so declare none"
    )]
    Sns,
    #[error(
        "the body is an SNS message of another `Type` than `Notification`, such as the confirmation of a subscription"
    )]
    SnsType,
    #[error(
        "the body is no EventBridge event (JSON with `id`, `source`, `detail-type` and `detail`): where the rule's target has an input path or a transformer, there is no envelope, so declare none"
    )]
    EventBridge,
    #[error("the body is no S3 notification (JSON with `Records`, and `s3` in the record)")]
    S3,
    #[error(
        "the body is the test event that S3 sends when notifications are set up: it has no record"
    )]
    S3Test,
    #[error("the S3 notification has another number of records than one")]
    S3Records,
    #[error(
        "the body is the pointer of an extended client to a payload in S3: declare `Envelope::S3Pointer`"
    )]
    S3Pointer,
}

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

/// Reads a JSON text. The parser's message is dropped, because it quotes the text.
pub(super) fn read<'a, T: Deserialize<'a>>(
    body: &'a str,
    error: EnvelopeError,
) -> Result<T, EnvelopeError> {
    serde_json::from_str(body).map_err(|_| error)
}
