//! What is left to do once every message has run, and before the reply is made.

use std::time::Duration;

use aws_lambda_events::event::sqs::SqsMessage;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::sqs::batch::Fate;
use crate::sqs::rejection::{Hook, Rejection};
use crate::sqs::report::Reason;
#[cfg(feature = "visibility")]
use crate::sqs::visibility::{Receipt, Visibility};

/// Kept back at the end of an invocation, so that the reply still gets out.
const REPLY_TIME: Duration = Duration::from_millis(250);

/// What the layer was told to do about messages that don't get anywhere.
#[derive(Clone, Default)]
pub(super) struct Aftermath {
    pub(super) on_rejected: Option<Hook>,
    #[cfg(feature = "visibility")]
    pub(super) visibility: Option<Visibility>,
}

/// What the aftermath needs of a batch, taken before the handlers get its messages.
pub(super) struct Kept {
    /// Empty where nobody asked for them: bodies may be large.
    messages: Vec<SqsMessage>,
    #[cfg(feature = "visibility")]
    receipts: Vec<Receipt>,
    until: Option<Instant>,
}

impl Aftermath {
    /// `remaining` is the time that the invocation has left, where its deadline is known.
    pub(super) fn keep(&self, messages: &[SqsMessage], remaining: Option<Duration>) -> Kept {
        Kept {
            messages: match self.on_rejected {
                Some(_) => messages.to_vec(),
                None => Vec::new(),
            },
            #[cfg(feature = "visibility")]
            receipts: match &self.visibility {
                Some(visibility) => messages
                    .iter()
                    .map(|message| visibility.receipt(message))
                    .collect(),
                None => Vec::new(),
            },
            until: remaining.map(|left| Instant::now() + left.saturating_sub(REPLY_TIME)),
        }
    }

    /// Hides messages that are in flight elsewhere, and offers rejected ones to the hook, `side_by_side` at a time. Those that
    /// it took are done; answers how many.
    pub(super) async fn settle(
        &self,
        kept: Kept,
        fates: &mut [Fate],
        side_by_side: usize,
    ) -> usize {
        #[cfg(feature = "visibility")]
        self.hide(&kept, fates, side_by_side).await;
        self.reject(kept, fates, side_by_side).await
    }

    #[cfg(feature = "visibility")]
    async fn hide(&self, kept: &Kept, fates: &[Fate], side_by_side: usize) {
        let Some(visibility) = &self.visibility else {
            return;
        };
        let until = kept.until;
        let requests = kept
            .receipts
            .iter()
            .zip(fates)
            .filter_map(|(receipt, fate)| {
                let free_at = free_at(fates, fate)?;
                Some(visibility.hide(receipt, free_at, until))
            });
        let requests: Vec<_> = requests.collect();
        stream::iter(requests)
            .buffer_unordered(side_by_side)
            .collect::<()>()
            .await;
    }

    async fn reject(&self, kept: Kept, fates: &mut [Fate], side_by_side: usize) -> usize {
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

/// When a message that is in flight elsewhere can be worked on; so can those that follow it.
#[cfg(feature = "visibility")]
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
