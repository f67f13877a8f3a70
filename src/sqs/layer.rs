//! How a handler of one message becomes a handler of batches.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsMessage;
use tower::Layer;
use tower::util::{ServiceFn, service_fn};

use crate::idempotency::Idempotency;
use crate::sqs::aftermath::Aftermath;
use crate::sqs::key::KeySource;
use crate::sqs::message::Message;
use crate::sqs::plan::Order;
use crate::sqs::rejection::{Hook, Rejection};
use crate::sqs::selector::Selector;
use crate::sqs::service::{BatchService, Config};
#[cfg(feature = "visibility")]
use crate::sqs::visibility::Visibility;

/// How many messages run side by side unless [`BatchLayer::concurrency`] says otherwise: the default size of a batch.
const DEFAULT_CONCURRENCY: usize = 10;

/// Makes a handler of one [`Message`] a handler of batches, in which a message that comes twice takes effect once.
///
/// `T` is the body's type and `E` the handler's error; both are inferred. [The module](super) has an example.
#[must_use = "a layer does nothing until it wraps a handler"]
pub struct BatchLayer<S, T, E> {
    config: Config<S, T, E>,
}

impl<S, T, E> BatchLayer<S, T, E> {
    /// A layer over an engine. Without further settings the key is the message id, the operation the queue's name, and
    /// up to 10 messages run side by side.
    pub fn new(once: Idempotency<S>) -> Self {
        Self {
            config: Config {
                once,
                operation: None,
                key: KeySource::message_id(),
                permanent: None,
                concurrency: DEFAULT_CONCURRENCY,
                order: Order::ByQueue,
                reserve: None,
                single_writes: false,
                aftermath: Aftermath::default(),
            },
        }
    }

