//! Messages that no retry will mend, and the hook that may take them off the queue.

use std::fmt::{self, Display};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsMessage;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::record::error_kind;

/// Why a message is rejected: it would come again and again, and never get anywhere.
///
/// Rejected messages are reported, so that the queue's redrive policy moves them to the dead-letter queue; or they are handed
/// to [`on_rejected`](super::BatchLayer::on_rejected), where it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rejection {
    /// It has no body, or one that doesn't decode.
    Undecodable,
    /// It has no key, or one that can't be used: too long, or with control characters.
    UnusableKey,
    /// Its key was first used with another body.
    Mismatch,
    /// Its handler failed with an error that is [permanent](super::BatchLayer::permanent), now or in an earlier attempt.
    Failed,
}

impl Rejection {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Undecodable => "undecodable",
            Self::UnusableKey => "unusable_key",
            Self::Mismatch => "mismatch",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the caller's function makes of a rejected message; an error is its type's name.
type Call =
    dyn Fn(SqsMessage, Rejection) -> BoxFuture<'static, Result<(), &'static str>> + Send + Sync;

/// The caller's function for rejected messages.
#[derive(Clone)]
pub(super) struct Hook(Arc<Call>);

impl Hook {
    pub(super) fn new<F, Fut, E>(hook: F) -> Self
    where
        F: Fn(SqsMessage, Rejection) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        Self(Arc::new(move |message, why| {
            let taking = hook(message, why);
            // The error's words may quote the message; its type tells where to look.
            async move { taking.await.map_err(|_| error_kind::<E>()) }.boxed()
        }))
    }

    /// Whether the hook took the message: it answered `Ok`, and in time.
    pub(super) async fn takes(
        &self,
        message: SqsMessage,
        why: Rejection,
        until: Option<Instant>,
    ) -> bool {
        let id = message.message_id.clone().unwrap_or_default();
        // The call itself is inside, too: a hook may panic before it returns its future.
        let taking = AssertUnwindSafe(async { (self.0)(message, why).await }).catch_unwind();
        let answer = match until {
            Some(until) => timeout_at(until, taking).await,
            None => Ok(taking.await),
        };
        let problem = match answer {
            Ok(Ok(Ok(()))) => {
                tracing::warn!(
                    event = "rejected",
                    reason = why.as_str(),
                    message_id = id,
                    "sqs"
                );
                return true;
            }
            Ok(Ok(Err(kind))) => kind,
            Ok(Err(_)) => "it panicked",
            Err(_) => "it did not answer in time",
        };
        tracing::error!(
            event = "hook_failed",
            reason = why.as_str(),
            message_id = id,
            error = problem,
            "sqs"
        );
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn takes<F, Fut>(hook: F) -> bool
    where
        F: Fn(SqsMessage, Rejection) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let until = Instant::now() + Duration::from_millis(50);
        let message = SqsMessage::default();
        Hook::new(hook)
            .takes(message, Rejection::Failed, Some(until))
            .await
    }

    #[test]
    fn each_reason_has_a_word_of_its_own() {
        for (rejection, word) in [
            (Rejection::Undecodable, "undecodable"),
            (Rejection::UnusableKey, "unusable_key"),
            (Rejection::Mismatch, "mismatch"),
            (Rejection::Failed, "failed"),
        ] {
            assert_eq!(rejection.as_str(), word);
        }
    }

    #[tokio::test]
    async fn only_ok_takes_a_message() {
        assert!(takes(|_, _| async { Ok(()) }).await);
        assert!(!takes(|_, _| async { Err("full".to_owned()) }).await);
        assert!(!takes(|_, _| async { panic!("later") }).await);
        assert!(
            !takes(|_, _| -> std::future::Ready<Result<(), String>> { panic!("at once") }).await
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_hangs_takes_nothing() {
        assert!(!takes(|_, _| std::future::pending()).await);
    }
}
