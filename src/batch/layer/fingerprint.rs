//! Sets what two messages of one key are compared by, and the envelope that they come in.

use std::fmt;
use std::sync::Arc;

use crate::batch::fetch::Fetch;
use crate::batch::fingerprint::FingerprintSource;
use crate::batch::{BatchLayer, Envelope, S3Pointer, Selector, Source};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

impl<Src: Source, T, E> BatchLayer<Src, T, E> {
    /// Declares the envelope in which messages come. Default: none.
    ///
    /// The handler gets what is inside, decoded; [selectors](Selector) and
    /// [`fingerprint_without`](Self::fingerprint_without) look inside; key and fingerprint have the
    /// defaults that [`Envelope`] lists. Called again, it declares the next envelope inside: an S3
    /// notification that comes through a topic is in `Envelope::Sns`, then in `Envelope::S3`. The
    /// handler finds the whole in [`Message::metadata`](crate::batch::Message::metadata).
    ///
    /// A body that is not in its envelope is reported alone, as `bad_envelope`.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # use lambda_runtime::{Context, LambdaEvent};
    /// # use tower::Service;
    /// # #[derive(serde::Deserialize)] struct Order { order_id: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("orders").build()?;
    /// let mut worker = sqs::BatchLayer::new(once)
    ///     .envelope(sqs::Envelope::EventBridge)
    ///     .key(|order: &Order| order.order_id.clone()) // of `detail`
    ///     .handler(|message: sqs::Message<Order>| async move { Ok::<_, std::io::Error>(()) });
    /// // The producer's retry is another event, and the same request.
    /// let event = |id: &str, time: &str| serde_json::json!({
    ///     "version": "0", "id": id, "detail-type": "order.placed", "source": "shop.orders",
    ///     "account": "123456789012", "time": time, "region": "eu-central-1", "resources": [],
    ///     "detail": { "order_id": "A-17" },
    /// }).to_string();
    /// let batch = serde_json::from_value(serde_json::json!({ "Records": [
    ///     { "messageId": "m-1", "body": event("e-1", "2026-11-20T12:00:00Z") },
    ///     { "messageId": "m-2", "body": event("e-2", "2026-11-20T12:00:09Z") },
    /// ] }))?;
    /// let reply = worker.call(LambdaEvent::new(batch, Context::default())).await?;
    /// assert!(reply.batch_item_failures.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn envelope(mut self, envelope: Envelope) -> Self {
        self.config.reader.envelopes.push(envelope);
        self
    }

    /// Fetches the payloads to which messages in [`Envelope::S3Pointer`] point. Default: they aren't
    /// fetched, and the handler gets the pointer.
    ///
    /// The function is called when the message's turn has come, for a repeated message, too, and
    /// has until the [reserve](Self::reserve). After an error, a panic or no answer the message is
    /// reported, as `not_fetched`. It decides which buckets it reads and how large an object may
    /// be: as many objects as messages [run side by side](Self::concurrency) are in memory. So a
    /// message with an object keeps its place while it [waits](crate::InFlight::WaitUpTo) for another
    /// attempt.
    ///
    /// ```no_run
    /// # use lambda_idempotency::{BoxError, Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Order { order_id: String }
    /// # fn worker(once: Idempotency, s3: aws_sdk_s3::Client) {
    /// let worker = sqs::BatchLayer::new(once)
    ///     .envelope(sqs::Envelope::S3Pointer)
    ///     .fetch(move |pointer| payload(s3.clone(), pointer))
    ///     .key(|order: &Order| order.order_id.clone())
    ///     .handler(|message: sqs::Message<Order>| async move { Ok::<_, std::io::Error>(()) });
    /// # }
    ///
    /// async fn payload(s3: aws_sdk_s3::Client, pointer: sqs::S3Pointer) -> Result<String, BoxError> {
    ///     if pointer.bucket != "orders-payloads" {
    ///         return Err("a bucket of somebody else's".into());
    ///     }
    ///     let object = s3.get_object().bucket(pointer.bucket).key(pointer.key).send().await?;
    ///     if object.content_length.is_none_or(|length| length > 8 << 20) {
    ///         return Err("more than 8 MiB".into());
    ///     }
    ///     Ok(String::from_utf8(object.body.collect().await?.to_vec())?)
    /// }
    /// ```
    pub fn fetch<F, Fut, FetchError>(mut self, fetch: F) -> Self
    where
        F: Fn(S3Pointer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, FetchError>> + Send + 'static,
        FetchError: fmt::Display + 'static,
    {
        let quotes = self.config.once.logs_errors();
        self.config.reader.fetch = Some(Fetch::new(fetch, quotes));
        self
    }

    /// Leaves fields of the body, or of what is in its [envelope](Self::envelope), out of the
    /// fingerprint, such as `/sent_at` and `/meta/trace`: they may differ between two messages of
    /// one request; a pointer to the whole changes nothing. Default: none.
    ///
    /// A message that differs there is a duplicate of the first, so leave out nothing that changes
    /// what it asks for. Of this, [`fingerprint`](Self::fingerprint),
    /// [`fingerprint_from`](Self::fingerprint_from) and [`no_fingerprint`](Self::no_fingerprint),
    /// the last call counts.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|payment: &Payment| payment.order_id.clone())
    ///     .fingerprint_without(["/sent_at".parse()?, "/meta/trace".parse()?])
    ///     .handler(|message: sqs::Message<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fingerprint_without(mut self, fields: impl IntoIterator<Item = Pointer>) -> Self {
        self.config.reader.fingerprint = FingerprintSource::without(fields);
        self
    }

    /// Takes the fingerprint from the decoded body, or from the message as it was delivered; `None`
    /// for a message that is not compared. Default: the fingerprint of the whole body, or of what
    /// is in its [envelope](Self::envelope), as text.
    ///
    /// Take it from fields that say what the message asks for, not from the whole decoded value: a
    /// field that the type gains would make another request of each message that comes again.
    ///
    /// ```
    /// # use lambda_idempotency::{Fingerprint, Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { order_id: String, amount: u64 }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|payment: &Payment| payment.order_id.clone())
    ///     .fingerprint(|payment, _| Fingerprint::bytes(&payment.amount.to_be_bytes()))
    ///     .handler(|message: sqs::Message<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn fingerprint<V: Into<Option<Fingerprint>>>(
        mut self,
        fingerprint: impl Fn(&T, &Src::Record) -> V + Send + Sync + 'static,
    ) -> Self {
        self.config.reader.fingerprint = FingerprintSource::closure(fingerprint);
        self
    }

    /// Takes the fingerprint of one part of the message as it was received: what the selector
    /// finds. Messages in which it finds nothing are equal to each other, and differ from all in
    /// which it finds something.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// // Events of a bus, with the handler in need of the whole event.
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key_from(sqs::Selector::pointer("/detail/order_id")?)
    ///     .fingerprint_from(sqs::Selector::pointer("/detail")?)
    ///     .handler(|message: sqs::Message<serde_json::Value>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok(()) }
    /// ```
    pub fn fingerprint_from(mut self, selector: Selector) -> Self {
        self.config.reader.fingerprint = FingerprintSource::Selected(selector);
        self
    }

    /// Adds attributes of the message, by their names, to what is compared: the text of each, in
    /// Base64 where it is bytes. An attribute of the [envelope](Self::envelope) counts before one
    /// of the message, as in [`Selector::attribute`]. Default: none. A call adds to the names of an
    /// earlier one.
    ///
    /// Two messages that differ in one of these are no duplicates: under one key, the second is a
    /// mismatch. So is a message that lacks an attribute which the other has. Leave out what
    /// differs between two sends of one message, such as a trace id. A message that is not
    /// compared ([`no_fingerprint`](Self::no_fingerprint)) stays so.
    ///
    /// Set it before a worker goes live, or with another key: a record that was written without it
    /// is a mismatch for the same message, delivered again.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Order { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("orders").build()?;
    /// // An order's `placed` and `cancelled` have the same body.
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|order: &Order| order.order_id.clone())
    ///     .fingerprint_attributes(["event_type"])
    ///     .handler(|message: sqs::Message<Order>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn fingerprint_attributes<N: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        let names = names.into_iter().map(Into::into);
        Arc::make_mut(&mut self.config.reader.attributes).extend(names);
        self
    }

    /// Compares messages by their key alone: every message of a key that was done is a duplicate,
    /// whatever it says.
    ///
    /// For keys that name one piece of work for ever, such as the id of an immutable document. A
    /// key that is used again by mistake loses its message: there is no mismatch to report.
    pub fn no_fingerprint(mut self) -> Self {
        self.config.reader.fingerprint = FingerprintSource::Nothing;
        self
    }
}
