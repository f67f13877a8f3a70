//! Shows the errors of a handler to the layer's hook, and to the log where the engine's setting asks
//! for it.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::TryFutureExt;
use futures_util::future::{Either, InspectErr};
use tower::Service;

use crate::batch::Source;
use crate::batch::message::Message;
use crate::engine::events;
use crate::protocol::record::error_text;

/// Is shown a message, as its source delivered it, and the error of its handler.
pub(super) type OnError<R, E> = Arc<dyn Fn(&R, &E) + Send + Sync>;

/// Serves messages with a handler, and shows its errors.
pub(super) struct Watched<Src: Source, E, Svc> {
    /// The texts of the errors are logged.
    pub(super) logs: bool,
    pub(super) on_error: Option<OnError<Src::Record, E>>,
    pub(super) handler: Svc,
}

clone_fields!([Src: Source, E, Svc: Clone] Watched<Src, E, Svc> { logs, on_error, handler });

type Show<E> = Box<dyn FnOnce(&E) + Send>;

impl<Src, T, E, Svc> Service<Message<Src, T>> for Watched<Src, E, Svc>
where
    Src: Source,
    E: Display + 'static,
    Svc: Service<Message<Src, T>, Error = E>,
{
    type Response = Svc::Response;
    type Error = E;
    type Future = Either<Svc::Future, InspectErr<Svc::Future, Show<E>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.handler.poll_ready(cx)
    }

    fn call(&mut self, message: Message<Src, T>) -> Self::Future {
        if self.on_error.is_none() && !self.logs {
            return Either::Left(self.handler.call(message));
        }
        let claim = self.logs.then(|| message.claim.clone());
        let hook = self.on_error.clone();
        let hook = hook.map(|hook| (hook, message.metadata.clone()));
        let show: Show<E> = Box::new(move |error| {
            if let Some(claim) = claim {
                events::handler_failed(&claim, &error_text(error));
            }
            // A panic of the hook doesn't change what becomes of the message.
            if let Some((hook, metadata)) = hook
                && catch_unwind(AssertUnwindSafe(|| hook(&metadata, error))).is_err()
            {
                let (event, message_id) = ("hook_failed", Src::id(&metadata).unwrap_or_default());
                let (error, source) = ("it panicked", Src::NAME);
                tracing::error!(
                    event,
                    reason = "on_error",
                    message_id,
                    error,
                    source,
                    "batch"
                );
            }
        });
        Either::Right(self.handler.call(message).inspect_err(show))
    }
}
