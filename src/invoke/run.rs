//! Serves events: reads each, claims its key, calls the handler, ends the run, answers.

use std::fmt;
use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use futures_util::FutureExt;
use lambda_runtime::Context;
use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use tower::{Service, ServiceExt};
use tracing::{Instrument, info_span};

use crate::engine::claim::{Claim, to_json};
use crate::engine::error::{Error, Obstacle};
use crate::engine::permanent::{Permanent, is_permanent};
use crate::engine::rejection::Rejection;
use crate::engine::time::{Times, ending, within};
use crate::engine::{Begun, Disposition, Ended, Replayed, Run};
use crate::idempotency::Idempotency;
use crate::idempotency::source_retention::SourceRetention;
use crate::invoke::error::{InvokeError, log, rejected};
use crate::invoke::hook;
use crate::invoke::hook::{AnswerHook, ReplayHook};
use crate::invoke::kind::s3_batch::Reply;
use crate::invoke::kind::{DURABLE, is_durable};
use crate::invoke::reader::{Reader, wrong};
use crate::invoke::settings::Settings;
use crate::protocol::key::KeyError;

/// The operation of a function whose name is not known, as in a test without a context.
const UNNAMED: &str = "invoke";

/// Holds the error of an event without an answer, and whether it is rejected.
struct Unanswered<E> {
    error: InvokeError<E>,
    rejection: Option<Rejection>,
}

impl<E> From<InvokeError<E>> for Unanswered<E> {
    fn from(error: InvokeError<E>) -> Self {
        let rejection = match &error {
            InvokeError::WrongEvent { .. } | InvokeError::Undecodable { .. } => {
                Some(Rejection::Undecodable)
            }
            InvokeError::Obstacle(obstacle) => Rejection::of(obstacle),
            _ => None,
        };
        Self { error, rejection }
    }
}

impl<E> From<Obstacle> for Unanswered<E> {
    fn from(obstacle: Obstacle) -> Self {
        InvokeError::Obstacle(obstacle).into()
    }
}

