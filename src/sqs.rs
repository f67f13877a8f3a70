//! Makes a handler of SQS batches of a handler of one message.
//!
//! [`BatchLayer`] decodes each message, takes its key, and runs the handler for it once. The reply
//! names the messages that must be delivered again, and only these: set
//! `FunctionResponseTypes: [ReportBatchItemFailures]` on the event source mapping, else Lambda
//! ignores the reply and deletes the whole batch. Where you can't set it, call
//! [`without_item_failures`](crate::batch::Settings::without_item_failures).
//!
//! ```
//! use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::{Service, ServiceBuilder};
//!
//! #[derive(serde::Deserialize)]
//! struct Payment {
//!     order_id: String,
//!     amount: u64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
//! let mut worker = ServiceBuilder::new()
//!     .layer(sqs::BatchLayer::new(once).operation("charge").key(|payment: &Payment| payment.order_id.clone()))
//!     .service_fn(|message: sqs::Message<Payment>| async move {
//!         // The gateway gets the same key in every attempt.
//!         let key = message.claim.derive_key("gateway");
//!         println!("charging {} under {key}", message.body.amount);
//!         Ok::<_, std::io::Error>(())
//!     });
//! // In a function: `lambda_runtime::run(worker).await`. Here, two messages by hand; the second has no order.
//! let event: sqs::SqsEvent = serde_json::from_str(
//!     r#"{"Records": [
//!         {"messageId": "m-1", "body": "{\"order_id\": \"A-17\", \"amount\": 1250}"},
//!         {"messageId": "m-2", "body": "{\"amount\": 1250}"}
//!     ]}"#,
//! )?;
//! let reply = worker.call(LambdaEvent::new(event, Context::default())).await?;
//! let again: Vec<_> = reply.batch_item_failures.iter().map(|item| item.item_identifier.as_str()).collect();
//! assert_eq!(again, ["m-2"]);
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! The producer that asks for the work makes the key. A consumer can only find it.
//!
//! | the message comes from | key | because |
//! |---|---|---|
//! | a producer that you write | an identity of the work: order number, payment id. In the body, [`key`](BatchLayer::key) takes it; in a message attribute, [`key_attribute`](BatchLayer::key_attribute) | it is the same however often the producer sends it |
//! | SNS, raw delivery | the same | the body is the publisher's own |
//! | SNS, in an envelope | [`Envelope::Sns`], and an identity inside `Message`; else `MessageId`, which is the default then | a publisher that retries makes a new envelope |
//! | an event bus | [`Envelope::EventBridge`], and an identity inside `detail`; else `id`, which is the default then | a producer that retries makes a new event |
//! | S3 notifications | [`Envelope::S3`], whose default is bucket, object key and `sequencer` | the notification has no id of its own |
//! | an extended client of SQS or SNS, which puts large payloads into S3 | [`Envelope::S3Pointer`] with [`fetch`](BatchLayer::fetch), and an identity inside the payload; or one in a message attribute | a producer that sends again makes a new object |
//! | a producer out of reach, bodies without identity | the message id (default) | it is the same in every receive of one message |
//!
//! Each choice survives this:
//!
//! | | message id | envelope's or event's id | identity of the work |
//! |---|---|---|---|
//! | SQS or Lambda delivers again: visibility timeout, failed invocation, rare second delivery | yes | yes | yes |
//! | [redrive][redrive] from the dead-letter queue: the message gets a new id | **no** | yes | yes |
//! | the producer's SDK retries a send whose reply was lost | **no** | **no**, if the producer made it anew | yes |
//! | old traffic is replayed as new messages | **no** | **no** | yes |
//!
//! A message that waits in a dead-letter queue and then comes back is recognised only while its
//! record lives: keep outcomes for twice as long as both queues together keep messages
//! ([`retention`](crate::Builder::retention), or [`BatchLayer::retention`] for some of them).
//!
//! Where tenants choose their own tokens, set the tenant with [`scope`](BatchLayer::scope): without
//! it, two tenants that choose the same token share one record.
//!
//! # What is compared
//!
//! Two messages of one key must ask for the same, else the second is a
//! [mismatch](Rejection::Mismatch), and no earlier outcome stands for it. By default the whole body
//! is compared, as the text that was received: JSON by its value. An event bus and SNS stamp each
//! message anew, so that a producer's retry would be a mismatch, go to the dead-letter queue, and
//! stop its FIFO group until then. The layer takes a setting that says what counts:
//!
//! | the message | setting | compared |
//! |---|---|---|
//! | is in an SNS, EventBridge or S3 envelope, or in an object in S3 | [`envelope`](BatchLayer::envelope) | what is inside; see [`Envelope`] |
//! | has a time or a trace id in its body | [`fingerprint_without`](crate::batch::Settings::fingerprint_without) | the body without these fields |
//! | is to be compared in a few fields | [`fingerprint`](BatchLayer::fingerprint), [`fingerprint_from`](crate::batch::Settings::fingerprint_from) | what the closure makes, or the selector finds |
//! | says in an attribute what it asks for | [`fingerprint_attributes`](crate::batch::Settings::fingerprint_attributes) | these attributes, too |
//! | can't differ under its key | [`fingerprint`](BatchLayer::fingerprint), of `None` | nothing |
//!
//! A key from a place inside an event, such as [`Selector::pointer`](crate::Selector::pointer)`("/detail/order_id")`, changes
//! no part of this.
//!
//! A worker for several types of events needs the type in its key: without it, one order's `placed`
//! and `cancelled` have one key. The second is a mismatch; or, where the type is in a message
//! attribute alone and the bodies are equal, **a duplicate that never runs**, since attributes are
//! no part of a fingerprint unless
//! [`fingerprint_attributes`](crate::batch::Settings::fingerprint_attributes) names them. The type is outside of what a declared envelope gives. Such a worker
//! declares none, decodes the whole event, takes both parts of the key from it, and sets
//! `fingerprint_from` to a selector of the pointer `/detail`. Events of an outbox have their own id,
//! whatever their type: `key_attribute("event_id")`.
//!
//! If a handler fails after it called [`Claim::derive_key`](crate::Claim::derive_key), its payload
//! stays bound to the key, since an effect may have happened under the derived key: a corrected
//! message is a mismatch, and needs another key. If the handler failed before, a corrected message
//! may have the same key.
//!
//! # Keys of another worker
//!
//! A worker that replaces a worker with Powertools for AWS Lambda keeps the old keys with
//! [`raw_id`](BatchLayer::raw_id), of the body or of the message.
//!
//! # What happens to each message
//!
//! | acknowledged | reported in `batchItemFailures` |
//! |---|---|
//! | the handler ran and succeeded | the handler failed or panicked |
//! | an earlier outcome was replayed; one that was not kept counts, too, since a queue never asks for it | an earlier attempt failed permanently, crashed and needs an operator, or used up its attempts |
//! | the outcome could not be recorded, where the [policy](crate::Unrecorded) returns it | it is in flight elsewhere, or its lease was lost |
//! | it ran unprotected, by a policy or the kill switch | its key was first used with another fingerprint, is missing, or not usable |
//! | | no body, or one that is not in its envelope or doesn't decode |
//! | | the store failed, or the record can't be read |
//!
//! A message that no retry will fix (a [`Rejection`]: a body that doesn't decode, a key that can't
//! be used, a mismatch, a permanent failure) is reported as well, so that the queue's redrive
//! policy moves it to the dead-letter queue. Without such a policy it comes back until the queue's
//! retention is over: set one, or take such messages yourself with
//! [`on_rejected`](BatchLayer::on_rejected). A message without an id fails the invocation before
//! anything runs, since it can't be reported.
//!
//! A message that is in flight elsewhere comes back when the queue's visibility timeout is over,
//! and each receive counts towards `maxReceiveCount`. `BatchLayer::visibility` (feature
//! `visibility`) keeps it hidden until the other attempt's lease is over.
//!
//! The same key twice in one batch runs once: the second message waits for the first and shares its
//! fate, or is reported as a mismatch where its fingerprint differs.
//!
//! # In which order
//!
//! Messages of a standard queue run side by side. In a FIFO queue, which its ARN or
//! [`order`](crate::batch::Settings::order) shows, those of a message group run one after the other, and groups
//! side by side: after a message that is reported, no later one of its group runs, and all of them
//! are reported, so that none overtakes it. [`Order::Batch`] stops the whole batch. The receive counts for each of
//! them: behind a message that always fails, others of its group reach the dead-letter queue without having run.
//! Take such a message with [`permanent`](BatchLayer::permanent) and [`on_rejected`](BatchLayer::on_rejected), and
//! redrive the others in their order.
//!
//! # When time runs out
//!
//! A claim lasts until the invocation's deadline. In the [reserve](crate::batch::Settings::reserve) before it,
//! no message starts; those that didn't start are reported, and their claims released. A handler
//! that still runs can [wait for it](Message::cancelled); in the middle of the reserve, at most half
//! a second before the deadline, it is ended and its message alone is reported. Where nothing
//! [ends with the deadline](crate::AtDeadline::GoOn), as on Lambda Managed Instances, it goes on
//! under a lease that is renewed, and the reply comes when it is done. Where no deadline is known, or one that
//! is [earlier than the engine](crate::Idempotency::deadline), a claim lasts for the engine's
//! [`lease`](crate::Builder::lease), and there is no reserve. All work is done inside the invocation.
//!
//! # Group commit
//!
//! The claims of up to 25 messages leave in one request, and so do their completions: those that
//! are ready while a request is under way leave together with the next. A batch of *n* new messages
//! with quick handlers takes 2·⌈n/g⌉ requests instead of 2·n, where *g* is 25 or
//! [`concurrency`](crate::batch::Settings::concurrency), whichever is less. Each write is as
//! conditional as a single one; a write that a group can't settle is sent again by itself. A
//! delivery that SQS counts as a repetition is read first: a read costs a fraction of a claim that
//! fails.
//!
//! Groups need `dynamodb:PartiQLInsert`, `dynamodb:PartiQLUpdate` and `dynamodb:BatchGetItem`.
//! Where the function lacks one of them, those requests leave one by one, with one warning that
//! names it. [`single_writes`](crate::batch::Settings::single_writes) switches groups off.
//!
//! # What is logged
//!
//! One event for each message that is reported (`reported`) or taken by the hook (`rejected`), with
//! its id and the reason, and one with the counts for their batch (`batch`); never a body, a key or
//! an outcome. A handler's error, or the hook's, is named by its type alone, because its text may
//! quote the message: [`on_error`](BatchLayer::on_error) is shown the error and its message, and
//! [`log_errors`](crate::Settings::log_errors) logs its text. A body that doesn't decode is logged
//! with the field that it lacks, or the kind of error, and the place.
//!
//! [redrive]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html

