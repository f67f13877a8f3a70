//! Calls the hooks of a batch: the one for errors as they occur, the one for rejected messages when
//! every message has run that can.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, BoxFuture};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::batch::Source;
use crate::batch::report::{Fate, Reason};
use crate::engine::REPLY_TIME;
use crate::engine::hook::Hook;
use crate::engine::rejection::Rejection;

/// Makes the deferral of a message, before its handler gets it. The message is deferred if it is in
/// flight elsewhere.
pub(super) type Defer<R> = Arc<dyn Fn(&R) -> Deferral + Send + Sync>;

/// Defers one message until the first instant, and gives up at the second.
pub(crate) type Deferral = Box<dyn FnOnce(Instant, Instant) -> BoxFuture<'static, ()> + Send>;

/// The longest time that the deferrals of one batch may take together: they are a courtesy, and each
/// millisecond of the function is paid for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Holds the hooks of a layer.
pub(super) struct Hooks<S: Source> {
    pub(super) on_rejected: Option<Hook<(S::Record, Rejected), ()>>,
    pub(super) deferring: Option<Defer<S::Record>>,
}

clone_fields!([S: Source] Hooks<S> { on_rejected, deferring });

/// Keeps what the hooks need of a batch, taken before the handlers get its messages.
pub(super) struct Kept<S: Source> {
    pub(super) ids: Vec<String>,
    /// Empty without a hook for rejected messages: bodies may be large. `None` for one that was
    /// offered.
    messages: Vec<Option<S::Record>>,
    deferrals: Vec<Deferral>,
    until: Option<Instant>,
}

impl<S: Source> Hooks<S> {
    /// Keeps what the hooks need. `remaining` is the time that the invocation has left, where its
    /// deadline is known.
    pub(super) fn keep(
        &self,
        ids: Vec<String>,
        messages: &[S::Record],
        remaining: Option<Duration>,
    ) -> Kept<S> {
        Kept {
            ids,
            messages: match self.on_rejected {
                Some(_) => messages.iter().cloned().map(Some).collect(),
                None => Vec::new(),
            },
            deferrals: match &self.deferring {
                Some(deferring) => messages.iter().map(&**deferring).collect(),
                None => Vec::new(),
            },
            until: remaining.map(|left| Instant::now() + left.saturating_sub(REPLY_TIME)),
        }
    }

    /// Offers rejected messages to the hook, each once, `side_by_side` at a time. Those that it takes
    /// are done; returns their positions.
    pub(super) async fn offer(
        &self,
        kept: &mut Kept<S>,
        fates: &mut [Fate],
        side_by_side: usize,
    ) -> HashSet<usize> {
        let Some(hook) = &self.on_rejected else {
            return HashSet::new();
        };
        let until = kept.until;
        let messages = kept.messages.iter_mut().zip(&kept.ids).enumerate();
        let rejected = messages.filter_map(|(position, (message, id))| {
            let (why, reason) = rejection(fates, position)?;
            let message = message.take()?;
            let (code, detail) = reason.words();
            let rejected = Rejected {
                rejection: why,
                reason: code,
                detail: detail.into_owned(),
            };
            Some(async move {
                let is_taken = takes::<S>(hook, message, id, rejected, until).await;
                is_taken.then_some(position)
            })
        });
        let rejected: Vec<_> = rejected.collect();
        let offers = stream::iter(rejected).buffer_unordered(side_by_side);
        let taken: HashSet<_> = offers.filter_map(future::ready).collect().await;
        for position in &taken {
            if let Some(fate) = fates.get_mut(*position) {
                *fate = Fate::Done;
            }
        }
        taken
    }

    /// Defers the messages that are in flight elsewhere, `side_by_side` at a time.
    pub(super) async fn defer(&self, kept: Kept<S>, fates: &[Fate], side_by_side: usize) {
        // An outage of the queue must not use up the function's time.
        let patience = Instant::now() + PATIENCE;
        let until = kept.until.map_or(patience, |until| until.min(patience));
        let deferrals = kept.deferrals.into_iter().zip(fates);
        let requests: Vec<_> = deferrals
            .filter_map(|(deferral, fate)| Some(deferral(free_at(fates, fate)?, until)))
            .collect();
        let requests = stream::iter(requests).buffer_unordered(side_by_side);
        requests.collect::<()>().await;
    }
}

impl<S: Source> Kept<S> {
    /// Counts the messages that are rejected, whether or not there is a hook that takes them.
    pub(super) fn rejected(&self, fates: &[Fate]) -> usize {
        let was_offered = |position| matches!(self.messages.get(position), Some(None));
        (0..fates.len())
            .filter(|&position| was_offered(position) || rejection(fates, position).is_some())
            .count()
    }
}

/// Returns why the message in this position is rejected, if it is, and why it is reported otherwise.
fn rejection(fates: &[Fate], position: usize) -> Option<(Rejection, &Reason)> {
    match fates.get(position)? {
        Fate::Reported(reason) => Some((reason.rejection()?, reason)),
        Fate::Done | Fate::Follows(_) => None,
    }
}

/// Returns the instant when the claim of a message that is in flight elsewhere is free; its followers
/// wait for the same.
fn free_at(fates: &[Fate], fate: &Fate) -> Option<Instant> {
    match fate {
        Fate::Reported(reason) => reason.free_at(),
        Fate::Follows(leader) => free_at(fates, fates.get(*leader)?),
        Fate::Done => None,
    }
}

