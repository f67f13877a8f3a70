//! Makes SQS messages as Lambda delivers them.

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};
use lambda_runtime::{Context, LambdaEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TestError;
use crate::engine::claim::Claim;
use crate::sqs::Message;

const QUEUE: &str = "arn:aws:sqs:eu-central-1:123456789012:queue";
const FIFO_QUEUE: &str = "arn:aws:sqs:eu-central-1:123456789012:queue.fifo";

/// Makes an SQS message as Lambda delivers it: of a standard queue and on its first receive, unless
/// set otherwise.
///
/// ```
/// use lambda_idempotency::testing::TestMessage;
/// use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
/// use serde_json::json;
/// use tower::{Service, ServiceBuilder};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// let mut worker = ServiceBuilder::new()
///     .layer(sqs::BatchLayer::new(once))
///     .service_fn(async |message: sqs::Message<serde_json::Value>| {
///         if message.body["amount"] == 0 { Err("nothing to charge") } else { Ok(()) }
///     });
///
/// // The second message fails, and the third one of its group waits for it.
/// let reply = worker.call(TestMessage::batch([
///     TestMessage::json("m-1", &json!({"amount": 5}))?.group("order-1"),
///     TestMessage::json("m-2", &json!({"amount": 0}))?.group("order-2").receives(3),
///     TestMessage::json("m-3", &json!({"amount": 7}))?.group("order-2"),
/// ])).await?;
/// let again: Vec<_> = reply.batch_item_failures.iter().map(|item| item.item_identifier.as_str()).collect();
/// assert_eq!(again, ["m-2", "m-3"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is the description of a message"]
pub struct TestMessage {
    message: SqsMessage,
}

impl TestMessage {
    /// Makes a message with this id and this body.
    pub fn new(id: impl Into<String>, body: impl Into<String>) -> Self {
        let id = id.into();
        let mut message = SqsMessage::default();
        message.receipt_handle = Some(format!("receipt-handle-of-{id}"));
        message.message_id = Some(id);
        message.body = Some(body.into());
        message.event_source = Some("aws:sqs".into());
        message.event_source_arn = Some(QUEUE.into());
        message.aws_region = Some("eu-central-1".into());
        let sent = [
            ("ApproximateReceiveCount", "1"),
            ("ApproximateFirstReceiveTimestamp", "1763640000150"),
            ("SenderId", "AIDAEXAMPLE"),
            ("SentTimestamp", "1763640000000"),
        ];
        message.attributes = sent.map(|(name, value)| (name.into(), value.into())).into();
        Self { message }
    }

    /// Makes a message with this id, whose body is this value as JSON.
    ///
    /// # Errors
    ///
    /// When the value can't be written as JSON.
    pub fn json<T: Serialize + ?Sized>(id: impl Into<String>, body: &T) -> Result<Self, TestError> {
        Ok(Self::new(id, serde_json::to_string(body)?))
    }

    /// Puts the message into this message group of a FIFO queue.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.message.event_source_arn = Some(FIFO_QUEUE.into());
        let id = self.message.message_id.clone().unwrap_or_default();
        self.system("MessageDeduplicationId", id)
            .system("MessageGroupId", group)
    }

    /// Sets how often the message has been received, this time included.
    pub fn receives(self, count: u32) -> Self {
        self.system("ApproximateReceiveCount", count.to_string())
    }

    /// Adds a message attribute with this text.
    pub fn attribute(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = Some(text.into());
        attribute.data_type = Some("String".into());
        self.message
            .message_attributes
            .insert(name.into(), attribute);
        self
    }

    fn system(mut self, name: &str, value: impl Into<String>) -> Self {
        self.message.attributes.insert(name.into(), value.into());
        self
    }

    /// Makes the event of one batch, in this order. It has no deadline: set
    /// `event.context.deadline`, in milliseconds since 1970, for one. Outside Lambda handlers go on
    /// after it: set [`at_deadline`](crate::Settings::at_deadline) to
    /// [`End`](crate::AtDeadline::End) to see what Lambda does.
    pub fn batch(messages: impl IntoIterator<Item = Self>) -> LambdaEvent<SqsEvent> {
        let mut event = SqsEvent::default();
        event.records = messages.into_iter().map(Self::into).collect();
        LambdaEvent::new(event, Context::default())
    }

    /// Decodes the message for a handler of one message that the test calls directly, with a claim
    /// that [`TestClaim`](super::TestClaim) makes.
    ///
    /// ```
    /// use lambda_idempotency::Key;
    /// use lambda_idempotency::sqs::Message;
    /// use lambda_idempotency::testing::{TestClaim, TestMessage};
    ///
    /// async fn charge(message: Message<u64>) -> Result<String, std::io::Error> {
    ///     Ok(format!("{} in attempt {}", message.body, message.claim.attempt()))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let claim = TestClaim::new(Key::new("charge", "A-17")).attempt(2).claim().await?;
    /// assert_eq!(charge(TestMessage::new("m-1", "1250").with_claim(claim)?).await?, "1250 in attempt 2");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the body doesn't decode.
    pub fn with_claim<T: DeserializeOwned>(self, claim: Claim) -> Result<Message<T>, TestError> {
        let body = serde_json::from_str(self.message.body.as_deref().unwrap_or_default())?;
        Ok(Message::new(body, claim, self.message))
    }
}

impl From<TestMessage> for SqsMessage {
    fn from(made: TestMessage) -> Self {
        made.message
    }
}
