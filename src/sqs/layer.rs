//! How a handler of one message becomes a handler of batches.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tower::Layer;
use tower::util::{ServiceFn, service_fn};

use crate::idempotency::Idempotency;
use crate::sqs::batch::Order;
use crate::sqs::key::KeySource;
use crate::sqs::message::Message;
use crate::sqs::service::{BatchService, Config};

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
                key: KeySource::MessageId,
                permanent: None,
                concurrency: DEFAULT_CONCURRENCY,
                order: Order::ByQueue,
                reserve: None,
                single_writes: false,
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
        self.config.key = KeySource::body(token);
        self
    }

    /// Tells which of the handler's errors no retry will mend. Default: none.
    ///
    /// Such a failure is stored, and a delivery that comes again is reported without a run, until the queue moves it to its
    /// dead-letter queue or the [failure's retention](crate::Builder::failure_retention) is over.
    pub fn permanent(mut self, is_permanent: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.config.permanent = Some(Arc::new(is_permanent));
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