    /// Names the work. Default: the queue's name, from the message's `eventSourceARN`, or `sqs` where there is none.
    ///
    /// Set it when the same work arrives by several queues, or when a queue may be renamed: a message that was done under
    /// one operation is new under another.
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        self.config.operation = Some(name.into().into());
        self
    }

    /// Takes the key from the decoded body: a `String`, or an `Option<String>` where it may be missing. Default: the message
    /// id, which recognises less; [the module](super#which-key) says what to choose.
    ///
    /// An empty key is a missing one, and a missing one meets the engine's
    /// [policy](crate::Builder::missing_key).
    pub fn key<V>(mut self, token: impl Fn(&T) -> V + Send + Sync + 'static) -> Self
    where
        V: Into<Option<String>>,
    {
        self.config.key = self.config.key.body(token);
        self
    }

    /// Takes the key from the message as it was received: from a message attribute, or from a place in the body that a JSON
    /// pointer or a JMESPath expression names. In place of [`key`](Self::key); the last one said counts.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key_from(sqs::Selector::pointer("/detail/order_id")?)
    ///     .handler(|message: sqs::Message<serde_json::Value>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok(()) }
    /// ```
    pub fn key_from(mut self, selector: Selector) -> Self {
        self.config.key = self.config.key.selected(selector);
        self
    }

    /// Takes the id of the record itself from the decoded body, whatever the namespace and the operation: to share records with
    /// another library, as [`Key::raw`](crate::Key::raw) does; the feature `powertools` makes the ids of Powertools for AWS Lambda.
    /// In place of [`key`](Self::key); the last one said counts. It says all by itself: with a [`scope`](Self::scope) each message
    /// is refused.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .raw_id(|payment: &Payment| format!("charges#{}", payment.order_id))
    ///     .handler(|message: sqs::Message<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::KeyError>(())
    /// ```
    pub fn raw_id<V>(mut self, id: impl Fn(&T) -> V + Send + Sync + 'static) -> Self
    where
        V: Into<Option<String>>,
    {
        self.config.key = self.config.key.raw_id(id);
        self
    }

    /// Tells whose key it is, from the decoded body or from the message around it: a `String`, or an `Option<String>`. Two
    /// tenants that choose the same token then have two records. Default: none, which is right where the tokens are your own.
    ///
    /// Where it gives `None` the key is nobody's in particular, and all such messages share one room for their tokens.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|payment: &Payment| payment.order_id.clone())
    ///     .scope(|_, message| message.message_attributes.get("tenant")?.string_value.clone())
    ///     .handler(|message: sqs::Message<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::KeyError>(())
    /// ```
    pub fn scope<V>(mut self, tenant: impl Fn(&T, &SqsMessage) -> V + Send + Sync + 'static) -> Self
    where
        V: Into<Option<String>>,
    {
        self.config.key = self.config.key.scope(tenant);
        self
    }

    /// Tells which of the handler's errors no retry will mend. Default: none.
    ///
    /// Such a failure is stored, and a delivery that comes again is reported without a run, until the queue moves it to its
    /// dead-letter queue or the [failure's retention](crate::Builder::failure_retention) is over. With
    /// [`on_rejected`](Self::on_rejected) it may leave the queue at once.
    pub fn permanent(mut self, is_permanent: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.config.permanent = Some(Arc::new(is_permanent));
        self
    }

    /// Takes rejected messages off the queue: those that no retry will mend, which [`Rejection`] lists. Default: they are
    /// reported, and the queue's redrive policy moves them to its dead-letter queue.
    ///
    /// The function gets the message as SQS delivered it, after all messages have run, and keeps it somewhere: once it has
    /// answered `Ok`, the message is acknowledged, and SQS deletes it. An error, a panic, or no answer 250 ms before the
    /// invocation ends, and the message is reported after all. It may get a message twice: its acknowledgement can be lost.
    ///
    /// A message that differs from an earlier one of its batch is rejected once that one is done, and reported until then. One
    /// that shares the request of a rejected message shares its fate; the function sees the first of them.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// # async fn park(why: &str, body: Option<String>) -> Result<(), std::io::Error> { Ok(()) }
    /// let worker = sqs::BatchLayer::new(once)
    ///     .on_rejected(|message, why| async move { park(why.as_str(), message.body).await })
    ///     .handler(|message: sqs::Message<u64>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::KeyError>(())
    /// ```
    pub fn on_rejected<F, Fut, HookError>(mut self, hook: F) -> Self
    where
        F: Fn(SqsMessage, Rejection) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HookError>> + Send + 'static,
        HookError: fmt::Display,
    {
        self.config.aftermath.on_rejected = Some(Hook::new(hook));
        self
    }

    /// Keeps messages that are in flight elsewhere hidden until they can be worked on; [`Visibility`] says how. Default: they
    /// come back when the queue's visibility timeout is over.
    #[cfg(feature = "visibility")]
    #[cfg_attr(docsrs, doc(cfg(feature = "visibility")))]
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.config.aftermath.visibility = Some(visibility);
        self
    }

    /// How many messages run side by side; at least 1. Default: 10.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.config.concurrency = messages.max(1);
        self
    }

    /// In which order messages run. Default: by message group where the queue is FIFO, else side by side.
    pub fn order(mut self, order: Order) -> Self {
        self.config.order = order;
        self
    }

    /// How much of the invocation's time is kept back: no message starts in it, those that didn't start are reported and their
    /// claims released, and a running handler can [see it come](Message::cancelled). Default: a tenth of the time that the
    /// invocation has, at most 1 second.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.config.reserve = Some(reserve);
        self
    }

    /// Sends each claim and each completion as a request of its own.
    ///
    /// By default those of up to 25 messages leave in one request, which costs the same capacity, and a fraction of the time. It
    /// needs `dynamodb:PartiQLInsert`, `dynamodb:PartiQLUpdate` and `dynamodb:BatchGetItem` besides; where the function lacks
    /// one, requests go out one by one, with a warning.
    pub fn single_writes(mut self) -> Self {
        self.config.single_writes = true;
        self
    }

    /// Wraps a function, for those who have no other layers: the same as a `tower::ServiceBuilder` with this layer and
    /// `service_fn`.
    pub fn handler<F, Fut, R>(self, handler: F) -> BatchService<S, T, E, ServiceFn<F>>
    where
        F: FnMut(Message<T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
    {
        BatchService {
            config: self.config,
            handler: service_fn(handler),
        }
    }
}

impl<S, T, E, Svc> Layer<Svc> for BatchLayer<S, T, E> {
    type Service = BatchService<S, T, E, Svc>;

    fn layer(&self, handler: Svc) -> Self::Service {
        BatchService {
            config: self.config.clone(),
            handler,
        }
    }
}

impl<S, T, E> Clone for BatchLayer<S, T, E> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
        }
    }
}

impl<S, T, E> fmt::Debug for BatchLayer<S, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchLayer").field(&self.config).finish()
    }
}