use data_encoding::BASE64;

use crate::batch::{BodyError, Source};

#[cfg(feature = "visibility")]
mod rejected;
#[cfg(feature = "visibility")]
mod visibility;

pub use crate::batch::{BatchError, Envelope, Order, Rejected, Rejection, S3Pointer};
#[cfg(feature = "visibility")]
#[cfg_attr(docsrs, doc(cfg(feature = "visibility")))]
pub use crate::sqs::visibility::Visibility;
#[doc(no_inline)]
pub use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};

/// Makes a handler of SQS batches of a handler of one [`Message`]. [The module](self) has an
/// example.
pub type BatchLayer<T, E> = crate::batch::BatchLayer<SqsEvent, T, E>;

/// Holds one SQS message: its decoded body, the claim of its handler, and the message as SQS
/// delivered it.
pub type Message<T> = crate::batch::Message<SqsEvent, T>;

/// Returns the code of an error of SQS: the service's message may quote a receipt handle or a message.
#[cfg(feature = "visibility")]
fn code_of(error: &impl aws_sdk_sqs::error::ProvideErrorMetadata) -> String {
    error
        .code()
        .unwrap_or("SQS could not be reached")
        .to_owned()
}

impl Source for SqsEvent {
    type Record = SqsMessage;
    type Reply = SqsBatchResponse;

