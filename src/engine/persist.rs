//! Makes a call to the store again until it is answered, and paces the wait for another attempt.

use std::future::Future;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use crate::engine::pace::Turns;
use crate::engine::time::LONGEST;
use crate::store::StoreError;

#[cfg(test)]
mod tests;

/// Makes pauses from 20 ms to 1 s, doubled each time, with jitter, without end.
fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times()
}

/// Sends the same request until it is answered, fails for a reason that `again` rules out, or the
/// deadline would pass. A store that answered by throttling until the deadline cut it off has
/// answered: its error is the result, not the timeout. A request that was sent once and got no answer
/// may have applied, whatever its last try met: that error is the result then.
pub(super) async fn persist<T, Fut>(
    turns: Turns<'_>,
    deadline: Instant,
    mut again: impl FnMut(&StoreError) -> bool,
    mut send: impl FnMut() -> Fut,
) -> Result<T, StoreError>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    let mut earlier = None;
    // Most requests are answered at once: the pauses are made for the second try.
    let mut left = None;
    loop {
        let Some(turn) = turns.next(deadline).await else {
            return Err(earlier.unwrap_or_else(no_turn));
        };
        let error = match send().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_throttled = matches!(error, StoreError::Throttled(_));
        let pause = again(&error).then(|| {
            let pauses = left.get_or_insert_with(|| Box::new(pauses().build()));
            let pause = pauses.next();
            pause.map(|pause| {
                if is_throttled {
                    turns.throttled(turn, pause)
                } else {
                    pause
                }
            })
        });
        match pause.flatten() {
            Some(pause) if Instant::now() + pause < deadline => {
                if error.is_unreachable() || (is_throttled && !is_silence(earlier.as_ref())) {
                    earlier = Some(error);
                }
                Box::pin(tokio::time::sleep(pause)).await;
            }
            _ => return Err(told(earlier, error)),
        }
    }
}

/// Returns the error that tells most of what became of a request: of an earlier try, or of the last.
fn told(earlier: Option<StoreError>, last: StoreError) -> StoreError {
    let is_cut_off = matches!(last, StoreError::Timeout | StoreError::NotSent);
    match earlier {
        Some(error) if error.is_unreachable() && last.is_transient() => error,
        Some(throttled) if is_cut_off && !throttled.is_unreachable() => throttled,
        _ => last,
    }
}

fn is_silence(error: Option<&StoreError>) -> bool {
    error.is_some_and(StoreError::is_unreachable)
}

/// The error of a request that was not sent: its turn would come too late.
fn no_turn() -> StoreError {
    StoreError::Throttled("the requests before this one take all the time that it has".into())
}

/// Returns whether the store has rejected the request, and may take it a moment later.
pub(super) fn is_rejected_for_now(error: &StoreError) -> bool {
    matches!(error, StoreError::Throttled(_) | StoreError::Conflict)
}

/// A wait for another attempt's outcome.
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
