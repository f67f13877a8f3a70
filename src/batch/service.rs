//! Runs a batch: plans its messages, runs them through the engine, calls the hooks, makes the
//! reply.

use std::fmt::Display;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lambda_runtime::{Diagnostic, LambdaEvent};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tower::Service;
use tracing::Instrument;

use crate::batch::Source;
use crate::batch::hooks::{Hooks, Kept, OnError};
use crate::batch::message::Message;
use crate::batch::reader::{Planned, Planner, Reader, Ready, Turn};
use crate::batch::report::{
    Fate, Reason, differing, distinct, ids, log_batch, misconfigured, reported, unknown,
};
use crate::batch::run::MessageRun;
use crate::batch::settings::Settings;
use crate::batch::turns::{Turns, is_over, limits, set};
use crate::engine::permanent::Permanent;
use crate::engine::time::Times;
use crate::engine::{GROUP, Place};
use crate::idempotency::Idempotency;
use crate::idempotency::source_retention::SourceRetention;
use crate::protocol::key::Key;
use crate::window::{Seen, Window};

/// The number of runs of a batch that may end at once, where fewer handlers run at once.
const ENDINGS: usize = 4 * GROUP;

/// Holds the settings of a layer.
pub(super) struct Config<Src: Source, T, E> {
    pub(super) once: Idempotency,
    pub(super) operation: Option<Arc<str>>,
    pub(super) reader: Reader<Src, T>,
    pub(super) settings: Settings,
    pub(super) source_retention: Option<SourceRetention>,
    pub(super) permanent: Option<Permanent<E>>,
    pub(super) hooks: Hooks<Src>,
    pub(super) on_error: Option<OnError<Src::Record, E>>,
}

clone_fields!([Src: Source, T, E] Config<Src, T, E> {
    once, operation, reader, settings, source_retention, permanent, hooks, on_error
});

debug_fields!([Src: Source, T, E] Config<Src, T, E> { operation, reader, settings });

/// Serves batches with a service of one [`Message`]. [`BatchLayer`](super::BatchLayer) makes it.
///
/// The reply names the messages that the source is to deliver again, in the order of the batch and
/// each once; [the module](super#what-the-reply-names) says which these are.
#[must_use = "a service does nothing until it is run"]
pub struct BatchService<Src: Source, T, E, Svc> {
    pub(super) config: Config<Src, T, E>,
    pub(super) handler: Svc,
}

clone_fields!([Src: Source, T, E, Svc: Clone] BatchService<Src, T, E, Svc> { config, handler });

debug_fields!([Src: Source, T, E, Svc] BatchService<Src, T, E, Svc> { config });

/// The reason why a whole batch failed: Lambda counts an error, and has each message delivered again.
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
    /// The store or the layer is not set up as it must be, or the function lacks a permission, and
    /// no message could be acknowledged; handlers may have run. Item failures alone would leave
    /// Lambda's `Errors` metric at zero while every message goes to the dead-letter queue.
    #[error("no message could be acknowledged: {reason}")]
    Misconfigured {
        /// The reason says what must be corrected.
        reason: String,
    },
    /// Some messages must be delivered again, and the layer doesn't reply with
    /// [item failures](super::Settings::without_item_failures).
    #[error("{failed} of {messages} messages must be delivered again, so the batch fails as a whole{}", see!("batch-incomplete"))]
    Incomplete {
        /// The number of messages that are not done, each id counted once.
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

impl<Src, T, E, Svc> Service<LambdaEvent<Src>> for BatchService<Src, T, E, Svc>
where
    Src: Source,
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

    fn call(&mut self, event: LambdaEvent<Src>) -> Self::Future {
        let LambdaEvent { payload, context } = event;
        let messages = payload.records();
        let span = Src::batch_span(&messages, &context);
        let run = self.clone().process(messages, context.deadline());
        Box::pin(run.instrument(span))
    }
}

