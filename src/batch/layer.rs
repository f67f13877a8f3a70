//! Configures the layer that makes a handler of batches of a handler of one message.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tower::Layer;
use tower::util::{ServiceFn, service_fn};

use crate::batch::hooks::{Hooks, Rejected};
use crate::batch::key::KeyPlace;
use crate::batch::message::Message;
use crate::batch::reader::Reader;
use crate::batch::service::{BatchService, Config};
use crate::batch::settings::Settings;
use crate::batch::{Envelope, S3Pointer, Source};
use crate::engine::hook::Hook;
use crate::idempotency::Idempotency;
use crate::idempotency::source_retention::SourceRetention;
use crate::protocol::causes::{HandlerError, name_causes_of};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::IntoToken;
use crate::protocol::selector::Selector;

#[cfg(feature = "visibility")]
use crate::batch::hooks::Defer;

/// Makes a handler of batches of a handler of one [`Message`]: a message that comes twice takes
/// effect once.
///
/// `T` is the body's type and `E` the handler's error; both are inferred. [`sqs`](crate::sqs) has
/// an example.
#[must_use = "a layer does nothing until it wraps a handler"]
pub struct BatchLayer<Src: Source, T, E> {
    config: Config<Src, T, E>,
}

impl<Src: Source, T: DeserializeOwned, E> BatchLayer<Src, T, E> {
    /// Makes a layer over an engine, for bodies in JSON. Without further settings the key is the
    /// message's [own](Source::token), the operation the name of its [origin](Source::origin), and
    /// up to 10 messages run side by side.
    pub fn new(once: Idempotency) -> Self {
        Self::of(once, Reader::new())
    }
}

