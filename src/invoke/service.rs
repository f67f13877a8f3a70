//! Serves events with a service of one invocation.

use std::fmt;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tower::Service;
use tracing::{Instrument, info_span};

use super::error::InvokeError;
use super::hook::{Hook, ReplayedAnswer};
use super::invocation::Invocation;
use super::reader::Reader;
use crate::engine::error::Rejection;
use crate::idempotency::Idempotency;
use crate::idempotency::source_retention::SourceRetention;

type Permanent<E> = Arc<dyn Fn(&E) -> bool + Send + Sync>;
type OnError<E> = Arc<dyn Fn(&RawValue, &E) + Send + Sync>;

/// Holds the settings of a layer.
pub(super) struct Config<T, E> {
    pub(super) once: Idempotency,
    pub(super) operation: Option<Arc<str>>,
    pub(super) reader: Reader<T>,
    pub(super) permanent: Option<Permanent<E>>,
    pub(super) reserve: Option<Duration>,
    /// The caller gets the handler's answer, and not `null`.
    pub(super) answers: bool,
    pub(super) source_retention: Option<SourceRetention>,
    pub(super) on_rejected: Option<Hook<(Box<RawValue>, Rejection)>>,
    pub(super) on_replay: Option<Hook<ReplayedAnswer>>,
    pub(super) on_error: Option<OnError<E>>,
}

clone_fields!([T, E] Config<T, E> {
    once, operation, reader, permanent, reserve, answers, source_retention, on_rejected, on_replay, on_error
});

impl<T, E> fmt::Debug for Config<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("source", &self.reader.kind)
            .field("operation", &self.operation)
            .field("key", &self.reader.key)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}

/// Serves `LambdaEvent<Box<RawValue>>` with a service of one [`Invocation`].
/// [`InvokeLayer`](super::InvokeLayer) makes it.
///
/// # Cancellation
///
/// A future that is dropped ends the handler wherever it is, as in
/// [`Idempotency::run`](crate::Idempotency::run).
#[must_use = "a service does nothing until it is run"]
pub struct InvokeService<T, E, Svc> {
    pub(super) config: Config<T, E>,
    pub(super) handler: Svc,
}

clone_fields!([T, E, Svc: Clone] InvokeService<T, E, Svc> { config, handler });

impl<T, E, Svc> fmt::Debug for InvokeService<T, E, Svc> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InvokeService").field(&self.config).finish()
    }
}

impl<T, E, Svc> Service<LambdaEvent<Box<RawValue>>> for InvokeService<T, E, Svc>
where
    T: DeserializeOwned + Send + 'static,
    E: Display + Send + 'static,
    Svc: Service<Invocation<T>, Error = E> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Response: Serialize + Send + 'static,
{
    type Response = Box<RawValue>;
    type Error = InvokeError<E>;
    type Future = Pin<Box<dyn Future<Output = Result<Box<RawValue>, InvokeError<E>>> + Send>>;

    /// Is always ready: each event waits for its own clone of the handler.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InvokeError<E>>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<Box<RawValue>>) -> Self::Future {
        let span = info_span!(
            "invocation",
            otel.kind = "server",
            faas.trigger = self.config.reader.kind.trigger(),
            faas.invocation_id = event.context.request_id,
        );
        let serving = self.config.clone().serve(self.handler.clone(), event);
        Box::pin(serving.instrument(span))
    }
}