impl<Src, T, E, Svc> BatchService<Src, T, E, Svc>
where
    Src: Source,
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
        let settings = &config.settings;
        if let (Some(source), None) = (&config.source_retention, &config.reader.retention) {
            source.check(&once);
        }
        let mut kept = config.hooks.keep(ids, &messages, once.remaining());

        let remaining = once.remaining();
        let (stop, times) = remaining.map(|left| limits(left, settings.reserve)).unzip();
        // A message that outlives the deadline is still to be ended.
        let store_end = times.map(|times| times.give_up);
        let store_end = store_end.filter(|_| !once.goes_on());
        let keeps_failures = config.hooks.on_rejected.is_some();
        let is_grouped = !settings.single_writes;
        let once = once.batch(is_grouped, messages.len(), store_end, keeps_failures);
        let fates = run_all(&config, &once, stop, times, handler, messages, &mut kept).await;

        for (id, reason) in reported(&kept.ids, &fates) {
            reason.log(Src::NAME, id);
        }
        let failed = distinct(reported(&kept.ids, &fates).map(|(id, _)| id));
        log_batch(Src::NAME, fates.len(), kept.rejected(&fates), failed.len());
        let concurrency = settings.concurrency.max(1);
        config.hooks.defer(kept, &fates, concurrency).await;
        if let Some(reason) = misconfigured(&fates) {
            return Err(BatchError::Misconfigured { reason });
        }
        let whole = settings.without_item_failures || !Src::READS_REPLY;
        if whole && !failed.is_empty() {
            return Err(BatchError::Incomplete {
                failed: failed.len(),
                messages: fates.len(),
            });
        }
        Ok(Src::reply(failed))
    }
}

/// Returns whether a message probably has a record, because it is delivered again, or because its key is
/// that of an earlier one: a read that finds the record is cheaper than a write that fails.
fn is_repeated<Src: Source, T>(message: &Ready<Src, T>, window: &Window) -> bool {
    message.is_second
        || match (Src::deliveries(&message.received.1), &message.identity.key) {
            (Some(deliveries), _) => deliveries > 1,
            (None, Some(key)) => window.insert(key) != Seen::No,
            (None, None) => false,
        }
}

/// Runs the messages, each when its turn has come and a place is free, and offers those that are
/// rejected to the hook; returns the fate of each.
async fn run_all<Src, T, E, Svc>(
    config: &Config<Src, T, E>,
    once: &Idempotency,
    stop: Option<Instant>,
    times: Option<Times>,
    handler: Svc,
    messages: Vec<Src::Record>,
    kept: &mut Kept<Src>,
) -> Vec<Fate>
where
    Src: Source,
    E: Display + 'static,
    Svc: Service<Message<Src, T>, Error = E> + Clone,
    Svc::Response: Serialize,
{
    let mut fates = unknown(messages.len());
    let mut turns = Turns::of(&config.settings.order.groups::<Src>(&messages));
    // A semaphore has an upper bound, which "no limit" would exceed.
    let concurrency = config.settings.concurrency.clamp(1, messages.len().max(1));
    let places = Arc::new(Semaphore::new(concurrency));
    let endings = Arc::new(Semaphore::new(concurrency.max(ENDINGS)));
    // Switched off, or only observing, means as if nothing were there: no two messages are taken
    // for one.
    let identify = (!once.is_passive()).then_some(|key: &Key| once.record_id(key));
    let operation = config.operation.as_ref();
    let mut planner = Planner::new(messages.len(), operation, &config.reader, identify);
    let mut messages: Vec<_> = messages.into_iter().map(Some).collect();
    let mut running = FuturesUnordered::new();
    let mut free = None;
    loop {
        if free.is_none() && !turns.is_empty() {
            free = places.clone().try_acquire_owned().ok();
        }
        let next = if let Some(permit) = free.take() {
            let position = turns.take().unwrap_or_default();
            let Some(message) = messages.get_mut(position).and_then(Option::take) else {
                continue;
            };
            // It may have had a fate before a message was taken.
            set(&mut fates, position, Fate::Reported(Reason::NotRun));
            let turn = Turn {
                position,
                message,
                payload: None,
            };
            if !is_over(stop)
                && let Some((fetch, pointer)) = config.reader.pointer(&turn.message)
            {
                let fetch = fetch.clone();
                running.push(Box::pin(Either::Left(async move {
                    let fetched = fetch.answer(pointer, stop).await;
                    let payload = Some(fetched.map_err(|why| Reason::NotFetched(why.into_owned())));
                    Next::Turn(Turn { payload, ..turn }, permit)
                })));
                continue;
            }
            Next::Turn(turn, permit)
        } else {
            next(&mut running, &places, !turns.is_empty()).await
        };
        let (position, fate) = match next {
            Next::Ended(ended) => ended,
            // No message starts from now on, so this one is not decoded.
            Next::Turn(turn, _) if is_over(stop) => {
                (turn.position, Fate::Reported(Reason::OutOfTime))
            }
            Next::Turn(turn, permit) => match (turn.position, planner.plan(turn, &fates)) {
                (_, Planned::ToRun(message)) => {
                    let is_repeated = is_repeated(&message, &config.settings.window);
                    let run = MessageRun {
                        once: once.clone().read_first(is_repeated),
                        handler: handler.clone(),
                        permanent: config.permanent.clone(),
                        keys: config.reader.key.clone(),
                        on_error: config.on_error.clone(),
                        stop,
                        times,
                        // No more fetched payloads are in memory than messages run side by side.
                        place: Place::new(&places, permit, stop, message.is_fetched),
                        endings: Arc::clone(&endings),
                        message,
                    };
                    running.push(Box::pin(Either::Right(run.run().map(Next::Ended))));
                    continue;
                }
                (position, Planned::Differs(leader, message)) => {
                    set(&mut messages, position, Some(message));
                    (position, Fate::Reported(Reason::Mismatch { leader }))
                }
                (position, Planned::Decided(fate)) => (position, fate),
            },
            Next::Free(permit) => {
                free = permit;
                continue;
            }
            Next::Nothing => {
                let differing = differing(&fates);
                if differing.is_empty() {
                    let taken = config.hooks.offer(kept, &mut fates, concurrency).await;
                    if taken.is_empty() {
                        return fates;
                    }
                    for &position in &taken {
                        turns.done(position);
                    }
                    for (position, fate) in fates.iter().enumerate() {
                        if matches!(fate, Fate::Follows(leader) if taken.contains(leader)) {
                            turns.done(position);
                        }
                    }
                }
                for position in differing {
                    turns.give(position);
                }
                continue;
            }
        };
        end(&mut fates, &mut turns, position, fate);
    }
}