impl<T: DeserializeOwned, E: Display + 'static> Config<T, E> {
    /// Answers an event.
    pub(super) async fn serve<Svc>(
        self,
        handler: Svc,
        event: LambdaEvent<Box<RawValue>>,
    ) -> Result<Box<RawValue>, InvokeError<E>>
    where
        Svc: Service<Invocation<T>, Error = E>,
        Svc::Response: Serialize,
    {
        let LambdaEvent { payload, context } = event;
        let reply = self.reader.kind.reply(payload.get());
        let mut once = self.once.invocation(&context);
        if self.settings.without_answer {
            once = once.without_outcome();
        }
        // A hook is given up before the deadline, whatever goes on: an answer that is late is lost.
        let limits = once.remaining();
        let limits = limits.map(|remaining| Times::of(remaining, self.settings.reserve));
        // Not the handler alone may panic: a closure that reads the event, or its type's own decoder.
        let answering = self.answer(once, handler, &payload, context, limits);
        let answered = AssertUnwindSafe(Box::pin(answering)).catch_unwind().await;
        let Unanswered { error, rejection } = match answered {
            Ok(Ok(answer)) => return Ok(replied(reply.as_ref(), answer)),
            Ok(Err(unanswered)) => unanswered,
            Err(_) => InvokeError::Panicked.into(),
        };
        if let (Some(why), Some(hook)) = (rejection, &self.on_rejected)
            && let Some(answer) = hook::answer(hook, "on_rejected", (payload, why), limits).await
        {
            rejected(&error, why, self.once.logs_errors());
            return Ok(replied(reply.as_ref(), answer));
        }
        log(&error);
        match reply {
            Some(reply) => Ok(reply.failed(&error, rejection.is_some())),
            None => Err(error),
        }
    }

    async fn answer<Svc>(
        &self,
        once: Idempotency,
        mut handler: Svc,
        event: &RawValue,
        context: Context,
        limits: Option<Times>,
    ) -> Result<Box<RawValue>, Unanswered<E>>
    where
        Svc: Service<Invocation<T>, Error = E>,
        Svc::Response: Serialize,
    {
        let operation = self.operation(&context);
        let (tenant, is_passive) = (context.tenant_id.as_deref(), once.is_passive());
        // A stored answer of one invocation would be replayed to the next, for as long as it is kept.
        // It is no rejection: a hook's answer would go to the durable service, and hide that the layer doesn't
        // belong there.
        if !is_passive && is_durable(event.get()) {
            return Err(Unanswered {
                error: wrong(DURABLE),
                rejection: None,
            });
        }
        let (payload, identity) = self
            .reader
            .read(operation, event.get(), tenant, is_passive)?;
        let key = identity.key;
        let key = key.map(|key| key.bound_to(self.operation.as_ref()));
        let once = once.keep_for(identity.retention);
        if let Some(source) = &self.source_retention {
            source.check(&once);
        }
        let times = limits.filter(|_| once.ends_handlers());
        // A handler that is not ready holds no key, unless the event may wait for another attempt: a ready
        // handler may keep others from being so.
        let end = times.map(|times| times.end);
        if !once.waits() {
            match within(end, handler.ready()).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.show(event, &error);
                    return Err(self.handler_failed(error));
                }
                None => return Err(Error::TooLate.into()),
            }
        }
        let begun = match once.begin(key, identity.fingerprint).await {
            Ok(Begun::Run(run)) => {
                let note = |claim: &Claim, error: &_| {
                    once.log_error(claim, error);
                    self.show(event, error);
                };
                let begun = Box::pin(run.made_ready(times, handler.ready(), note)).await?;
                begun.map_err(|error| self.handler_failed(error))?
            }
            Ok(done @ Begun::Replay(_)) => done,
            Err(Error::Key(KeyError::Missing)) => {
                return Err(Error::Key(self.reader.key.absence()).into());
            }
            Err(obstacle) => return Err(obstacle.into()),
        };
        let run = match begun {
            Begun::Run(run) => run,
            Begun::Replay(replayed) => return self.replay(event, &replayed, limits).await,
        };
        let invocation = Invocation::new(payload, run.claim().clone(), context);
        // The call itself is inside, too: a handler may panic before it returns its future.
        let handling = Box::pin(async move { handler.call(invocation).await });
        let handling = AssertUnwindSafe(handling).catch_unwind();
        match run.within(end, handling).await {
            Some(Ok(result)) => self.end(&once, run, event, result, limits).await,
            Some(Err(_)) => {
                ending(times, run.panicked()).await;
                Err(InvokeError::Panicked.into())
            }
            None => Err(run.timed_out(times).await.into()),
        }
    }

    /// Ends the run as the handler's result asks.
    async fn end<R: Serialize>(
        &self,
        once: &Idempotency,
        run: Run,
        event: &RawValue,
        result: Result<R, E>,
        limits: Option<Times>,
    ) -> Result<Box<RawValue>, Unanswered<E>> {
        let (disposition, answer) = match result {
            Ok(value) => {
                // The text that is stored is the one that is answered.
                let text = to_json(&value);
                let disposition = run.completion(|| text.clone());
                (disposition, Ok(text))
            }
            Err(error) => {
                once.log_error(run.claim(), &error);
                self.show(event, &error);
                let is_permanent = is_permanent(self.permanent.as_ref(), &error);
                (Disposition::of_error(&error, is_permanent), Err(error))
            }
        };
        match run.ended(disposition).await {
            Ok(Ended::Replay(replayed)) => self.replay(event, &replayed, limits).await,
            Ok(_) => match answer {
                Ok(_) if self.settings.without_answer => Ok(nothing()),
                Ok(Ok(text)) => RawValue::from_string(text).map_err(|error| {
                    let reason = format!("the answer is no JSON (column {})", error.column());
                    Error::Unreadable(reason).into()
                }),
                // The work is done, and so it is for the next delivery, which gets the same error.
                Ok(Err(reason)) => Err(Error::OutcomeOmitted {
                    reason,
                    completed_at: None,
                    handler_ran: true,
                }
                .into()),
                Err(error) => Err(self.handler_failed(error)),
            },
            // The condition of a business write did not hold, and the handler may have an error of
            // its own for that.
            Err(Error::Refused(refusal)) => match refusal.into_answer::<E>() {
                Ok(error) => Err(self.handler_failed(error)),
                Err(refusal) => Err(Error::Refused(refusal).into()),
            },
            Err(obstacle) => Err(obstacle.into()),
        }
    }

    /// Returns the stored answer, byte for byte unless the hook changes it.
    async fn replay(
        &self,
        event: &RawValue,
        replayed: &Replayed,
        limits: Option<Times>,
    ) -> Result<Box<RawValue>, Unanswered<E>> {
        if self.settings.without_answer {
            let IgnoredAny = replayed.decode()?;
            return Ok(nothing());
        }
        let stored: Box<RawValue> = replayed.decode()?;
        let Some(hook) = &self.on_replay else {
            return Ok(stored);
        };
        let input = (event.to_owned(), stored.clone(), replayed.replay);
        let changed = hook::answer(hook, "on_replay", input, limits).await;
        Ok(changed.unwrap_or(stored))
    }

    fn handler_failed(&self, error: E) -> Unanswered<E> {
        let rejection = is_permanent(self.permanent.as_ref(), &error).then_some(Rejection::Failed);
        let error = InvokeError::Handler(error);
        Unanswered { error, rejection }
    }

    /// Shows an error to the layer's hook. A panic of the hook doesn't change how the run ends.
    fn show(&self, event: &RawValue, error: &E) {
        if let Some(hook) = &self.on_error
            && catch_unwind(AssertUnwindSafe(|| hook(event, error))).is_err()
        {
            hook::failed("on_error", "it panicked");
        }
    }

    fn operation(&self, context: &Context) -> Arc<str> {
        match (&self.operation, context.env_config.function_name.as_str()) {
            (Some(operation), _) => Arc::clone(operation),
            (None, "") => UNNAMED.into(),
            (None, name) => name.into(),
        }
    }
}

