//! Calls the hook that may take a message that is rejected.

use std::fmt;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::batch::Source;
use crate::engine::error::Rejection;
use crate::engine::events;

/// Says why a message is rejected, and what went wrong, to the hook
/// [`on_rejected`](super::BatchLayer::on_rejected).
///
/// The fields have the names and the texts of the log's event `rejected`. So `detail` quotes nothing
/// of the message unless [`log_errors`](crate::Builder::log_errors) is on. As text it is
/// `{rejection}: {detail}`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// The class of what is wrong.
    pub rejection: Rejection,
    /// The code of what is wrong, finer than the class: `handler_failed`, `undecodable_body` or
    /// `key_too_long`, for example.
    pub reason: &'static str,
    /// What went wrong, for people: for a failed handler the error's type, and its text (at most
    /// 1,000 characters) with [`log_errors`](crate::Builder::log_errors).
    pub detail: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rejection, self.detail)
    }
}

/// Calls the caller's function with a rejected message.
type Call<R> = dyn Fn(R, Rejected) -> BoxFuture<'static, Result<(), events::Problem>> + Send + Sync;

/// Holds the caller's function for rejected messages.
pub(super) struct Hook<R> {
    call: Arc<Call<R>>,
}

clone_fields!([R] Hook<R> { call });

impl<R> Hook<R> {
    /// Holds a function. The text of its error, which may quote the message, is logged where
    /// `quotes` says so.
    pub(super) fn new<F, Fut, E>(function: F, quotes: bool) -> Self
    where
        F: Fn(R, Rejected) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + 'static,
    {
        let call = Arc::new(move |message, why| {
            let taking = function(message, why);
            async move {
                taking
                    .await
                    .map_err(|error| events::problem(&error, quotes))
            }
            .boxed()
        });
        Self { call }
    }

    /// Offers a message to the hook. It is taken if the hook answers `Ok`, and in time.
    pub(super) async fn takes<S: Source>(
        &self,
        message: R,
        id: &str,
        rejected: Rejected,
        until: Option<Instant>,
    ) -> bool {
        let (rejection, reason) = (rejected.rejection.as_str(), rejected.reason);
        let detail = rejected.detail.clone();
        let taking = async { (self.call)(message, rejected).await };
        let problem = match events::answer(taking, until).await {
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn takes<F, Fut>(hook: F) -> bool
    where
        F: Fn((), Rejected) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let until = Instant::now() + Duration::from_millis(50);
        let rejected = Rejected {
            rejection: Rejection::Failed,
            reason: "failed",
            detail: String::new(),
        };
        Hook::new(hook, false)
            .takes::<crate::sqs::Sqs>((), "m-1", rejected, Some(until))
            .await
    }

    #[tokio::test]
    async fn only_ok_takes_a_message() {
        assert!(takes(|(), _| async { Ok(()) }).await);
        assert!(!takes(|(), _| async { Err("full".to_owned()) }).await);
        assert!(!takes(|(), _| async { panic!("later") }).await);
        assert!(
            !takes(|(), _| -> std::future::Ready<Result<(), String>> { panic!("at once") }).await
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_hangs_takes_nothing() {
        assert!(!takes(|(), _| std::future::pending()).await);
    }
}
