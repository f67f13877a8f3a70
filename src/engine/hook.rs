//! Waits for the answer of a caller's hook.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

/// Gives the hook's answer. An error, a panic, or no answer in time is a word for the log. `calling`
/// has the call inside, too: a hook may panic before it returns its future.
pub(crate) async fn answer<T>(
    calling: impl Future<Output = Result<T, &'static str>>,
    until: Option<Instant>,
) -> Result<T, &'static str> {
    let calling = AssertUnwindSafe(calling).catch_unwind();
    let answer = match until {
        Some(until) => timeout_at(until, calling).await,
        None => Ok(calling.await),
    };
    match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err("it panicked"),
        Err(_) => Err("it did not answer in time"),
    }
}
