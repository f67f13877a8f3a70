//! The batch as a service: down once, up once.

use std::fmt::{self, Display};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::future::{Either, ready, select};
use futures_util::{StreamExt, stream};
use lambda_runtime::{Diagnostic, LambdaEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::Service;
use tracing::Instrument;

use crate::engine::LEAST_STORE_TIME;
use crate::idempotency::Idempotency;
use crate::key::Key;
use crate::sqs::aftermath::Aftermath;
use crate::sqs::batch::{Fate, ids, reply, reported, stop_groups, unknown};
use crate::sqs::key::KeySource;
use crate::sqs::message::Message;
use crate::sqs::pace::Pace;
use crate::sqs::plan::{Order, Planned, Planner};
use crate::sqs::report::{Reason, log_batch};
use crate::sqs::rounds::{anchor, in_rounds};
use crate::sqs::run::{Permanent, Run};
use crate::sqs::trace;
use crate::store::{GROUP, Grouped, Sending, Store};

/// What the layer was told.
pub(super) struct Config<S, T, E> {
    pub(super) once: Idempotency<S>,
    pub(super) operation: Option<Arc<str>>,
    pub(super) key: KeySource<T>,
    pub(super) permanent: Option<Permanent<E>>,
    pub(super) concurrency: usize,
    pub(super) order: Order,
    pub(super) reserve: Option<Duration>,
    pub(super) single_writes: bool,
    pub(super) aftermath: Aftermath,
}

impl<S, T, E> Clone for Config<S, T, E> {
    fn clone(&self) -> Self {
        Self {
            once: self.once.clone(),
            operation: self.operation.clone(),
            key: self.key.clone(),
            permanent: self.permanent.clone(),
            concurrency: self.concurrency,
            order: self.order,
            reserve: self.reserve,
            single_writes: self.single_writes,
            aftermath: self.aftermath.clone(),
        }
    }
}

impl<S, T, E> fmt::Debug for Config<S, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("operation", &self.operation)
            .field("key", &self.key)
            .field("concurrency", &self.concurrency)
            .field("order", &self.order)
            .field("single_writes", &self.single_writes)
            .finish_non_exhaustive()
    }
}

/// A service of `LambdaEvent<SqsEvent>`, made of a service of one [`Message`]. [`BatchLayer`](super::BatchLayer) makes it.
///
/// The reply names the messages that SQS is to deliver again, in the order of the batch and each once;
/// [the module](super) says which these are.
#[must_use = "a service does nothing until it is run"]
pub struct BatchService<S, T, E, Svc> {
    pub(super) config: Config<S, T, E>,
    pub(super) handler: Svc,
}

impl<S, T, E, Svc: Clone> Clone for BatchService<S, T, E, Svc> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            handler: self.handler.clone(),
        }
    }
}

impl<S, T, E, Svc> fmt::Debug for BatchService<S, T, E, Svc> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchService").field(&self.config).finish()
    }
}

/// Why a whole batch failed: Lambda then has every message of it delivered again. Nothing ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A message has no id, so it could not be reported: left out of the reply, it would be deleted unprocessed.
    #[error(
        "message {position} of the batch has no messageId, so that it could not be reported: send events as SQS makes them"
    )]
    MessageWithoutId {
        /// Its place in the batch, from 0.
        position: usize,
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

impl<S, T, E, Svc> Service<LambdaEvent<SqsEvent>> for BatchService<S, T, E, Svc>
where
    S: Store,
    T: DeserializeOwned + Send + 'static,
    E: Display + Send + 'static,
    Svc: Service<Message<T>, Error = E> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Response: Serialize + Send + Sync + 'static,
{
    type Response = SqsBatchResponse;
    type Error = BatchError;
    type Future = Pin<Box<dyn Future<Output = Result<SqsBatchResponse, BatchError>> + Send>>;

    /// Always: each message waits for a clone of the handler of its own.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BatchError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<SqsEvent>) -> Self::Future {
        let span = trace::of_batch(&event.payload.records, &event.context);
        Box::pin(self.clone().process(event).instrument(span))
    }
}

