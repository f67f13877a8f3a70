//! What is left to do once every message has run, and before the reply is made.

use std::time::{Duration, SystemTime};

use aws_lambda_events::event::sqs::SqsMessage;
use futures_util::{StreamExt, stream};
use lambda_runtime::Context;
use tokio::time::Instant;

use crate::sqs::batch::Fate;
use crate::sqs::rejection::{Hook, Rejection};
use crate::sqs::report::Reason;

/// Kept back at the end of an invocation, so that the reply still gets out.
const REPLY_TIME: Duration = Duration::from_millis(250);

/// What the layer was told to do about messages that don't get anywhere.
#[derive(Clone, Default)]
pub(super) struct Aftermath {
    pub(super) on_rejected: Option<Hook>,
}

/// What the aftermath needs of a batch, taken before the handlers get its messages.
pub(super) struct Kept {
    /// Empty where nobody asked for them: bodies may be large.
    messages: Vec<SqsMessage>,
    until: Option<Instant>,
}

impl Aftermath {
    pub(super) fn keep(&self, messages: &[SqsMessage], context: &Context) -> Kept {
        Kept {
            messages: match self.on_rejected {
                Some(_) => messages.to_vec(),
                None => Vec::new(),
            },
            until: (context.deadline > 0).then(|| {
                let left = context.deadline().duration_since(SystemTime::now());
                Instant::now() + left.unwrap_or_default().saturating_sub(REPLY_TIME)
            }),
        }
    }

    /// Offers rejected messages to the hook, `side_by_side` at a time; those that it took are done. Answers how many.
    pub(super) async fn settle(
        &self,
        kept: Kept,
        fates: &mut [Fate],
        side_by_side: usize,
    ) -> usize {
        let Some(hook) = &self.on_rejected else {
            return 0;
        };
        let messages = kept.messages.into_iter().enumerate();
        let rejected: Vec<_> = messages
            .filter_map(|(position, message)| {
                Some((position, message, rejection(fates, position)?))
            })
            .collect();
        let offers = rejected
            .into_iter()
            .map(|(position, message, why)| async move {
                (position, hook.takes(message, why, kept.until).await)
            });
        let mut offers = stream::iter(offers).buffer_unordered(side_by_side);
        let mut taken = 0;
        while let Some((position, is_taken)) = offers.next().await {
            if is_taken && let Some(fate) = fates.get_mut(position) {
                *fate = Fate::Done;
                taken += 1;
            }
        }
        taken
    }
}

/// Why the message in this position is rejected, if it is.
///
/// One that differs from an earlier message of its batch is rejected only if that one is done. Otherwise nothing stands
/// under the key yet, and this one, delivered again, may be what was meant.
fn rejection(fates: &[Fate], position: usize) -> Option<Rejection> {
    match fates.get(position)? {
        Fate::Reported(Reason::Mismatch { leader }) => {
            matches!(fates.get(*leader)?, Fate::Done).then_some(Rejection::Mismatch)
        }
        Fate::Reported(reason) => reason.rejection(),
        Fate::Done | Fate::Follows(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_differs_is_rejected_once_the_first_is_done() {
        let differs = |leader| Fate::Reported(Reason::Mismatch { leader });
        let fates = [
            Fate::Done,
            differs(0),
            Fate::Reported(Reason::NotRun),
            differs(2),
        ];
        let rejected: Vec<_> = (0..4).map(|position| rejection(&fates, position)).collect();
        assert_eq!(rejected, [None, Some(Rejection::Mismatch), None, None]);
    }
}
