//! Runs one message: claims it, calls the handler, ends the run.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::{Service, ServiceExt};
use tracing::Instrument;

use crate::batch::Source;
use crate::batch::hooks::{OnError, show};
use crate::batch::key::KeyPlace;
use crate::batch::message::Message;
use crate::batch::reader::Ready;
use crate::batch::report::{Fate, Reason};
use crate::batch::turns::is_over;
use crate::engine::claim::to_json;
use crate::engine::error::{Error, Obstacle};
use crate::engine::permanent::{Permanent, is_permanent};
use crate::engine::time::{Times, within};
use crate::engine::{Begun, Disposition, Ended, Place, Replayed, Run};
use crate::idempotency::Idempotency;
use crate::protocol::key::KeyError;
use crate::protocol::key_source::KeySource;

#[cfg(test)]
mod tests;

/// Holds all that one message needs to run, so that its future borrows nothing.
pub(super) struct MessageRun<Src: Source, T, E, Svc> {
    pub(super) once: Idempotency,
    pub(super) handler: Svc,
    pub(super) permanent: Option<Permanent<E>>,
    /// The source of keys says why a message has none.
    pub(super) keys: KeySource<T, Src::Record, KeyPlace>,
    pub(super) on_error: Option<OnError<Src::Record, E>>,
    /// The time from which no handler starts.
    pub(super) stop: Option<Instant>,
    pub(super) times: Option<Times>,
    /// The message's place among those that run side by side.
    pub(super) place: Arc<Place>,
    /// Limits how many runs end at once.
    pub(super) endings: Arc<Semaphore>,
    pub(super) message: Ready<Src, T>,
}

impl<Src, T, E, Svc> MessageRun<Src, T, E, Svc>
where
    Src: Source,
    E: Display + 'static,
    Svc: Service<Message<Src, T>, Error = E>,
    Svc::Response: Serialize,
{
    /// Runs the message; returns its position in the batch, and its fate.
    pub(super) fn run(self) -> impl Future<Output = (usize, Fate)> {
        let position = self.message.position;
        // The handler's own events are inside the message's span.
        let span = Src::record_span(&self.message.received.1);
        // Boxed, because a future of several kilobytes would be moved otherwise.
        let running = Box::pin(self.claim_and_run()).instrument(span);
        // A panic of the caller's code after the handler, in an error's `Display` say, is this
        // message's alone, too.
        AssertUnwindSafe(running)
            .catch_unwind()
            .map(move |fate| (position, fate.unwrap_or(Fate::Reported(Reason::Panicked))))
    }

    async fn claim_and_run(self) -> Fate {
        let identity = self.message.identity;
        let once = self.once.keep_for(identity.retention);
        let once = once.in_place(Arc::clone(&self.place));
        let quotes = once.logs_errors();
        let (mut handler, permanent) = (self.handler, self.permanent.as_ref());
        // A handler that is not ready holds no key, unless the message may wait for another attempt: a ready
        // handler may keep others from being so.
        if !once.waits() {
            match within(self.stop, handler.ready()).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return report(&error, permanent, quotes),
                None => return Fate::Reported(Reason::OutOfTime),
            }
        }
        let run = match once.begin(identity.key, identity.fingerprint).await {
            Ok(Begun::Run(run)) => run,
            Ok(Begun::Replay(replayed)) => return replay(&replayed, quotes),
            Err(Error::Key(KeyError::Missing)) => {
                return refuse(&self.keys.absence().into(), quotes);
            }
            Err(obstacle) => return refuse(&obstacle, quotes),
        };
        match run.within(self.stop, handler.ready()).await {
            Some(Ok(_)) if !is_over(self.stop) && !run.claim().is_over() => {}
            not_ready => {
                // Without a claim, only its end finds out that it is done. Else the message is reported,
                // whether its release succeeds or not.
                if let Ok(Some(replayed)) = run.not_started(None).await {
                    return replay(&replayed, quotes);
                }
                return match not_ready {
                    Some(Err(error)) => report(&error, permanent, quotes),
                    _ => Fate::Reported(Reason::OutOfTime),
                };
            }
        }
        let (body, metadata) = *self.message.received;
        let (once, claim, on_error) = (&once, run.claim(), self.on_error);
        let message: Message<Src, T> = Message {
            body,
            claim: claim.clone(),
            metadata,
            stop_at: self.stop,
        };
        // The call itself is inside, too: a handler may panic before it returns its future.
        let calling = Box::pin(async move {
            let shown = on_error.map(|hook| (hook, message.metadata.clone()));
            handler.call(message).await.inspect_err(|error| {
                once.log_error(claim, error);
                if let Some((hook, metadata)) = &shown {
                    show::<Src, E>(hook, metadata, error);
                }
            })
        });
        let calling = AssertUnwindSafe(calling).catch_unwind();
        let until = self.times.map(|times| times.end);
        let until = until.filter(|_| once.ends_handlers());
        let done = run.within(until, calling).await;
        // Where many runs end, this one keeps its place: a store that is slow to end them holds up the
        // start of others.
        let ending = self.endings.try_acquire();
        if ending.is_ok() {
            self.place.leave();
        }
        // The run's store calls end in time for the other messages' reply.
        match done {
            Some(Ok(result)) => end(run, result, permanent, quotes).await,
            Some(Err(_)) => {
                run.panicked().await;
                Fate::Reported(Reason::Panicked)
            }
            None => match run.timed_out(None).await {
                Error::TimedOut => Fate::Reported(Reason::TimedOut),
                obstacle => refuse(&obstacle, quotes),
            },
        }
    }
}

