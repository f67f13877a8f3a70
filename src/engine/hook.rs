//! Calls the caller's hooks.

use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::protocol::causes::{HandlerError, name_causes_of};
use crate::protocol::record::{error_kind, error_text};

/// The reason, for the log, why a hook gave no answer.
pub(crate) type Problem = Cow<'static, str>;

/// Names an error of a hook by its type; by its text, which may quote a payload, where `quotes` says
/// that logs may hold it.
fn problem<E: HandlerError<M>, M>(error: &E, quotes: bool) -> Problem {
    if quotes {
        name_causes_of::<E, M>();
        error_text(error).into()
    } else {
        error_kind::<E>().into()
    }
}

type Call<I, O> = dyn Fn(I) -> BoxFuture<'static, Result<O, Problem>> + Send + Sync;

/// Holds a closure of the caller's that gets `I` and answers with `O`.
pub(crate) struct Hook<I, O> {
    call: Arc<Call<I, O>>,
}

clone_fields!([I, O] Hook<I, O> { call });

impl<I, O> Hook<I, O> {
    /// Holds a closure. A problem has the text of its error, which may quote a payload, where `quotes`
    /// says so.
    pub(crate) fn new<F, Fut, E, M>(function: F, quotes: bool) -> Self
    where
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        E: HandlerError<M>,
    {
        let call = Arc::new(move |input| {
            let answering = function(input);
            async move { answering.await.map_err(|error| problem(&error, quotes)) }.boxed()
        });
        Self { call }
    }

    /// Returns the closure's answer. A panic, and no answer by this instant, is a problem, too. From
    /// this instant on the closure is not called: an effect that it begins would be cut off.
    pub(crate) async fn answer(&self, input: I, until: Option<Instant>) -> Result<O, Problem> {
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err("no time was left to ask it".into());
        }
        // The call itself is inside, too: a closure may panic before it returns its future.
        let calling = async { (self.call)(input).await };
        let calling = AssertUnwindSafe(calling).catch_unwind();
        let answer = match until {
            Some(until) => timeout_at(until, calling).await,
            None => Ok(calling.await),
        };
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("it panicked".into()),
            Err(_) => Err("it did not answer in time".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, pending};
    use std::time::Duration;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    /// The answer of a closure that has a second, or the problem with it.
    async fn answer<F, Fut>(function: F, quotes: bool) -> Result<u8, Problem>
    where
        F: Fn(u8) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<u8, String>> + Send + 'static,
    {
        let until = Instant::now() + LIMIT;
        Hook::new(function, quotes).answer(7, Some(until)).await
    }

    #[tokio::test(start_paused = true)]
    async fn only_ok_in_time_is_an_answer() {
        let at_the_last_moment = |input| async move {
            tokio::time::sleep(LIMIT.mul_f64(0.9)).await;
            Ok(input)
        };
        assert_eq!(answer(at_the_last_moment, false).await, Ok(7));

        let problem = |text: &'static str| -> Result<u8, Problem> { Err(text.into()) };
        let fails = |_| async { Err("no card 4111".to_owned()) };
        let type_name = problem("alloc::string::String");
        assert_eq!(answer(fails, false).await, type_name);
        assert_eq!(answer(fails, true).await, problem("no card 4111"));
        let long = |_| async { Err("x".repeat(1_001)) };
        assert_eq!(answer(long, true).await, Err("x".repeat(1_000).into()));
        let panicked = problem("it panicked");
        let at_once = |_| -> Ready<Result<u8, String>> { panic!("at once") };
        assert_eq!(answer(at_once, false).await, panicked);
        assert_eq!(answer(|_| async { panic!("later") }, false).await, panicked);
        let too_late = problem("it did not answer in time");
        assert_eq!(answer(|_| pending(), false).await, too_late);
        let over = Some(Instant::now());
        let not_called = Hook::new(at_once, false).answer(7, over).await;
        assert_eq!(not_called, problem("no time was left to ask it"));
    }

    #[tokio::test]
    async fn a_problem_names_the_causes_of_its_error() {
        #[derive(Debug, thiserror::Error)]
        #[error("not sent")]
        struct NotSent(#[source] std::io::Error);
        let fails = |()| async { Err::<(), _>(NotSent(std::io::Error::other("no network"))) };
        let answer = Hook::new(fails, true).answer((), None).await;
        assert_eq!(answer, Err("not sent: no network".into()));
    }
}