    const NAME: &'static str = "sqs";

    fn records(self) -> Vec<SqsMessage> {
        self.records
    }

    fn id(message: &SqsMessage) -> Option<&str> {
        message.message_id.as_deref()
    }

    fn body(message: &SqsMessage) -> Result<&[u8], BodyError> {
        let body = message.body.as_ref().ok_or(BodyError::MISSING)?;
        Ok(body.as_bytes())
    }

    /// Takes the last part of `arn:aws:sqs:region:account:queue`.
    fn origin(message: &SqsMessage) -> Option<&str> {
        let arn = message.event_source_arn.as_deref()?;
        arn.rsplit(':').next().filter(|name| !name.is_empty())
    }

    fn order_key(message: &SqsMessage) -> Option<&str> {
        message.attributes.get("MessageGroupId").map(String::as_str)
    }

    fn is_ordered(message: &SqsMessage) -> bool {
        let arn = message.event_source_arn.as_deref();
        arn.is_some_and(|arn| arn.strip_suffix(".fifo").is_some())
    }

    fn deliveries(message: &SqsMessage) -> Option<u32> {
        let count = message.attributes.get("ApproximateReceiveCount")?;
        count.parse().ok()
    }

    /// Returns the text of a message attribute, or the Base64 text of its bytes.
    fn attribute(message: &SqsMessage, name: &str) -> Option<String> {
        let attribute = message.message_attributes.get(name)?;
        match (&attribute.string_value, &attribute.binary_value) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(bytes)) => Some(BASE64.encode(&bytes.0)),
            (None, None) => None,
        }
    }

    fn reply(failed: Vec<String>) -> SqsBatchResponse {
        let mut response = SqsBatchResponse::default();
        for id in failed {
            response.add_failure(id);
        }
        response
    }

    messaging_spans! {
        system: "aws_sqs", trigger: "pubsub", verb: "receive", destination: Self::origin(message).unwrap_or_default(),
        |messages| "sqs_batch" {}
        |message| "sqs_message" {
            messaging.message.id = message.message_id.as_deref().unwrap_or_default(),
            // A link to the producer's span, and no parent: one invocation works for many producers.
            link.traceparent = message.attributes.get("AWSTraceHeader").and_then(|header| traceparent(header)),
        }
    }
}