/// Ends the run as the handler's result asks. `quotes` allows the reason to have the error's text.
async fn end<R: Serialize, E: Display + 'static>(
    run: Run,
    result: Result<R, E>,
    permanent: Option<&Permanent<E>>,
    quotes: bool,
) -> Fate {
    let (disposition, failed) = match result {
        Ok(value) => (run.completion(|| to_json(&value)), None),
        Err(error) => {
            let is_permanent = is_permanent(permanent, &error);
            let disposition = Disposition::of_error(&error, is_permanent);
            (disposition, Some((error, is_permanent)))
        }
    };
    match run.ended(disposition).await {
        Ok(Ended::Replay(replayed)) => replay(&replayed, quotes),
        Ok(_) => failed.map_or(Fate::Done, |(error, is_permanent)| {
            Fate::Reported(Reason::of_error(&error, is_permanent, quotes))
        }),
        // The condition of a business write did not hold, and the handler may have an error of its
        // own for that.
        Err(Error::Refused(refusal)) => match refusal.into_answer::<E>() {
            Ok(error) => report(&error, permanent, quotes),
            Err(refusal) => refuse(&Error::Refused(refusal), quotes),
        },
        // The handler has failed permanently, and its saga still compensates.
        Err(Error::Compensating) if let Some((error, _)) = &failed => {
            Fate::Reported(Reason::of_error(error, false, quotes))
        }
        Err(obstacle) => refuse(&obstacle, quotes),
    }
}

/// Reports an error of the handler's that is not stored.
fn report<E: Display + 'static>(error: &E, permanent: Option<&Permanent<E>>, quotes: bool) -> Fate {
    let is_permanent = is_permanent(permanent, error);
    Fate::Reported(Reason::of_error(error, is_permanent, quotes))
}

/// Reads that an outcome was stored, not which: a source asks only whether the work is done, so a
/// change of the outcome's type does no harm.
fn replay(replayed: &Replayed, quotes: bool) -> Fate {
    match replayed.decode::<IgnoredAny>() {
        Ok(IgnoredAny) => Fate::Done,
        Err(obstacle) => refuse(&obstacle, quotes),
    }
}

fn refuse(obstacle: &Obstacle, quotes: bool) -> Fate {
    Fate::Reported(Reason::of_obstacle(obstacle, quotes))
}
