//! Calls the hooks of a batch, after every message has run and before the reply is made.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::batch::Source;
use crate::batch::fate::Fate;
use crate::batch::rejection::{Hook, Rejected};
use crate::batch::report::Reason;
use crate::engine::REPLY_TIME;
use crate::engine::error::Rejection;

/// Defers messages that are in flight elsewhere until their claim is free.
pub(crate) trait Defer<R>: Send + Sync {
    /// Takes from a message what its deferral needs, before its handler gets it.
    fn prepare(&self, message: &R) -> Deferral;
}

/// Defers one message until the first instant, and gives up at the second.
pub(crate) type Deferral =
    Box<dyn FnOnce(Instant, Option<Instant>) -> BoxFuture<'static, ()> + Send>;

/// Holds the hooks of a layer.
pub(super) struct Hooks<S: Source> {
    pub(super) on_rejected: Option<Hook<S::Record>>,
    pub(super) deferring: Option<Arc<dyn Defer<S::Record>>>,
}

clone_fields!([S: Source] Hooks<S> { on_rejected, deferring });

/// Keeps what the hooks need of a batch, taken before the handlers get its messages.
pub(super) struct Kept<S: Source> {
    /// Empty without a hook for rejected messages: bodies may be large.
    messages: Vec<S::Record>,
    deferrals: Vec<Deferral>,
    until: Option<Instant>,
}

impl<S: Source> Hooks<S> {
    /// Keeps what the hooks need. `remaining` is the time that the invocation has left, where its
    /// deadline is known.
    pub(super) fn keep(&self, messages: &[S::Record], remaining: Option<Duration>) -> Kept<S> {
        Kept {
            messages: match self.on_rejected {
                Some(_) => messages.to_vec(),
                None => Vec::new(),
            },
            deferrals: match &self.deferring {
                Some(deferring) => messages.iter().map(|m| deferring.prepare(m)).collect(),
                None => Vec::new(),
            },
            until: remaining.map(|left| Instant::now() + left.saturating_sub(REPLY_TIME)),
        }
    }

    /// Defers messages that are in flight elsewhere, and offers rejected ones to the hook,
    /// `side_by_side` at a time. The messages that the hook took are done. Answers how many are
    /// rejected, whether or not there is a hook that takes them.
    pub(super) async fn run(
        &self,
        kept: Kept<S>,
        ids: &[String],
        fates: &mut [Fate],
        side_by_side: usize,
    ) -> usize {
        let Kept {
            messages,
            deferrals,
            until,
        } = kept;
        let deferrals = deferrals.into_iter().zip(fates.iter());
        let requests: Vec<_> = deferrals
            .filter_map(|(deferral, fate)| Some(deferral(free_at(fates, fate)?, until)))
            .collect();
        let requests = stream::iter(requests).buffer_unordered(side_by_side);
        requests.collect::<()>().await;

        let is_rejected = |position: &usize| rejection(fates, *position).is_some();
        let count = (0..fates.len()).filter(is_rejected).count();
        let Some(hook) = &self.on_rejected else {
            return count;
        };
        let messages = messages.into_iter().zip(ids).enumerate();
        let rejected = messages.filter_map(|(position, (message, id))| {
            let (why, reason) = rejection(fates, position)?;
            let (code, detail) = reason.words();
            let rejected = Rejected {
                rejection: why,
                reason: code,
                detail: detail.into_owned(),
            };
            Some(async move {
                let is_taken = hook.takes::<S>(message, id, rejected, until).await;
                (position, is_taken)
            })
        });
        let rejected: Vec<_> = rejected.collect();
        let mut offers = stream::iter(rejected).buffer_unordered(side_by_side);
        while let Some((position, is_taken)) = offers.next().await {
            if is_taken && let Some(fate) = fates.get_mut(position) {
                *fate = Fate::Done;
            }
        }
        count
    }
}

/// Says why the message in this position is rejected, if it is, and why it is reported otherwise.
///
/// A message that differs from an earlier one of its batch is rejected only if that one is done.
/// Otherwise the key has no outcome yet, and this message, delivered again, may be the one that
/// gets it.
fn rejection(fates: &[Fate], position: usize) -> Option<(Rejection, &Reason)> {
    let Fate::Reported(reason) = fates.get(position)? else {
        return None;
    };
    let is_early = match reason {
        Reason::Mismatch { leader } => !matches!(fates.get(*leader)?, Fate::Done),
        _ => false,
    };
    let why = reason.rejection().filter(|_| !is_early)?;
    Some((why, reason))
}

/// Gives the instant when the claim of a message that is in flight elsewhere is free; its followers
/// wait for the same.
fn free_at(fates: &[Fate], fate: &Fate) -> Option<Instant> {
    match fate {
        Fate::Reported(reason) => reason.free_at(),
        Fate::Follows(leader) => match fates.get(*leader)? {
            Fate::Reported(reason) => reason.free_at(),
            Fate::Done | Fate::Follows(_) => None,
        },
        Fate::Done => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BodyError;
    use crate::batch::plan::tests::message;
    use crate::sqs::Sqs;

    /// Runs the hooks after two messages, of which the second is rejected; gives how many of them
    /// are rejected, and how many are done after it.
    async fn run(on_rejected: Option<Hook<aws_lambda_events::sqs::SqsMessage>>) -> (usize, usize) {
        let hooks: Hooks<Sqs> = Hooks {
            on_rejected,
            deferring: None,
        };
        let messages = [message("m-1", "1"), message("m-2", "garbled")];
        let mut fates = [
            Fate::Done,
            Fate::Reported(Reason::NoBody(BodyError::MISSING)),
        ];
        let kept = hooks.keep(&messages, None);
        let ids = ["m-1".to_owned(), "m-2".to_owned()];
        let rejected = hooks.run(kept, &ids, &mut fates, 1).await;
        let done = fates.iter().filter(|fate| matches!(fate, Fate::Done));
        (rejected, done.count())
    }

    #[tokio::test]
    async fn rejected_messages_are_counted_and_those_that_the_hook_takes_are_done() {
        let taking = Hook::new(|_, _| async { Ok::<_, std::fmt::Error>(()) }, false);
        assert_eq!(run(Some(taking)).await, (1, 2));
        let failing = Hook::new(|_, _| async { Err(std::fmt::Error) }, false);
        assert_eq!(run(Some(failing)).await, (1, 1));
        assert_eq!(run(None).await, (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn hooks_end_before_the_time_for_the_reply_begins() {
        let hooks: Hooks<Sqs> = Hooks {
            on_rejected: None,
            deferring: None,
        };
        let until = |left: u64| hooks.keep(&[], Some(Duration::from_millis(left))).until;
        assert_eq!(
            until(1_000),
            Some(Instant::now() + Duration::from_millis(750))
        );
        assert_eq!(until(100), Some(Instant::now()));
        assert_eq!(hooks.keep(&[], None).until, None);
    }

    #[test]
    fn a_message_that_differs_is_rejected_once_the_first_is_done() {
        let differs = |leader| Fate::Reported(Reason::Mismatch { leader });
        let fates = [
            Fate::Done,
            differs(0),
            Fate::Reported(Reason::NotRun),
            differs(2),
        ];
        let why = |position| rejection(&fates, position).map(|(why, _)| why);
        let rejected: Vec<_> = (0..4).map(why).collect();
        assert_eq!(rejected, [None, Some(Rejection::Mismatch), None, None]);
    }
}