impl<Src: Source, T, E> BatchLayer<Src, T, E> {
    /// Makes a layer over an engine, for bodies that this function decodes: bytes of another format
    /// than JSON. It gets the message, too, as its source delivered it. A body that it fails on is
    /// rejected as [`Undecodable`](super::Rejection::Undecodable).
    ///
    /// Two bodies of one key are compared by their bytes, unless they are JSON.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("readings").build()?;
    /// fn celsius(body: &[u8], _: &sqs::SqsMessage) -> Result<f64, Box<dyn std::error::Error>> {
    ///     Ok(std::str::from_utf8(body)?.trim().parse()?)
    /// }
    ///
    /// let worker = sqs::BatchLayer::with_decoder(once, celsius)
    ///     .handler(|message: sqs::Message<f64>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn with_decoder<D: fmt::Display>(
        once: Idempotency,
        decode: impl Fn(&[u8], &Src::Record) -> Result<T, D> + Send + Sync + 'static,
    ) -> Self {
        Self::of(once, Reader::with(decode))
    }

    fn of(once: Idempotency, mut reader: Reader<Src, T>) -> Self {
        reader.quotes_errors = once.logs_errors();
        Self {
            config: Config {
                once,
                operation: None,
                reader,
                settings: Settings::new(),
                source_retention: None,
                permanent: None,
                hooks: Hooks {
                    on_rejected: None,
                    deferring: None,
                },
                on_error: None,
            },
        }
    }

    /// Names the operation. Default: the message's [origin](Source::origin), such as a queue's
    /// name, or the [source's name](Source::NAME) where it has none.
    ///
    /// Set it when the same work arrives from several origins, or when one may be renamed: a
    /// message that was done under one operation is new under another, and refused under a
    /// [raw id](Self::raw_id).
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        self.config.operation = Some(name.into().into());
        self
    }

    /// Takes the key from the decoded body: any [text](IntoToken), or an `Option` of it where it
    /// may be missing. Default: the message id, or the id in the declared
    /// [envelope](Self::envelope), which recognise less; [the module](crate::sqs#which-key) says
    /// what to choose.
    ///
    /// An empty key is a missing one, and a missing one meets the engine's
    /// [policy](crate::Builder::on_missing_key).
    pub fn key<V: IntoToken>(mut self, token: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        self.config.reader.key = self.config.reader.key.body(token);
        self
    }

    /// Takes the key from the body as it was received, where a JSON pointer or a JMESPath expression
    /// finds it. It replaces [`key`](Self::key): the last call counts.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, Selector, sqs, store::MemoryStore};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key_from(Selector::pointer("/detail/order_id")?)
    ///     .handler(|message: sqs::Message<serde_json::Value>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok(()) }
    /// ```
    pub fn key_from(self, selector: Selector) -> Self {
        self.key_at(KeyPlace::Json(selector))
    }

    /// Takes the key from an attribute of the message; of a binary one, its Base64 text. In an
    /// [envelope](Self::envelope), it takes that of the envelope before that of the message. It replaces
    /// [`key`](Self::key): the last call counts.
    pub fn key_attribute(self, name: impl Into<String>) -> Self {
        self.key_at(KeyPlace::Attribute(name.into()))
    }

    fn key_at(mut self, place: KeyPlace) -> Self {
        self.config.reader.key = self.config.reader.key.selected(place);
        self
    }

    /// Makes the layer an inbox: each event takes effect once for this consumer, however often its producer
    /// publishes it. The consumer is the [operation](Self::operation), and the key is the identity that the
    /// producer gave the event; an event without one has no key. It is the first of these that the
    /// message has:
    ///
    /// | what | is of |
    /// |---|---|
    /// | the attribute `event_id` | the [outbox](crate::dynamodb::outbox), through SQS or SNS |
    /// | the attributes `source` and `id`, each behind `ce_`, `ce-`, `cloudEvents:` or `cloudEvents_` | a [CloudEvent](https://github.com/cloudevents/spec) in binary mode |
    /// | `source` and `id` in a JSON body with `specversion` | a CloudEvent in structured mode |
    /// | `id` in a JSON body of `id`, `aggregate` and `data` | the outbox, through EventBridge |
    ///
    /// The token of a CloudEvent is that of the list of its source and its id, as
    /// [`Key::of`](crate::Key::of) makes it.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct OrderCreated { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let billing = sqs::BatchLayer::new(once)
    ///     .inbox("billing")
    ///     .handler(|event: sqs::Message<OrderCreated>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn inbox(self, consumer: impl Into<String>) -> Self {
        self.operation(consumer).key_at(KeyPlace::EventId)
    }

    /// Takes the whole id of the record from the decoded body or from the message as it was
    /// delivered, whatever the namespace and the operation: to share records with another library,
    /// as [`Key::raw`](crate::Key::raw) does; the feature `powertools` makes the ids of Powertools
    /// for AWS Lambda. It replaces [`key`](Self::key): the last call counts. With a
    /// [`scope`](Self::scope) each message is reported, because the id has no room for one.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .raw_id(|payment: &Payment, _| format!("charges#{}", payment.order_id))
    ///     .handler(|message: sqs::Message<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn raw_id<V: IntoToken>(
        mut self,
        id: impl Fn(&T, &Src::Record) -> V + Send + Sync + 'static,
    ) -> Self {
        self.config.reader.key = self.config.reader.key.raw_id(id);
        self
    }

    /// Takes the tenant from the decoded body or from the message as it was delivered: any
    /// [text](IntoToken), or an `Option` of it. Two tenants that choose the same token then have
    /// two records. Default: none, which is right where the tokens are your own.
    ///
    /// All messages for which it gives `None` share their tokens. A message for which it gives a
    /// blank text is rejected as [`UnusableKey`](super::Rejection::UnusableKey).
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|payment: &Payment| payment.order_id.clone())
    ///     .scope(|_, message| message.message_attributes.get("tenant")?.string_value.clone())
    ///     .handler(|message: sqs::Message<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn scope<V: IntoToken>(
        mut self,
        tenant: impl Fn(&T, &Src::Record) -> V + Send + Sync + 'static,
    ) -> Self {
        self.config.reader.key = self.config.reader.key.scope(tenant);
        self
    }

    /// Sets how long the outcome of a message is kept, by its decoded body or by the message as it
    /// was delivered; `None` for the engine's [`retention`](crate::Builder::retention), which is the
    /// default. For one retention of all messages, make the layer of
    /// [`Idempotency::retention`](crate::Idempotency::retention).
    ///
    /// It must be longer than the longest redelivery of the message, its redrive from a dead-letter
    /// queue among them. Without [`on_rejected`](Self::on_rejected), permanent failures are kept for
    /// the [failure's retention](crate::Settings::failure_retention).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Job { id: String, kind: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("jobs").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|job: &Job| job.id.clone())
    ///     .retention(|job, _| (job.kind == "payment").then_some(Duration::from_secs(90 * 86_400)))
    ///     .handler(|message: sqs::Message<Job>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn retention<V: Into<Option<Duration>>>(
        mut self,
        retention: impl Fn(&T, &Src::Record) -> V + Send + Sync + 'static,
    ) -> Self {
        let retention = move |body: &T, message: &Src::Record| retention(body, message).into();
        self.config.reader.retention = Some(Arc::new(retention));
        self
    }

    /// Changes the [settings](Settings) that few workers change.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.config.settings);
        let declared = self.config.settings.source_retention;
        self.config.source_retention = declared.map(SourceRetention::new);
        self.config.reader.fingerprint.set(&self.config.settings);
        self
    }

    /// Selects the handler's errors that no retry will fix. Default: none.
    ///
    /// Such a failure is stored, and a message that is delivered again is reported without a run, until
    /// the source gives it up or the [failure's retention](crate::Settings::failure_retention) is
    /// over. With [`on_rejected`](Self::on_rejected) the message may leave the source at once, and the
    /// failure is kept as long as an outcome.
    pub fn permanent(mut self, is_permanent: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.config.permanent = Some(Arc::new(is_permanent));
        self
    }

    /// Wraps a function: a shorter form of a `tower::ServiceBuilder` with this layer alone and
    /// `service_fn`.
    pub fn handler<F, Fut, R, M>(self, handler: F) -> BatchService<Src, T, E, ServiceFn<F>>
    where
        F: FnMut(Message<Src, T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        E: HandlerError<M>,
    {
        name_causes_of::<E, M>();
        BatchService {
            config: self.config,
            handler: service_fn(handler),
        }
    }
}

