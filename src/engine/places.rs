//! Places for runs at one time: of a batch, and of detached runs, which may outlive their callers.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::protocol::lock::lock;

/// The runs of an engine that have their own tasks.
#[derive(Debug)]
pub(crate) struct DetachedRuns {
    limit: u32,
    permits: Arc<Semaphore>,
    is_draining: AtomicBool,
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

    /// Admits a run and returns its place, which the run has until it ends, but not while it waits for
    /// another attempt; `None` where the limit is reached, or the engine drains.
    pub(crate) fn admit(&self) -> Option<Arc<Place>> {
        if self.is_draining() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        // A run that gave the place back has it again at once, or not at all.
        let stop = Some(Instant::now());
        Some(Place::new(&self.permits, permit, stop, false))
    }

    /// Returns whether a run that has no place gets none any more.
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

/// One of so many places: those of a batch's messages, or of an engine's detached runs. A run has it
/// from its claim to the end of its handler, but not while it waits for another attempt, unless it
/// stays.
#[derive(Debug)]
pub(crate) struct Place {
    places: Weak<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// The time until which it waits to have its place again.
    stop: Option<Instant>,
    /// A run that waits keeps it, for what it holds in memory.
    stays: bool,
}

impl Place {
    pub(crate) fn new(
        places: &Arc<Semaphore>,
        permit: OwnedSemaphorePermit,
        stop: Option<Instant>,
        stays: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::downgrade(places),
            permit: Mutex::new(Some(permit)),
            stop,
            stays,
        })
    }

    /// Returns until when it waits to have its place again.
    pub(crate) fn stop(&self) -> Option<Instant> {
        self.stop
    }

    /// Frees the place during a wait.
    pub(crate) fn leave_to_wait(&self) {
        if !self.stays {
            self.leave();
        }
    }

    /// Frees the place.
    pub(crate) fn leave(&self) {
        lock(&self.permit).take();
    }

    /// Returns whether it was not given back.
    pub(crate) fn is_held(&self) -> bool {
        lock(&self.permit).is_some()
    }

    /// Takes a place again after it was given back; `false` where none was free in time.
    pub(crate) async fn take(&self) -> bool {
        let Some(places) = self.places.upgrade() else {
            return false;
        };
        let free = places.acquire_owned();
        let permit = match self.stop {
            Some(stop) => timeout_at(stop, free).await.ok(),
            None => Some(free.await),
        };
        let Some(Ok(permit)) = permit else {
            return false;
        };
        *lock(&self.permit) = Some(permit);
        true
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

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_taken_again_is_held_and_free_for_nobody_else() {
        let places = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&places).try_acquire_owned().unwrap();
        let place = Place::new(&places, permit, Some(Instant::now()), false);
        place.leave_to_wait();
        assert!(!place.is_held() && places.available_permits() == 1);
        assert!(place.take().await);
        assert!(place.is_held() && places.available_permits() == 0);
        place.leave();
        let another = Arc::clone(&places).try_acquire_owned().unwrap();
        assert!(!place.take().await && !place.is_held(), "none is free");
        drop(another);
        drop(places);
        assert!(!place.take().await, "there are no places any more");
    }
}
