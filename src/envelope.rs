//! Opens the envelope that an AWS service puts around a producer's message. Pure.

mod event_bridge;
mod opened;
mod s3;
mod sns;

pub(crate) use opened::{EnvelopeError, Opened};
#[cfg(feature = "streams")]
pub(crate) use s3::identity as s3_identity;
#[cfg(any(feature = "streams", feature = "invoke"))]
pub(crate) use s3::object_key;

/// The envelope that a service puts around what its producer sent.
///
/// [`BatchLayer::envelope`](crate::batch::BatchLayer::envelope) takes it. The handler then gets what is
/// inside, selectors look inside, and the fingerprint is of what is inside: what the service makes
/// anew for each copy (ids, times, signatures) doesn't count.
///
/// | | what is inside | key, unless one is set | fingerprint, unless one is set |
/// |---|---|---|---|
/// | [`Sns`](Self::Sns) | `Message`, a JSON text | `MessageId` | `TopicArn` and `Message` |
/// | [`EventBridge`](Self::EventBridge) | `detail` | `id` | `source`, `detail-type` and `detail` |
/// | [`S3`](Self::S3) | the record in `Records` | bucket, object key and `sequencer` | the record |
///
/// Topic, source and type count, because two of them may carry equal messages that ask for
/// different work. A producer that retries makes a new `MessageId` or `id`: set a key that is an
/// identity of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Envelope {
    /// An [SNS notification][page], from a topic without raw message delivery. With [raw message
    /// delivery][raw] there is no envelope. The attributes that
    /// [`Selector::attribute`](crate::batch::Selector::attribute) finds are those in `MessageAttributes`.
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
}

impl Envelope {
    /// Opens a body.
    pub(crate) fn open(self, body: &str) -> Result<Opened, EnvelopeError> {
        match self {
            Self::Sns => sns::open(body),
            Self::EventBridge => event_bridge::open(body),
            Self::S3 => s3::open(body),
        }
    }

    /// Opens a body that is in these envelopes, the outermost first; `None` where there are none.
    pub(crate) fn open_all(
        envelopes: &[Self],
        body: &[u8],
    ) -> Result<Option<Opened>, EnvelopeError> {
        envelopes.iter().try_fold(None, |outer, envelope| {
            let Some(outer): Option<Opened> = outer else {
                // Bytes that are no text are in no envelope.
                let text = std::str::from_utf8(body).unwrap_or_default();
                return envelope.open(text).map(Some);
            };
            let mut inner = envelope.open(&outer.text)?;
            inner.context.splice(..0, outer.context);
            if inner.attributes.is_empty() {
                inner.attributes = outer.attributes;
            }
            Ok(Some(inner))
        })
    }
}

#[cfg(test)]
mod tests;