/// Puts an answer into the reply that the source reads.
fn replied(reply: Option<&Reply>, answer: Box<RawValue>) -> Box<RawValue> {
    match reply {
        Some(reply) => reply.succeeded(&answer),
        None => answer,
    }
}

/// Makes the answer where none is asked for.
fn nothing() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

type OnError<E> = Arc<dyn Fn(&RawValue, &E) + Send + Sync>;

/// Holds the settings of a layer.
pub(super) struct Config<T, E> {
    pub(super) once: Idempotency,
    pub(super) operation: Option<Arc<str>>,
    pub(super) reader: Reader<T>,
    pub(super) permanent: Option<Permanent<E>>,
    pub(super) settings: Settings,
    pub(super) source_retention: Option<SourceRetention>,
    pub(super) on_rejected: Option<AnswerHook<(Box<RawValue>, Rejection)>>,
    pub(super) on_replay: Option<ReplayHook>,
    pub(super) on_error: Option<OnError<E>>,
}

clone_fields!([T, E] Config<T, E> {
    once, operation, reader, permanent, settings, source_retention, on_rejected, on_replay, on_error
});

impl<T, E> fmt::Debug for Config<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("source", &self.reader.kind)
            .field("operation", &self.operation)
            .field("key", &self.reader.key)
            .field("settings", &self.settings)
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

debug_fields!([T, E, Svc] InvokeService<T, E, Svc> { config });

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
    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), InvokeError<E>>> {
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

/// Holds one event: its decoded payload, the claim of its handler, and the invocation's context.
#[non_exhaustive]
pub struct Invocation<T> {
    /// The payload, decoded from JSON. It is the handler's own: changing it changes neither the key
    /// nor the fingerprint.
    pub payload: T,
    /// The right to run, with keys for effects outside and the time that is left.
    pub claim: Claim,
    /// The context of this invocation, as Lambda gives it.
    pub context: Context,
}

impl<T> Invocation<T> {
    pub(crate) fn new(payload: T, claim: Claim, context: Context) -> Self {
        Self {
            payload,
            claim,
            context,
        }
    }
}

clone_fields!([T: Clone] Invocation<T> { payload, claim, context });

/// Shows the request id and the claim: the payload is not for logs.
impl<T> fmt::Debug for Invocation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("request_id", &self.context.request_id)
            .field("key", &self.claim.key_hash())
            .field("attempt", &self.claim.attempt())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    use crate::invoke::InvokeLayer;
    use crate::protocol::fingerprint::Fingerprint;
    use crate::store::MemoryStore;

    const EVENT: &str = include_str!("../../tests/fixtures/s3-batch-v2.json");

    /// Takes any event, and panics where it is told to.
    struct Payload;

    impl<'de> Deserialize<'de> for Payload {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let event = Value::deserialize(deserializer)?;
            assert_ne!(event, "no decoder");
            Ok(Self)
        }
    }

    type Layer = InvokeLayer<Payload, io::Error>;

    fn once() -> Idempotency {
        let builder = Idempotency::builder(MemoryStore::new()).namespace("tests");
        builder.build().unwrap()
    }

    fn direct() -> Layer {
        Layer::new(once()).key(|_| "7".to_owned())
    }

    /// Serves an event, whose handler must not run.
    async fn served<T: DeserializeOwned + Send + 'static>(
        layer: InvokeLayer<T, io::Error>,
        event: &str,
    ) -> Result<Box<RawValue>, InvokeError<io::Error>> {
        let mut function = layer.handler(|_| async { Err::<u8, _>(io::Error::other("it ran")) });
        let event = RawValue::from_string(event.to_owned()).unwrap();
        let event = LambdaEvent::new(event, Context::default());
        function.call(event).await
    }

    #[tokio::test]
    async fn a_panic_of_what_reads_the_event_is_an_error_and_nothing_runs() {
        for (layer, event) in [
            (direct(), r#""no decoder""#),
            (direct().key(|_| -> String { panic!("no key") }), "1"),
            (direct().raw_id(|_| -> String { panic!("no id") }), "1"),
            (direct().scope(|_| -> String { panic!("no scope") }), "1"),
            (
                direct().fingerprint(|_| -> Option<Fingerprint> { panic!("no fingerprint") }),
                "1",
            ),
            (
                direct().retention(|_| -> Option<Duration> { panic!("no retention") }),
                "1",
            ),
        ] {
            let served = served(layer, event).await;
            assert_matches!(served, Err(InvokeError::Panicked));
        }
    }

    #[tokio::test]
    async fn a_panic_of_what_reads_the_event_is_a_result_of_an_s3_batch_task() {
        let layer = InvokeLayer::s3_batch(once()).key(|_| -> String { panic!("no key") });
        let reply = served(layer, EVENT).await.unwrap();
        let reply: Value = serde_json::from_str(reply.get()).unwrap();
        let result = &reply["results"][0];
        assert_eq!(result["resultCode"], "TemporaryFailure");
        let text = result["resultString"].as_str().unwrap();
        assert!(text.starts_with("Idempotency.Panicked: "), "{text}");
    }
}
