//! Sends rejected messages to another queue.

use std::sync::Arc;

use aws_lambda_events::event::sqs::{SqsMessage, SqsMessageAttribute};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;

use crate::batch::Rejected;
use crate::sqs::{BatchLayer, code_of};

/// The attribute that says why a message was rejected.
const WHY: &str = "idempotency-rejected";
/// The most [attributes][quotas] that a message may have.
///
/// [quotas]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
const MOST_ATTRIBUTES: usize = 10;

impl<T, E> BatchLayer<T, E> {
    /// Sends each rejected message to the queue with this URL, and acknowledges it. It replaces the
    /// function of [`on_rejected`](Self::on_rejected).
    ///
    /// The message keeps its body and its attributes. One more attribute, `idempotency-rejected`, has
    /// the message's id and the fields of [`Rejected`] as JSON; a message with ten attributes, or too
    /// long with this one, is sent without it. On a FIFO queue its message group is the one that it had,
    /// or its id, which is also its deduplication id. Where SQS refuses the message, as one without a
    /// body, or doesn't answer 250 ms before the invocation ends, it is reported, as without this, and
    /// the code of SQS's error is logged.
    ///
    /// A [permanent](Self::permanent) failure is kept as long as an outcome, as with `on_rejected`:
    /// release its record (`idempotency release`) before its message is redriven.
    ///
    /// The function needs `sqs:SendMessage` on that queue. A message may arrive there twice, because an
    /// acknowledgement can be lost. About the client, see [`Visibility`](super::Visibility).
    ///
    /// ```no_run
    /// use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    ///
    /// # fn start(config: aws_sdk_sqs::Config) -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let rejected = "https://sqs.eu-central-1.amazonaws.com/123456789012/rejected-payments";
    /// let worker = sqs::BatchLayer::new(once)
    ///     .rejected_to(aws_sdk_sqs::Client::from_conf(config), rejected)
    ///     .handler(|message: sqs::Message<u64>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "visibility")))]
    pub fn rejected_to(self, client: Client, queue_url: impl Into<String>) -> Self {
        let queue_url: Arc<str> = queue_url.into().into();
        self.rejecting(true, move |message, why| {
            let (client, queue_url) = (client.clone(), Arc::clone(&queue_url));
            // Boxed: the SDK's futures are large.
            Box::pin(async move { send(&client, &queue_url, message, &why).await })
        })
    }
}

async fn send(
    client: &Client,
    url: &str,
    mut message: SqsMessage,
    why: &Rejected,
) -> Result<(), String> {
    let id = message.message_id.unwrap_or_default();
    let why = serde_json::json!({
        "message_id": id,
        "rejection": why.rejection.as_str(),
        "reason": why.reason,
        "detail": why.detail,
    });
    let mut request = client
        .send_message()
        .queue_url(url)
        .message_body(message.body.unwrap_or_default());
    // Of an earlier rejection.
    message.message_attributes.remove(WHY);
    let count = message.message_attributes.len();
    for (name, attribute) in message.message_attributes {
        let attribute = copied(attribute).map_err(|error| error.to_string())?;
        request = request.message_attributes(name, attribute);
    }
    // In capitals it is the name of another queue.
    if url.strip_suffix(".fifo").is_some() {
        let group = message.attributes.get("MessageGroupId").unwrap_or(&id);
        request = request
            .message_group_id(group)
            .message_deduplication_id(&id);
    }
    if count < MOST_ATTRIBUTES {
        let text = MessageAttributeValue::builder()
            .data_type("String")
            .string_value(why.to_string());
        let text = text.build().map_err(|error| error.to_string())?;
        let sent = request.clone().message_attributes(WHY, text).send().await;
        match sent.map_err(|error| code_of(&error)) {
            Ok(_) => return Ok(()),
            // The code of a message that is too long, among others.
            Err(code) if code.starts_with("InvalidParameterValue") => {}
            Err(code) => return Err(code),
        }
    }
    let sent = request.send().await;
    sent.map(drop).map_err(|error| code_of(&error))
}

fn copied(attribute: SqsMessageAttribute) -> Result<MessageAttributeValue, BuildError> {
    let is_binary = attribute
        .data_type
        .as_deref()
        .is_some_and(|kind| kind.starts_with("Binary"));
    let copy = MessageAttributeValue::builder().set_data_type(attribute.data_type);
    let copy = if is_binary {
        copy.set_binary_value(attribute.binary_value.map(|bytes| Blob::new(bytes.0)))
    } else {
        copy.set_string_value(attribute.string_value)
    };
    copy.build()
}
