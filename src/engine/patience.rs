//! When to try again, and when to stop.

use std::future::Future;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder, Retryable};
use tokio::time::Instant;

use crate::engine::LONGEST;
use crate::error::StoreError;

/// Pauses from 20 ms to 1 s, doubled each time, with jitter, without end.
fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times()
}

/// Sends the same request until it is answered, fails for a reason that `again` rules out, or the deadline would pass. A store
/// that answered by throttling until the deadline cut it off has answered: that is no silence.
pub(super) async fn persist<T, F, Fut>(
    deadline: Instant,
    mut again: impl FnMut(&StoreError) -> bool,
    send: F,
) -> Result<T, StoreError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, StoreError>>,
{
    let mut throttled = false;
    let result = send
        .retry(pauses())
        .when(|error| {
            throttled |= matches!(error, StoreError::Throttled);
            again(error)
        })
        .adjust(|_, pause| pause.filter(|pause| Instant::now() + *pause < deadline))
        .await;
    match result {
        Err(StoreError::Timeout) if throttled => Err(StoreError::Throttled),
        result => result,
    }
}

/// How long to wait for another attempt's outcome.
#[derive(Debug)]
pub(super) struct Wait {
    until: Instant,
    pauses: ExponentialBackoff,
}

impl Wait {
    pub(super) fn up_to(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit.min(LONGEST),
            pauses: pauses().build(),
        }
    }

    /// Sleeps before the next look; `false` when the limit is reached.
    pub(super) async fn pause(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.pauses.next() {
            Some(pause) if !left.is_zero() => {
                tokio::time::sleep(pause.min(left)).await;
                true
            }
            _ => false,
        }
    }
}