/// The reason why a message is rejected, and what went wrong, for the hook
/// [`on_rejected`](super::BatchLayer::on_rejected).
///
/// The fields have the names and the texts of the log's event `rejected`. So `detail` quotes nothing
/// of the message unless [`log_errors`](crate::Settings::log_errors) is on. As text it is
/// `{rejection}: {detail}`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// The class of what is wrong.
    pub rejection: Rejection,
    /// The code of what is wrong, finer than the class: `handler_failed`, `undecodable_body` or
    /// `key_too_long`, for example.
    pub reason: &'static str,
    /// The problem, for people: for a failed handler the error's type, and its text (at most
    /// 1,000 characters) with [`log_errors`](crate::Settings::log_errors).
    pub detail: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rejection, self.detail)
    }
}

/// Offers a message to the hook. It is taken if the hook answers `Ok`, and in time.
async fn takes<S: Source>(
    hook: &Hook<(S::Record, Rejected), ()>,
    message: S::Record,
    id: &str,
    rejected: Rejected,
    until: Option<Instant>,
) -> bool {
    let (rejection, reason) = (rejected.rejection.as_str(), rejected.reason);
    let detail = rejected.detail.clone();
    let problem = match hook.answer((message, rejected), until).await {
        Ok(()) => {
            tracing::warn!(
                event = "rejected",
                rejection,
                reason,
                message_id = id,
                detail,
                source = S::NAME,
                "batch"
            );
            return true;
        }
        Err(problem) => problem,
    };
    tracing::error!(
        event = "hook_failed",
        rejection,
        reason,
        message_id = id,
        error = &*problem,
        source = S::NAME,
        "batch"
    );
    false
}

/// Is shown a message, as its source delivered it, and the error of its handler.
pub(super) type OnError<R, E> = Arc<dyn Fn(&R, &E) + Send + Sync>;

/// Shows an error of a message's handler to the hook. A panic of the hook doesn't change what becomes of
/// the message.
pub(super) fn show<S: Source, E>(hook: &OnError<S::Record, E>, metadata: &S::Record, error: &E) {
    if catch_unwind(AssertUnwindSafe(|| hook(metadata, error))).is_err() {
        tracing::error!(
            event = "hook_failed",
            reason = "on_error",
            message_id = S::id(metadata).unwrap_or_default(),
            error = "it panicked",
            source = S::NAME,
            "batch"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_lambda_events::sqs::SqsMessage;

    use super::*;
    use crate::batch::BodyError;
    use crate::batch::reader::tests::message;
    use crate::sqs::SqsEvent;

    /// Runs the hooks after two messages, of which the second is rejected; gives how many of them
    /// are rejected, and how many are done after it.
    async fn run(on_rejected: Option<Hook<(SqsMessage, Rejected), ()>>) -> (usize, usize) {
        let hooks: Hooks<SqsEvent> = Hooks {
            on_rejected,
            deferring: None,
        };
        let messages = [message("m-1", "1"), message("m-2", "garbled")];
        let mut fates = [
            Fate::Done,
            Fate::Reported(Reason::NoBody(BodyError::MISSING)),
        ];
        let ids = ["m-1", "m-2"].map(str::to_owned);
        let mut kept = hooks.keep(ids.to_vec(), &messages, None);
        hooks.offer(&mut kept, &mut fates, 1).await;
        let done = fates.iter().filter(|fate| matches!(fate, Fate::Done));
        (kept.rejected(&fates), done.count())
    }

    #[tokio::test]
    async fn rejected_messages_are_counted_and_those_that_the_hook_takes_are_done() {
        let taking = Hook::new(|_| async { Ok::<_, std::fmt::Error>(()) }, false);
        assert_eq!(run(Some(taking)).await, (1, 2));
        let failing = Hook::new(|_| async { Err(std::fmt::Error) }, false);
        assert_eq!(run(Some(failing)).await, (1, 1));
        assert_eq!(run(None).await, (1, 1));
    }

    /// Defers by a queue that doesn't answer: it takes all the time that it gets.
    fn silent(_: &SqsMessage) -> Deferral {
        Box::new(|_, until| Box::pin(tokio::time::sleep_until(until)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_does_not_answer_holds_a_batch_up_for_two_seconds_after_the_hook() {
        let millis = Duration::from_millis;
        for (left, is_asked, expected) in [
            (None, true, millis(2_000)),
            (Some(millis(60_000)), true, millis(2_000)),
            (Some(millis(1_000)), true, millis(750)),
            (Some(millis(100)), false, millis(0)),
        ] {
            let began = Instant::now();
            let at_once = move |_| {
                let is_at_once = began.elapsed().is_zero();
                async move { is_at_once.then_some(()).ok_or(std::fmt::Error) }
            };
            let hooks: Hooks<SqsEvent> = Hooks {
                on_rejected: Some(Hook::new(at_once, false)),
                deferring: Some(Arc::new(silent)),
            };
            let in_flight = || {
                Fate::Reported(Reason::Run {
                    code: "in_flight",
                    detail: String::new(),
                    rejection: None,
                    free_at: Some(began + millis(90_000)),
                })
            };
            let garbled = Fate::Reported(Reason::NoBody(BodyError::MISSING));
            let mut fates = [in_flight(), in_flight(), garbled, in_flight()];
            let ids = ["m-1", "m-2", "m-3", "m-4"].map(str::to_owned);
            let messages = ids.each_ref().map(|id| message(id, "1"));
            let mut kept = hooks.keep(ids.to_vec(), &messages, left);
            let taken = hooks.offer(&mut kept, &mut fates, 1).await;
            assert_eq!(taken.len(), usize::from(is_asked), "{left:?}");
            assert_eq!(kept.rejected(&fates), 1);
            hooks.defer(kept, &fates, 1).await;
            assert_eq!(began.elapsed(), expected, "{left:?}");
            let is_done = matches!(fates, [_, _, Fate::Done, _]);
            assert_eq!(is_done, is_asked, "{fates:?}");
        }
    }
}
