//! The place of a run among those that go on side by side.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// One of so many places: those of a batch's messages, or of an engine's detached runs. A run has it
/// from its claim to the end of its handler, but not while it waits for another attempt, unless it
/// stays.
#[derive(Debug)]
pub(crate) struct Place {
    places: Weak<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Until when it waits to have its place again.
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

    /// Gives the place back for the time of a wait.
    pub(crate) fn leave_to_wait(&self) {
        if !self.stays {
            self.leave();
        }
    }

    /// Gives the place back.
    pub(crate) fn leave(&self) {
        self.permit().take();
    }

    /// Tells whether it was not given back.
    pub(crate) fn is_held(&self) -> bool {
        self.permit().is_some()
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
        *self.permit() = Some(permit);
        true
    }

    fn permit(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
