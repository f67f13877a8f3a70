//! Bounds the runs that have tasks of their own, and waits for them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::engine::place::Place;

/// The runs of an engine that have tasks of their own.
#[derive(Debug)]
pub(crate) struct DetachedRuns {
    limit: u32,
    permits: Arc<Semaphore>,
    is_draining: AtomicBool,
}

/// A run that was admitted. Dropping this gives its place back, whatever else still holds it.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Place>);

impl Admitted {
    pub(crate) fn place(&self) -> Arc<Place> {
        Arc::clone(&self.0)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl DetachedRuns {
    pub(crate) fn up_to(limit: NonZeroU32) -> Self {
        let limit = limit.get();
        Self {
            limit,
            permits: Arc::new(Semaphore::new(limit as usize)),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Admits a run, which has its place until it ends, but not while it waits for another attempt;
    /// `None` where the limit is reached, or the engine drains.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        if self.is_draining() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        // Who gave the place back has it again at once, or not at all.
        let place = Place::new(&self.permits, permit, Some(Instant::now()), false);
        Some(Admitted(place))
    }

    /// Tells whether a run that has no place gets none any more.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Admits no further run, waits until each has ended, and returns the number of those that have
    /// not.
    pub(crate) async fn drain(&self, timeout: Duration) -> u32 {
        self.is_draining.store(true, Ordering::Relaxed);
        let all = self.permits.acquire_many(self.limit);
        if let Ok(all) = tokio::time::timeout(timeout, all).await {
            // Closed before they are given back: a run that was about to be admitted gets none.
            self.permits.close();
            drop(all);
            return 0;
        }
        // Each run that has its place holds the semaphore. Its free permits don't tell: another drain
        // may hold them.
        let runs = Arc::strong_count(&self.permits).saturating_sub(1);
        u32::try_from(runs).unwrap_or(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn two() -> DetachedRuns {
        DetachedRuns::up_to(NonZeroU32::new(2).unwrap())
    }

    #[test]
    fn a_run_beyond_the_limit_is_admitted_when_another_has_ended() {
        let runs = two();
        let first = runs.admit();
        let second = runs.admit();
        assert!(first.is_some() && second.is_some() && runs.admit().is_none());
        drop(first);
        assert!(runs.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_with_the_last_run_and_admits_no_other() {
        let runs = two();
        let last = runs.admit();
        let ended = async {
            tokio::time::sleep(LONG / 2).await;
            assert!(runs.admit().is_none());
            drop(last);
        };
        let (left, ()) = tokio::join!(runs.drain(LONG), ended);
        assert_eq!(left, 0);
        assert!(runs.admit().is_none());
        // Nor one that had looked before the draining began.
        assert!(Arc::clone(&runs.permits).try_acquire_owned().is_err());
        assert_eq!(runs.drain(LONG).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn draining_gives_up_after_its_time_and_counts_what_is_left() {
        let runs = two();
        let last = runs.admit();
        assert_eq!(runs.drain(LONG).await, 1);
        assert!(runs.admit().is_none());
        drop(last);
        assert_eq!(runs.drain(LONG).await, 0);
        // A second caller hears the same.
        assert_eq!(runs.drain(LONG).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn two_that_drain_side_by_side_count_the_same_runs() {
        let runs = two();
        let last = runs.admit();
        let ended = async {
            tokio::time::sleep(2 * LONG).await;
            drop(last);
        };
        let (hasty, patient, ()) = tokio::join!(runs.drain(LONG), runs.drain(3 * LONG), ended);
        assert_eq!((hasty, patient), (1, 0));
    }
}
