//! Calls the hooks that may answer an event: for a rejected one, and for a replay.

use std::future::Future;

use futures_util::TryFutureExt;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::engine::Replay;
use crate::engine::hook::Hook;
use crate::engine::time::Times;
use crate::protocol::causes::HandlerError;

/// Holds a hook whose answer is written as JSON.
pub(super) type AnswerHook<I> = Hook<I, serde_json::Result<Box<RawValue>>>;

/// Holds the hook for a replay: it gets the event, the stored answer and its attempt.
pub(super) type ReplayHook = AnswerHook<(Box<RawValue>, Box<RawValue>, Replay)>;

/// Makes a hook of a function. The text of its error, which may quote the event, is logged where
/// `quotes` says so.
pub(super) fn answering<I, F, Fut, R, E, M>(function: F, quotes: bool) -> AnswerHook<I>
where
    F: Fn(I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    R: Serialize,
    E: HandlerError<M>,
{
    let answering = move |input| function(input).map_ok(|answer| to_raw_value(&answer));
    Hook::new(answering, quotes)
}

/// Asks a hook for an answer; `None` after an error, a panic, or no answer in time.
pub(super) async fn answer<I>(
    hook: &AnswerHook<I>,
    name: &'static str,
    input: I,
    times: Option<Times>,
) -> Option<Box<RawValue>> {
    let until = times.map(|times| times.give_up);
    let problem = match hook.answer(input, until).await {
        Ok(Ok(answer)) => return Some(answer),
        Ok(Err(_)) => "its answer can't be written as JSON".into(),
        Err(problem) => problem,
    };
    failed(name, &problem);
    None
}

/// Logs that a hook failed.
pub(super) fn failed(name: &'static str, problem: &str) {
    let event = "hook_failed";
    tracing::error!(event, reason = name, error = problem, "invoke");
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_what_json_can_write() {
        let writable = answering(|()| async { Ok::<_, String>(7) }, false);
        let answered = answer(&writable, "on_rejected", (), None).await;
        assert_eq!(answered.unwrap().get(), "7");
        let by_pair = || HashMap::from([((1, 2), 3)]);
        let unwritable = answering(move |()| async move { Ok::<_, String>(by_pair()) }, false);
        let answered = answer(&unwritable, "on_rejected", (), None).await;
        assert!(answered.is_none());
    }
}
