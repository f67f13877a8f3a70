//! Runs a batch: plans its messages, runs them through the engine, calls the hooks, makes the
//! reply.

use std::fmt::{self, Display};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, ready, select};
use futures_util::{StreamExt, stream};
use lambda_runtime::{Diagnostic, LambdaEvent};
use serde::Serialize;
use tower::Service;
use tracing::Instrument;

use crate::batch::Source;
use crate::batch::fate::{Fate, distinct, ids, misconfigured, reported, stop_groups, unknown};
use crate::batch::gate::{Gate, Times};
use crate::batch::hooks::Hooks;
use crate::batch::message::Message;
use crate::batch::order::Order;
use crate::batch::plan::{Planned, Planner};
use crate::batch::reader::Reader;
use crate::batch::redelivered::Redelivered;
use crate::batch::report::{Reason, log_batch};
use crate::batch::run::{MessageRun, Permanent};
use crate::batch::watched::{OnError, Watched};
use crate::engine::GROUP;
use crate::idempotency::Idempotency;
use crate::idempotency::source_retention::SourceRetention;
use crate::protocol::key::Key;
use crate::store::Store;

/// Holds the settings of a layer.
pub(super) struct Config<Src: Source, S, T, E> {
    pub(super) once: Idempotency<S>,
    pub(super) operation: Option<Arc<str>>,
    pub(super) reader: Reader<Src, T>,
    pub(super) source_retention: Option<SourceRetention>,
    pub(super) permanent: Option<Permanent<E>>,
    pub(super) concurrency: usize,
    pub(super) order: Order,
    pub(super) reserve: Option<Duration>,
    pub(super) single_writes: bool,
    /// A batch that isn't done as a whole fails as a whole.
    pub(super) whole: bool,
    pub(super) redelivered: Arc<Redelivered>,
    pub(super) hooks: Hooks<Src>,
    pub(super) on_error: Option<OnError<Src::Record, E>>,
}

clone_fields!([Src: Source, S, T, E] Config<Src, S, T, E> {
    once, operation, reader, source_retention, permanent, concurrency, order, reserve, single_writes, whole, redelivered, hooks, on_error
});

impl<Src: Source, S, T, E> fmt::Debug for Config<Src, S, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("operation", &self.operation)
            .field("reader", &self.reader)
            .field("concurrency", &self.concurrency)
            .field("order", &self.order)
            .field("single_writes", &self.single_writes)
            .finish_non_exhaustive()
    }
}

/// Serves batches with a service of one [`Message`]. [`BatchLayer`](super::BatchLayer) makes it.
///
/// The reply names the messages that the source is to deliver again, in the order of the batch and
/// each once; [the module](super#what-the-reply-names) says which these are.
#[must_use = "a service does nothing until it is run"]
pub struct BatchService<Src: Source, S, T, E, Svc> {
    pub(super) config: Config<Src, S, T, E>,
    pub(super) handler: Svc,
}

clone_fields!([Src: Source, S, T, E, Svc: Clone] BatchService<Src, S, T, E, Svc> { config, handler });

impl<Src: Source, S, T, E, Svc> fmt::Debug for BatchService<Src, S, T, E, Svc> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchService").field(&self.config).finish()
    }
}

/// Says why a whole batch failed: Lambda counts an error, and has each message delivered again.
/// Those that are done are replayed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A message has no id, so it can't be reported: left out of the reply, it would be deleted
    /// unprocessed.
    #[error(
        "message {position} of the batch has no id, so that it could not be reported: send events as their source makes them{}", see!("message-without-id")
    )]
    MessageWithoutId {
        /// Its place in the batch, from 0.
        position: usize,
    },
    /// The store is not set up as it is configured, or the function lacks a permission, and no
    /// message was done. Item failures alone would leave Lambda's `Errors` metric at zero while
    /// every message goes to the dead-letter queue.
    #[error("no message was done: {reason}")]
    Misconfigured {
        /// The reason says what must be corrected.
        reason: String,
    },
    /// Some messages must come again, and the layer doesn't reply with
    /// [item failures](super::BatchLayer::without_item_failures).
    #[error("{failed} of {messages} messages must come again, so the batch fails as a whole{}", see!("batch-incomplete"))]
    Incomplete {
        /// The number of messages that are not done.
        failed: usize,
        /// The number of messages in the batch.
        messages: usize,
    },
}

impl From<BatchError> for Diagnostic {
    fn from(error: BatchError) -> Self {
        Self {
            error_type: "BatchError".to_owned(),
            error_message: error.to_string(),
        }
    }
}

impl<Src, S, T, E, Svc> Service<LambdaEvent<Src::Event>> for BatchService<Src, S, T, E, Svc>
where
    Src: Source,
    S: Store,
    T: Send + 'static,
    E: Display + Send + 'static,
    Svc: Service<Message<Src, T>, Error = E> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Response: Serialize + Send + Sync + 'static,
{
    type Response = Src::Reply;
    type Error = BatchError;
    type Future = Pin<Box<dyn Future<Output = Result<Src::Reply, BatchError>> + Send>>;

    /// Is always ready: each message waits for its own clone of the handler.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BatchError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<Src::Event>) -> Self::Future {
        let LambdaEvent { payload, context } = event;
        let messages = Src::records(payload);
        let span = Src::batch_span(&messages, &context);
        let run = self.clone().process(messages, context.deadline());
        Box::pin(run.instrument(span))
    }
}

