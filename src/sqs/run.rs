//! One message through the engine.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::{Service, ServiceExt};
use tracing::Instrument;

use crate::error::Error;
use crate::idempotency::Idempotency;
use crate::outcome::Verdict;
use crate::sqs::batch::{Fate, Ready};
use crate::sqs::message::Message;
use crate::sqs::report::Reason;
use crate::store::Store;

/// Which of the handler's errors no retry will mend.
pub(super) type Permanent<E> = Arc<dyn Fn(&E) -> bool + Send + Sync>;

/// All that one message needs, so that its future borrows nothing.
pub(super) struct Run<S, T, E, Svc> {
    pub(super) once: Idempotency<S>,
    pub(super) handler: Svc,
    pub(super) permanent: Option<Permanent<E>>,
    pub(super) message: Ready<T>,
}

impl<S, T, E, Svc> Run<S, T, E, Svc>
where
    S: Store,
    E: Display,
    Svc: Service<Message<T>, Error = E>,
    Svc::Response: Serialize + DeserializeOwned,
{
    /// The message's place in its batch, and what became of it. The span lets the handler's own events tell which message
    /// they are about.
    pub(super) async fn run(self) -> (usize, Fate) {
        let Ready {
            position,
            body,
            metadata,
            key,
            fingerprint,
        } = self.message;
        let id = metadata.message_id.as_deref().unwrap_or_default();
        let span = tracing::info_span!("sqs_message", message_id = id);

        // Asked once, whether a claim stands behind the run or not.
        let failed = AtomicBool::new(false);
        let handler = async |claim| {
            let message = Message {
                body,
                claim,
                metadata,
            };
            let result = self.handler.oneshot(message).await;
            if let (Err(error), Some(permanent)) = (&result, &self.permanent) {
                failed.store(permanent(error), Ordering::Relaxed);
            }
            result
        };
        let verdict = |result: &Result<_, E>| {
            if failed.load(Ordering::Relaxed) {
                Verdict::Fail
            } else {
                Verdict::of(result)
            }
        };
        let run = self.once.run_with(key, fingerprint, handler, verdict);
        let fate = match AssertUnwindSafe(run.instrument(span)).catch_unwind().await {
            // An outcome that was not kept is no loss: a queue never asks for it, and the work is done.
            Ok(Ok(_) | Err(Error::OutcomeOmitted { .. })) => Fate::Done,
            Ok(Err(error)) => Fate::Reported(Reason::of_run(&error, failed.into_inner())),
            // The engine has released the claim. The others go on.
            Err(_) => Fate::Reported(Reason::Panicked),
        };
        (position, fate)
    }
}
