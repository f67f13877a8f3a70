//! Waits for the answer of a caller's hook.

use std::borrow::Cow;
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use crate::protocol::record::{error_kind, error_text};

/// Says for the log why a hook gave no answer.
pub(crate) type Problem = Cow<'static, str>;

/// Names an error of a hook by its type; by its text, which may quote a payload, where `quotes` says
/// that logs may hold it.
pub(crate) fn problem<E: Display + 'static>(error: &E, quotes: bool) -> Problem {
    if quotes {
        error_text(error).into()
    } else {
        error_kind::<E>().into()
    }
}

/// Gives the hook's answer. A panic, and no answer in time, is a problem, too. `calling` has the
/// call inside: a hook may panic before it returns its future.
pub(crate) async fn answer<T>(
    calling: impl Future<Output = Result<T, Problem>>,
    until: Option<Instant>,
) -> Result<T, Problem> {
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
