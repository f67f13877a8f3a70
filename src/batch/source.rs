//! Declares what a batch needs to know of its source.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::Span;

/// Describes an event source that delivers messages in batches, and takes back the ids of those
/// that failed.
///
/// The event that Lambda hands to the function implements it, such as `sqs::SqsEvent`. A message is
/// of the type `Record` here, which is AWS's word for it. [The module](super#a-source-of-your-own)
/// says in which order a source is written, and has an example.
pub trait Source: Sized + Send + 'static {
    /// One message of the event, as the source delivers it.
    type Record: Clone + Send + Sync + 'static;
    /// The reply that the function gives.
    type Reply: Send + 'static;

    /// The source's name in logs; it names the operation, too, of a message without an origin.
    const NAME: &'static str;

    /// Whether the source reads the reply. Where it doesn't, a batch with a message that must
    /// come again fails as a whole, as under
    /// [`without_item_failures`](super::Settings::without_item_failures). Default: it does.
    const READS_REPLY: bool = true;

    /// Takes the messages from the event, in their order.
    fn records(self) -> Vec<Self::Record>;

    /// Returns the id that reports a message; `None` for a message that can't be reported.
    fn id(record: &Self::Record) -> Option<&str>;

    /// Returns the message's default key, which a layer's setting replaces; `None` without one.
    /// Default: the [id](Self::id). If ids are unique only within a stream, the source adds its name.
    fn token(record: &Self::Record) -> Option<Cow<'_, str>> {
        Self::id(record).map(Cow::Borrowed)
    }

    /// Returns the body, as it is decoded for the handler.
    ///
    /// # Errors
    ///
    /// The message has no body, or one that can't be read.
    fn body(record: &Self::Record) -> Result<&[u8], BodyError>;

    /// Names the queue, stream or topic that the message comes from. It is the operation's name,
    /// unless the layer has another setting.
    fn origin(record: &Self::Record) -> Option<&str>;

    /// Returns the key within which messages are ordered, where the message has one. Default: none.
    fn order_key(_: &Self::Record) -> Option<&str> {
        None
    }

    /// Returns whether the source promises an order within [`order_key`](Self::order_key). Default: it
    /// doesn't.
    fn is_ordered(_: &Self::Record) -> bool {
        false
    }

    /// Counts the deliveries of the message, this one included; `None` where the source doesn't
    /// count. The layer then takes a message for a repeated one where this process has met its key
    /// [lately](super::Settings::window). It is a hint: whether a record is read before a claim is
    /// tried. Default: none.
    fn deliveries(_: &Self::Record) -> Option<u32> {
        None
    }

    /// Returns the text of an attribute beside the body; `None` where there is none of this name, or
    /// the source has no attributes. Default: none.
    fn attribute(_: &Self::Record, _: &str) -> Option<String> {
        None
    }

    /// Makes the reply that has these messages delivered again: `failed` has their ids, each once,
    /// in the order of the batch.
    fn reply(failed: Vec<String>) -> Self::Reply;

    /// Makes the span around a whole batch.
    fn batch_span(records: &[Self::Record], context: &Context) -> Span;

    /// Makes the span around one message's run.
    fn record_span(record: &Self::Record) -> Span;
}

/// The reason why a message has no body that could be decoded, without any of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct BodyError {
    problem: &'static str,
    /// Nothing is wrong with the body: another delivery reads it.
    is_passing: bool,
}

impl BodyError {
    /// The message has no body.
    pub const MISSING: Self = Self::new("the message has no body");

    /// Makes an error of a text that says what is wrong with the body.
    pub const fn new(problem: &'static str) -> Self {
        Self {
            problem,
            is_passing: false,
        }
    }

    /// Makes an error of a text that says why this delivery doesn't read the body.
    #[cfg(feature = "streams")]
    pub(crate) const fn not_run(problem: &'static str) -> Self {
        Self {
            problem,
            is_passing: true,
        }
    }

    pub(super) const fn is_passing(self) -> bool {
        self.is_passing
    }
}