impl<Src: Source, T, E, Svc> Layer<Svc> for BatchLayer<Src, T, E> {
    type Service = BatchService<Src, T, E, Svc>;

    fn layer(&self, handler: Svc) -> Self::Service {
        BatchService {
            config: self.config.clone(),
            handler,
        }
    }
}

clone_fields!([Src: Source, T, E] BatchLayer<Src, T, E> { config });

debug_fields!([Src: Source, T, E] BatchLayer<Src, T, E> { config });

impl<Src: Source, T, E> BatchLayer<Src, T, E> {
    /// Declares the envelope in which messages come. Default: none.
    ///
    /// The handler gets what is inside, decoded; [selectors](Selector) and
    /// [`fingerprint_without`](Settings::fingerprint_without) look inside; key and fingerprint have the
    /// defaults that [`Envelope`] lists. Called again, it declares the next envelope inside: an S3
    /// notification that comes through a topic is in `Envelope::Sns`, then in `Envelope::S3`. The
    /// handler finds the whole in [`Message::metadata`](crate::batch::Message::metadata).
    ///
    /// A body that is not in its envelope is reported alone, as `bad_envelope`.
    ///
    /// Declare it before a worker goes live: of a message that was done without it, delivered again, the
    /// record isn't found under the envelope's key, and is a mismatch under a key of your own.
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
    /// has until the [reserve](Settings::reserve). After an error, a panic or no answer the message is
    /// reported, as `not_fetched`. It decides which buckets it reads and how large an object may
    /// be: as many objects as messages [run side by side](Settings::concurrency) are in memory. So a
    /// message with an object keeps its place while it [waits](crate::InFlight::WaitUpTo) for another
    /// attempt.
    ///
    /// ```no_run
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Order { order_id: String }
    /// # fn worker(once: Idempotency, s3: aws_sdk_s3::Client) {
    /// let worker = sqs::BatchLayer::new(once)
    ///     .envelope(sqs::Envelope::S3Pointer)
    ///     .fetch(move |pointer| payload(s3.clone(), pointer))
    ///     .key(|order: &Order| order.order_id.clone())
    ///     .handler(|message: sqs::Message<Order>| async move { Ok::<_, std::io::Error>(()) });
    /// # }
    ///
    /// async fn payload(s3: aws_sdk_s3::Client, pointer: sqs::S3Pointer) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
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
    pub fn fetch<F, Fut, FetchError, M>(mut self, fetch: F) -> Self
    where
        F: Fn(S3Pointer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, FetchError>> + Send + 'static,
        FetchError: HandlerError<M>,
    {
        let quotes = self.config.once.logs_errors();
        self.config.reader.fetch = Some(Hook::new(fetch, quotes));
        self
    }

    /// Takes the fingerprint from the decoded body, or from the message as it was delivered; `None`
    /// for a message that is not compared. Default: the fingerprint of the whole body, or of what
    /// is in its [envelope](Self::envelope), as text. The closure takes precedence over
    /// [`fingerprint_from`](Settings::fingerprint_from) and
    /// [`fingerprint_without`](Settings::fingerprint_without).
    ///
    /// Take it from fields that say what the message asks for, not from the whole decoded value: a
    /// field that the type gains would make another request of each message that is delivered again.
    /// Set it before a worker goes live, or with another key: a record that was written without it is a
    /// mismatch for the same message.
    ///
    /// `|_, _| None` compares messages by their key alone: every message of a key that was done is a
    /// duplicate, whatever it says. That is for keys that name one piece of work for ever, such as the
    /// id of an immutable document. A key that is used again by mistake loses its message: there is no
    /// mismatch to report.
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
        self.config.reader.fingerprint.set_closure(fingerprint);
        self
    }
}