impl<S, T, E, Svc> BatchService<S, T, E, Svc>
where
    S: Store,
    T: DeserializeOwned + Send + 'static,
    E: Display + Send + 'static,
    Svc: Service<Message<T>, Error = E> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Response: Serialize + Send + Sync + 'static,
{
    async fn process(self, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, BatchError> {
        let Self { config, handler } = self;
        let (SqsEvent { records, .. }, context) = event.into_parts();
        let ids = ids(&records).map_err(|position| BatchError::MessageWithoutId { position })?;
        // A queue wants to know that the work is done, not what came of it.
        let once = config.once.deadline(context.deadline()).unread();
        let kept = config.aftermath.keep(&records, once.remaining());
        let groups = config.order.groups(&records);
        let mut fates = unknown(records.len());

        let stop_at = Pace::stop_at(once.remaining(), config.reserve);
        let (group, sending) = if config.single_writes {
            (config.concurrency, Sending::Alone)
        } else {
            (GROUP, Sending::InGroups)
        };
        let pace = Arc::new(Pace::new(config.concurrency, group, fates.len(), stop_at));
        let grouped = once.grouped(sending, records.len());
        let driven = grouped.clone();
        let planned = plan(&config, &once, &pace, records, &groups);
        let runs = run_all(
            grouped,
            &config,
            Arc::clone(&pace),
            handler,
            planned,
            &mut fates,
        );
        let _anchor = stop_at.map(|_| anchor(LEAST_STORE_TIME));
        // The runs are polled first: whoever is ready to write has joined the group before it leaves.
        let all = async {
            match select(pin!(runs), pin!(driven.store().drive())).await {
                Either::Left(((), _)) => {}
                Either::Right((never, _)) => match never {},
            }
        };
        in_rounds(all).await;
        stop_groups(&mut fates, &groups);

        let rejected = config
            .aftermath
            .settle(kept, &mut fates, config.concurrency)
            .await;
        for (id, reason) in reported(&ids, &fates) {
            reason.log(id);
        }
        let reply = reply(reported(&ids, &fates).map(|(id, _)| id));
        log_batch(ids.len(), rejected, reply.batch_item_failures.len());
        Ok(reply)
    }
}

/// What is to become of each message: looked at one by one, as somebody asks.
fn plan<'a, S, T, E>(
    config: &'a Config<S, T, E>,
    once: &'a Idempotency<S>,
    pace: &'a Pace,
    records: Vec<SqsMessage>,
    groups: &'a [Option<String>],
) -> impl Iterator<Item = (usize, Planned<T>)>
where
    S: Store,
    T: DeserializeOwned,
{
    let planner = Planner {
        operation: config.operation.as_ref(),
        source: &config.key,
        // Switched off, or only observing, means as if nothing were there: no two messages are taken for one.
        identify: |key: &Key| (!once.is_passive()).then(|| once.record_id(key)),
    };
    let mut planning = planner.begin(records.len());
    let records = records.into_iter().zip(groups).enumerate();
    records.map(move |(position, (message, group))| {
        if pace.is_over() {
            // Nothing starts any more, so nobody has to know what it is.
            return (
                position,
                Planned::Decided(Fate::Reported(Reason::OutOfTime)),
            );
        }
        (position, planning.next(position, message, group.as_deref()))
    })
}

/// Runs the messages, and notes what becomes of each.
async fn run_all<S, T, E, Svc>(
    once: Idempotency<Grouped<S>>,
    config: &Config<S, T, E>,
    pace: Arc<Pace>,
    handler: Svc,
    planned: impl Iterator<Item = (usize, Planned<T>)>,
    fates: &mut [Fate],
) where
    S: Store,
    E: Display + 'static,
    Svc: Service<Message<T>, Error = E> + Clone,
    Svc::Response: Serialize,
{
    // One group runs while the next waits for its claims.
    let window = config.concurrency.max(pace.group()) + pace.group();
    let permanent = config.permanent.clone();
    let mut made = 0;
    // Made one by one, as the stream asks for them: no more messages are decoded, and no more futures made, than fit into the
    // window. Boxed, since a future of several kilobytes would be moved again and again on its way among those that run.
    let runs = planned.map(move |(position, planned)| match planned {
        Planned::Decided(fate) => Either::Left(ready((position, fate))),
        Planned::ToRun(message) => {
            let run = Run {
                once: once.clone(),
                handler: handler.clone(),
                permanent: permanent.clone(),
                pace: Arc::clone(&pace),
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
