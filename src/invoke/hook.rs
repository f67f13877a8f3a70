//! Calls the hooks that may answer an event: for a rejected one, and for a replay.

use std::fmt;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::engine::time::Times;
use crate::engine::{Replay, hook};

/// Holds a stored answer on its way to the caller of a retry, for the hook of
/// [`InvokeLayer::on_replay`](super::InvokeLayer::on_replay). Its `Debug` shows the attempt alone.
#[non_exhaustive]
pub struct ReplayedAnswer {
    /// The event of the retry, as it was received.
    pub event: Box<RawValue>,
    /// The answer as it is stored.
    pub answer: Box<RawValue>,
    /// The attempt that the answer comes from.
    pub replay: Replay,
}

impl fmt::Debug for ReplayedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayedAnswer")
            .field("replay", &self.replay)
            .finish_non_exhaustive()
    }
}

type Answer = Result<Box<RawValue>, hook::Problem>;
type Call<I> = dyn Fn(I) -> BoxFuture<'static, Answer> + Send + Sync;

/// Holds a hook that gets `I`.
pub(super) struct Hook<I> {
    call: Arc<Call<I>>,
}

clone_fields!([I] Hook<I> { call });

impl<I: 'static> Hook<I> {
    /// Holds a function. The text of its error, which may quote the event, is logged where `quotes`
    /// says so.
    pub(super) fn new<F, Fut, R, E>(function: F, quotes: bool) -> Self
    where
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Display + 'static,
    {
        let call = Arc::new(move |input| {
            let answering = function(input);
            let answer = async move {
                let answer = answering.await;
                let answer = answer.map_err(|error| hook::problem(&error, quotes))?;
                to_raw_value(&answer).map_err(|_| "its answer can't be written as JSON".into())
            };
            answer.boxed()
        });
        Self { call }
    }

    /// Asks the hook for an answer; `None` after an error, a panic, or no answer in time.
    pub(super) async fn answer(
        &self,
        name: &'static str,
        input: I,
        times: Option<Times>,
    ) -> Option<Box<RawValue>> {
        let until = times.map(|times| times.give_up);
        let answer = hook::answer(async { (self.call)(input).await }, until).await;
        answer.inspect_err(|problem| failed(name, problem)).ok()
    }
}

/// Logs that a hook failed.
pub(super) fn failed(name: &'static str, problem: &str) {
    let event = "hook_failed";
    tracing::error!(event, reason = name, error = problem, "invoke");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn answer<F, Fut>(hook: F) -> Option<String>
    where
        F: Fn(()) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<u8, String>> + Send + 'static,
    {
        let times = Some(Times::of(Duration::from_secs(1), None));
        let answer = Hook::new(hook, false)
            .answer("on_rejected", (), times)
            .await;
        answer.map(|answer| answer.get().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn only_ok_in_time_is_an_answer() {
        assert_eq!(answer(|()| async { Ok(7) }).await.as_deref(), Some("7"));
        assert_eq!(answer(|()| async { Err("full".to_owned()) }).await, None);
        assert_eq!(answer(|()| async { panic!("later") }).await, None);
        let at_once = |()| -> std::future::Ready<Result<u8, String>> { panic!("at once") };
        assert_eq!(answer(at_once).await, None);
        assert_eq!(answer(|()| std::future::pending()).await, None);
    }
}