impl<Src: Source, T, E> BatchLayer<Src, T, E> {
    /// Takes rejected messages from the source: those that no retry will fix, as
    /// [`Rejection`](crate::batch::Rejection) lists them. Default: they are reported, and the source's
    /// own policy moves them aside.
    ///
    /// The function gets the message as its source delivered it ([`Source::body`] gives the bytes),
    /// after all messages have run that can, and keeps it somewhere. When it answers `Ok`, the message
    /// is acknowledged, and the source deletes it; those behind it in its ordered group run then. After
    /// an error, a panic, or no answer 250 ms before the invocation ends, the message is reported:
    /// answer an error for a message that you don't park.
    ///
    /// The function may get a message again: an acknowledgement can be lost, and some sources repeat
    /// acknowledged messages (Amazon MQ, streams behind a checkpoint,
    /// [`without_item_failures`](Settings::without_item_failures)). A [permanent](Self::permanent)
    /// failure is kept as long as an outcome, so that its message doesn't run again: to have it run after
    /// a fix, release its record. A message does run again where no record keeps its failure: after an
    /// error that a write's [condition](crate::store::transaction::Write::or_else) answers with, one of a
    /// handler that doesn't become ready, or one that the store didn't take.
    ///
    /// [`Rejected`] says why: its class, a code and a text, the same ones as in the log's event
    /// `rejected`. For a failed handler the text is the error's type; with
    /// [`log_errors`](crate::Settings::log_errors), which allows texts that may quote the message, it
    /// is the error's own text.
    ///
    /// A message that differs from an earlier one of its batch is reported until that one is done, or
    /// rejected itself; then the store decides about it. One that follows a rejected message shares
    /// its fate; the function gets the first of them.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// # async fn park(class: &str, detail: &str, body: Option<String>) -> Result<(), std::io::Error> { Ok(()) }
    /// let worker = sqs::BatchLayer::new(once)
    ///     .on_rejected(|message, why| async move {
    ///         park(&why.rejection.to_string(), &why.detail, message.body).await
    ///     })
    ///     .handler(|message: sqs::Message<u64>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_rejected<F, Fut, HookError, M>(self, hook: F) -> Self
    where
        F: Fn(Src::Record, Rejected) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HookError>> + Send + 'static,
        HookError: HandlerError<M>,
    {
        let quotes = self.config.once.logs_errors();
        self.rejecting(quotes, hook)
    }

    /// Takes rejected messages, and logs the texts of the function's errors where they quote nothing.
    pub(crate) fn rejecting<F, Fut, HookError, M>(mut self, logs_errors: bool, hook: F) -> Self
    where
        F: Fn(Src::Record, Rejected) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HookError>> + Send + 'static,
        HookError: HandlerError<M>,
    {
        let hook = Hook::new(move |(message, why)| hook(message, why), logs_errors);
        self.config.hooks.on_rejected = Some(hook);
        self
    }

    /// Shows each error of the handler to this function, with the message as its source delivered
    /// it: to log it, to count it. Default: none, and the log has the error's type.
    ///
    /// The function changes nothing: the message is reported, or rejected where the error is
    /// [permanent](Self::permanent). It is not called for a panic, where the handler doesn't become
    /// ready, for an obstacle of the engine's, or for the error that a write's [condition](crate::store::transaction::Write::or_else)
    /// answers with. With it, each message is cloned before its handler runs.
    ///
    /// An error's text may quote the message. [`log_errors`](crate::Settings::log_errors) logs it as
    /// it is.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .on_error(|message, error: &std::io::Error| {
    ///         eprintln!("{}: {error}", message.message_id.as_deref().unwrap_or_default());
    ///     })
    ///     .handler(|message: sqs::Message<u64>| async move { Err::<(), _>(std::io::Error::other("no route")) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_error(mut self, hook: impl Fn(&Src::Record, &E) + Send + Sync + 'static) -> Self {
        self.config.on_error = Some(Arc::new(hook));
        self
    }

    /// Defers messages that are in flight elsewhere until their claim is free.
    #[cfg(feature = "visibility")]
    pub(crate) fn deferring(mut self, deferring: Defer<Src::Record>) -> Self {
        self.config.hooks.deferring = Some(deferring);
        self
    }
}
