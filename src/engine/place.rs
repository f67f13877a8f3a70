//! The place of a message among those that a batch runs side by side.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// One of so many places. A message has it from its claim to the end of its handler, but not while it
/// waits for another attempt.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// When no message starts any more.
    stop: Option<Instant>,
}

impl Place {
    pub(crate) fn new(
        places: &Arc<Semaphore>,
        permit: OwnedSemaphorePermit,
        stop: Option<Instant>,
    ) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::clone(places),
            permit: Mutex::new(Some(permit)),
            stop,
        })
    }

    /// Gives the place back.
    pub(crate) fn leave(&self) {
        self.permit().take();
    }

    /// Takes a place again, where it was given back; `false` where none was free in time.
    pub(crate) async fn take(&self) -> bool {
        if self.permit().is_some() {
            return true;
        }
        let free = Arc::clone(&self.places).acquire_owned();
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