impl<Src, S, T, E, Svc> BatchService<Src, S, T, E, Svc>
where
    Src: Source,
    S: Store,
    T: Send + 'static,
    E: Display + Send + 'static,
    Svc: Service<Message<Src, T>, Error = E> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Response: Serialize + Send + Sync + 'static,
{
    async fn process(
        self,
        messages: Vec<Src::Record>,
        deadline: SystemTime,
    ) -> Result<Src::Reply, BatchError> {
        let Self { config, handler } = self;
        let ids = ids::<Src>(&messages);
        let ids = ids.map_err(|position| BatchError::MessageWithoutId { position })?;
        let once = config.once.deadline(deadline);
        if let (Some(source), None) = (&config.source_retention, &config.reader.retention) {
            source.check(&once);
        }
        let marks = config.redelivered.marks::<Src>(&messages);
        let kept = config.hooks.keep(&messages, once.remaining());
        let groups = config.order.groups::<Src>(&messages);
        let mut fates = unknown(messages.len());

        let times = Times::of(once.remaining(), config.reserve);
        let group = if config.single_writes {
            config.concurrency
        } else {
            GROUP
        };
        let gate = Arc::new(Gate::new(config.concurrency, group, fates.len(), times));
        let store_end = times.map(|times| times.give_up);
        let (once, batch) = once.batch(!config.single_writes, messages.len(), store_end);
        let planned = plan(&config, &once, &gate, messages, &groups);
        let handler = Watched {
            logs: once.logs_errors(),
            on_error: config.on_error.clone(),
            handler,
        };
        let runs = run_all(&once, &config, &gate, handler, planned, &mut fates);
        // The runs are polled first, so that each write that is ready joins the group before it
        // leaves.
        match select(pin!(runs), pin!(batch.drive(once.store()))).await {
            Either::Left(((), _)) => {}
            Either::Right((never, _)) => match never {},
        }
        stop_groups(&mut fates, &groups);

        let hooks = config.hooks.run(kept, &ids, &mut fates, config.concurrency);
        let rejected = hooks.await;
        for (id, reason) in reported(&ids, &fates) {
            reason.log(Src::NAME, id);
        }
        let failed = distinct(reported(&ids, &fates).map(|(id, _)| id));
        log_batch(Src::NAME, ids.len(), rejected, failed.len());
        // A source that goes back to a checkpoint delivers what comes after it again, too.
        if let Some(first) = failed.first() {
            let from_first = ids.iter().zip(marks).skip_while(|(id, _)| *id != first);
            config
                .redelivered
                .remember(from_first.map(|(_, mark)| mark));
        }
        if let Some(reason) = misconfigured(&fates) {
            let reason = reason.to_owned();
            return Err(BatchError::Misconfigured { reason });
        }
        if config.whole && !failed.is_empty() {
            return Err(BatchError::Incomplete {
                failed: failed.len(),
                messages: ids.len(),
            });
        }
        Ok(Src::reply(failed))
    }
}

/// Decodes and classifies the messages lazily, as the stream of runs pulls them.
fn plan<'a, Src, S, T, E>(
    config: &'a Config<Src, S, T, E>,
    once: &'a Idempotency<S>,
    gate: &'a Gate,
    messages: Vec<Src::Record>,
    groups: &'a [Option<String>],
) -> impl Iterator<Item = (usize, Planned<Src, T>)>
where
    Src: Source,
    S: Store,
{
    // Switched off, or only observing, means as if nothing were there: no two messages are taken
    // for one.
    let identify = (!once.is_passive()).then_some(|key: &Key| once.record_id(key));
    let mut planner = Planner::new(
        messages.len(),
        config.operation.as_ref(),
        &config.reader,
        identify,
    );
    let messages = messages.into_iter().zip(groups).enumerate();
    messages.map(move |(position, (message, group))| {
        if gate.is_over() {
            // No message starts from now on, so this one is not decoded.
            return (
                position,
                Planned::Decided(Fate::Reported(Reason::OutOfTime)),
            );
        }
        (position, planner.plan(position, message, group.as_deref()))
    })
}

/// Runs the messages, and writes the fate of each into its place.
async fn run_all<Src, S, T, E, Svc>(
    once: &Idempotency<S>,
    config: &Config<Src, S, T, E>,
    gate: &Arc<Gate>,
    handler: Svc,
    planned: impl Iterator<Item = (usize, Planned<Src, T>)>,
    fates: &mut [Fate],
) where
    Src: Source,
    S: Store,
    E: Display + 'static,
    Svc: Service<Message<Src, T>, Error = E> + Clone,
    Svc::Response: Serialize,
{
    // One group runs while the next waits for its claims.
    let window = config
        .concurrency
        .max(gate.group)
        .saturating_add(gate.group);
    let mut made = 0;
    // The stream pulls the runs one by one: no more messages are decoded, and no more futures made,
    // than fit into the window. A run is boxed, because a future of several kilobytes would
    // otherwise be moved again and again.
    let runs = planned.map(move |(position, planned)| match planned {
        Planned::Decided(fate) => Either::Left(ready((position, fate))),
        Planned::ToRun(message) => {
            // A repeated delivery probably meets a record. A read that finds it is cheaper than a write
            // that fails.
            let is_repeated = config.redelivered.is_repeated::<Src>(&message.received.1);
            let run = MessageRun {
                once: once.clone().read_first(is_repeated),
                handler: handler.clone(),
                permanent: config.permanent.clone(),
                keys: config.reader.key.clone(),
                gate: Arc::clone(gate),
                index: made,
                message,
            };
            made += 1;
            Either::Right(Box::pin(run.run()))
        }
    });
    let mut running = stream::iter(runs).buffer_unordered(window);
    while let Some((position, fate)) = running.next().await {
        if let Some(slot) = fates.get_mut(position) {
            *slot = fate;
        }
    }
}