impl<T> Message<T> {
    /// Returns the producer's trace context, as a W3C `traceparent`: from `AWSTraceHeader`,
    /// which SQS passes on where the producer was traced. The message's span has it as
    /// `link.traceparent`; pass it to your tracer to add a span link.
    ///
    /// ```
    /// # fn shown(message: &lambda_idempotency::sqs::Message<u32>) {
    /// if let Some(traceparent) = message.traceparent() {
    ///     // With `tracing-opentelemetry`: extract a `SpanContext` from it, and `Span::current().add_link(context)`.
    ///     println!("{traceparent}"); // 00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01
    /// }
    /// # }
    /// ```
    pub fn traceparent(&self) -> Option<String> {
        let header = self.metadata.attributes.get("AWSTraceHeader")?;
        traceparent(header)
    }
}

/// Writes the producer's place in its trace as a W3C `traceparent`, from a text of the form
/// `Root=1-5759e988-bd862e…;Parent=53995c3f…;Sampled=1`.
fn traceparent(header: &str) -> Option<String> {
    let field = |name: &str| {
        header.split(';').find_map(|part| {
            let (found, value) = part.trim().split_once('=')?;
            (found == name).then_some(value)
        })
    };
    let mut root = field("Root")?.split('-');
    let ("1", epoch, unique, None) = (root.next()?, root.next()?, root.next()?, root.next()) else {
        return None;
    };
    let parent = field("Parent")?;
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let flags = u8::from(field("Sampled") == Some("1"));
    (is_hex(epoch, 8) && is_hex(unique, 24) && is_hex(parent, 16))
        .then(|| format!("00-{epoch}{unique}-{parent}-{flags:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(attribute: &serde_json::Value) -> Option<String> {
        let message = json!({ "messageAttributes": { "id": attribute } });
        let message = serde_json::from_value(message).unwrap();
        SqsEvent::attribute(&message, "id")
    }

    #[test]
    fn text_is_taken_as_it_is_and_bytes_as_base64() {
        let text = json!({ "stringValue": "p-1", "dataType": "String" });
        assert_eq!(found(&text).as_deref(), Some("p-1"));
        let bytes = json!({ "binaryValue": "AP8=", "dataType": "Binary" });
        assert_eq!(found(&bytes).as_deref(), Some("AP8="));
    }

    #[test]
    fn an_attribute_that_is_not_there_gives_nothing() {
        assert_eq!(found(&json!({ "dataType": "String" })), None);
        assert_eq!(SqsEvent::attribute(&SqsMessage::default(), "id"), None);
    }

    #[test]
    fn a_trace_header_becomes_a_traceparent() {
        let sampled = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
        let expected = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
        assert_eq!(traceparent(sampled).as_deref(), Some(expected));
        let lineage = "Lineage=a87bd80c:1|68fd508a:5; Parent=53995c3f42cd8ad8; Root=1-5759e988-bd862e3fe1be46a994272793";
        let unsampled = traceparent(lineage).unwrap();
        assert!(unsampled.ends_with("-00"), "{unsampled}");
    }

    #[test]
    fn what_is_no_trace_header_is_no_link() {
        for header in [
            "",
            "Root=1-5759e988-bd862e3fe1be46a994272793",
            "Root=2-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a99427279;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a994272793-1;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a99427279Z;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=secret",
        ] {
            assert_eq!(traceparent(header), None, "{header}");
        }
    }
}