/// The next thing that happens to the messages of a batch.
enum Next<R> {
    /// A message is to run in this place.
    Turn(Turn<R>, OwnedSemaphorePermit),
    Ended((usize, Fate)),
    Free(Option<OwnedSemaphorePermit>),
    /// None runs.
    Nothing,
}

async fn next<R>(
    running: &mut FuturesUnordered<impl Future<Output = Next<R>>>,
    places: &Arc<Semaphore>,
    wants_place: bool,
) -> Next<R> {
    let next = running.next();
    if !wants_place {
        return next.await.unwrap_or(Next::Nothing);
    }
    match select(next, pin!(places.clone().acquire_owned())).await {
        Either::Left((Some(next), _)) => next,
        Either::Left((None, free)) => Next::Free(free.await.ok()),
        Either::Right((free, _)) => Next::Free(free.ok()),
    }
}

/// Notes the fate of a message, and gives those behind it their turn, or theirs.
fn end(fates: &mut [Fate], turns: &mut Turns, position: usize, fate: Fate) {
    let is_done = match &fate {
        Fate::Done => true,
        Fate::Reported(_) => false,
        Fate::Follows(leader) => match fates.get(*leader) {
            Some(Fate::Done) => true,
            Some(Fate::Reported(Reason::NotRun)) => {
                turns.wait_for(*leader, position);
                return set(fates, position, fate);
            }
            _ => false,
        },
    };
    set(fates, position, fate);
    if is_done {
        turns.done(position);
    } else {
        for stopped in turns.stopped(position) {
            set(fates, stopped, Fate::Reported(Reason::GroupStopped));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends the first message of a batch, then the second as a duplicate of it, and gives the fate of
    /// the third, which is behind the second in its group, where it is known.
    fn behind_a_duplicate_of(fate: Fate) -> (Option<usize>, Fate) {
        let groups = ["a", "b", "b"].map(|group| Some(group.to_owned()));
        let mut turns = Turns::of(&groups);
        let mut fates = unknown(3);
        while turns.take().is_some() {}
        end(&mut fates, &mut turns, 0, fate);
        end(&mut fates, &mut turns, 1, Fate::Follows(0));
        (turns.take(), fates.remove(2))
    }

    #[test]
    fn a_group_goes_on_behind_a_duplicate_of_what_is_done_and_of_nothing_else() {
        let (next, _) = behind_a_duplicate_of(Fate::Done);
        assert_eq!(next, Some(2));
        let (next, fate) = behind_a_duplicate_of(Fate::Reported(Reason::Panicked));
        assert_eq!(next, None);
        assert_matches!(fate, Fate::Reported(Reason::GroupStopped));
    }
}
