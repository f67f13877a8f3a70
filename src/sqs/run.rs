//! One message through the engine.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde::ser::{Serialize, Serializer};
use tower::{Service, ServiceExt};
use tracing::Instrument;

use crate::claim::Claim;
use crate::error::Error;
use crate::idempotency::Idempotency;
use crate::outcome::Verdict;
use crate::sqs::batch::Fate;
use crate::sqs::message::{Message, receive_count};
use crate::sqs::pace::{Entry, Pace};
use crate::sqs::plan::Ready;
use crate::sqs::report::Reason;
use crate::sqs::trace;
use crate::store::Store;

/// Which of the handler's errors no retry will mend.
pub(super) type Permanent<E> = Arc<dyn Fn(&E) -> bool + Send + Sync>;

/// All that one message needs, so that its future borrows nothing.
pub(super) struct Run<S, T, E, Svc> {
    pub(super) once: Idempotency<S>,
    pub(super) handler: Svc,
    pub(super) permanent: Option<Permanent<E>>,
    pub(super) pace: Arc<Pace>,
    /// Its place among those that are to run.
    pub(super) index: usize,
    pub(super) message: Ready<T>,
}

impl<S, T, E, Svc> Run<S, T, E, Svc>
where
    S: Store,
    E: Display + 'static,
    Svc: Service<Message<T>, Error = E>,
    Svc::Response: Serialize,
{
    /// The message's place in its batch, and what became of it. The span lets the handler's own events tell which message
    /// they are about.
    pub(super) async fn run(self) -> (usize, Fate) {
        let (pace, position) = (Arc::clone(&self.pace), self.message.position);
        let mut entry = pace.entry();
        pace.admit(self.index).await;
        let fate = match pace.refusal(&self.message.after) {
            Some(reason) => Fate::Reported(reason),
            None => self.claim_and_run(&pace, &mut entry).await,
        };
        pace.ended(position, matches!(fate, Fate::Done));
        (position, fate)
    }

    async fn claim_and_run(self, pace: &Pace, entry: &mut Entry<'_>) -> Fate {
        let Ready {
            received,
            key,
            fingerprint,
            after,
            ..
        } = self.message;
        let span = trace::of_message(&received.1);
        // A delivery that isn't the first probably meets a record. A read that finds it is cheaper than a write that fails.
        let once = self.once.read_first(receive_count(&received.1) > Some(1));
        let (mut service, permanent) = (self.handler, self.permanent);
        // Asked once, whether a claim stands behind the run or not.
        let failed = AtomicBool::new(false);
        let (noted, judge) = (&failed, permanent.clone());
        let engine = &once;
        let handler = async move |claim: Claim| {
            let _permit = match pace.start(&after).await {
                Ok(permit) => permit,
                Err(reason) => return Ok(Ran::NotStarted(reason)),
            };
            entry.started();
            let result = match service.ready().await {
                // The claim was made with its group. Since then the message has waited: for its turn, a permit, and the handler.
                Ok(_) if claim.is_over() => {
                    engine.count_too_late(claim.operation());
                    return Ok(Ran::NotStarted(Reason::TooLate));
                }
                Ok(service) => {
                    let (body, metadata) = *received;
                    let message = Message {
                        body,
                        claim,
                        metadata,
                        stop_at: pace.stops_at(),
                    };
                    service.call(message).await
                }
                Err(error) => Err(error),
            };
            if let (Err(error), Some(permanent)) = (&result, &permanent) {
                noted.store(permanent(error), Ordering::Relaxed);
            }
            result.map(Ran::Value)
        };
        let verdict = |result: &Result<_, E>| match result {
            Ok(Ran::NotStarted(_)) => Verdict::Release,
            Err(_) if failed.load(Ordering::Relaxed) => Verdict::Fail,
            _ => Verdict::of(result),
        };
        let run = Box::pin(once.run_with(key, fingerprint, handler, verdict));
        match AssertUnwindSafe(run.instrument(span)).catch_unwind().await {
            Ok(Ok(outcome)) => match outcome.into_inner() {
                Ran::Value(_) | Ran::DoneBefore => Fate::Done,
                Ran::NotStarted(reason) => Fate::Reported(reason),
            },
            // An outcome that was not kept is no loss: a queue never asks for it, and the work is done.
            Ok(Err(Error::OutcomeOmitted { .. })) => Fate::Done,
            Ok(Err(error)) => {
                let mut is_permanent = failed.into_inner();
                // The answer to a condition that failed comes after the handler.
                if let (Error::Handler(error), Some(judge), false) = (&error, &judge, is_permanent)
                {
                    // A judgement that panics, outside the handler, must not take the batch with it.
                    let judged = catch_unwind(AssertUnwindSafe(|| judge(error)));
                    is_permanent = judged.unwrap_or(false);
                }
                Fate::Reported(Reason::of_run(&error, is_permanent))
            }
            // The engine has released the claim. The others go on.
            Err(_) => Fate::Reported(Reason::Panicked),
        }
    }
}

/// What the handler gave, or why it wasn't asked. Only a value is ever stored, as it is. It is never read again: a queue wants
/// to know that the work is done, not what came of it, so a change of its type hurts nobody.
#[derive(Debug)]
enum Ran<R> {
    Value(R),
    DoneBefore,
    NotStarted(Reason),
}

impl<R: Serialize> Serialize for Ran<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::DoneBefore | Self::NotStarted(_) => serializer.serialize_unit(),
        }
    }
}

impl<'de, R> Deserialize<'de> for Ran<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self::DoneBefore)
    }
}
