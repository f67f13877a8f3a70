//! Ends an attempt as the death of its process does.

use std::fmt::Debug;
use std::future::Future;
use std::mem;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use tokio::sync::Notify;

use super::TestError;

/// The point at which the process of an attempt dies.
///
/// [`FaultyStore::crash_before`] and [`FaultyStore::crash_after`] make a point at a call of the
/// store, for a handler that stays as it is. [`here`](Self::here) is a point inside the test's own
/// double of a service. [`cut_off`](Self::cut_off) runs the attempt until it gets there. Clones are
/// one point.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use lambda_idempotency::testing::{Call, FaultyStore, ManualClock};
/// use lambda_idempotency::{Error, Idempotency, Key, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::default();
/// let store = FaultyStore::new(MemoryStore::new());
/// let once = Idempotency::builder(store.clone()).namespace("payments").clock(clock.clone()).build()?;
/// let charges = AtomicU32::new(0);
/// let charge = || once.run(Key::new("charge", "A-17"), None, async |claim| {
///     charges.fetch_add(1, Ordering::Relaxed);
///     Ok::<_, std::io::Error>(claim.attempt())
/// });
///
/// // The process dies after the effect, before its outcome is stored.
/// store.crash_before(Call::Complete).cut_off(charge()).await?;
/// assert!(matches!(charge().await, Err(Error::InFlight { .. })));
///
/// // When the lease is over, the next delivery takes over.
/// clock.pass_lease(&once);
/// assert_eq!(charge().await?.into_inner(), 2);
/// assert_eq!(charges.into_inner(), 2);
/// # Ok(()) }
/// ```
///
/// [`FaultyStore::crash_before`]: super::FaultyStore::crash_before
/// [`FaultyStore::crash_after`]: super::FaultyStore::crash_after
#[derive(Clone, Debug, Default)]
pub struct Crash {
    reached: Arc<Notify>,
}

impl Crash {
    /// Makes a point that nothing has reached.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the point as reached, and never returns. For a test's double of a service that the
    /// handler calls: the process dies in this call.
    ///
    /// ```
    /// use lambda_idempotency::testing::Crash;
    /// use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let crash = Crash::new();
    /// let charge = once.run(Key::new("charge", "A-17"), None, async |_claim| {
    ///     crash.here::<Result<(), std::io::Error>>().await
    /// });
    /// crash.cut_off(charge).await?;
    /// # Ok(()) }
    /// ```
    pub async fn here<T>(&self) -> T {
        self.reached.notify_one();
        std::future::pending().await
    }

    /// Runs the attempt until it reaches the point, and ends it there.
    ///
    /// The attempt's future is leaked: a process that dies runs no destructor, whereas a future that
    /// is dropped releases its claim with the engine's next call.
    ///
    /// # Errors
    ///
    /// [`TestError::NotCrashed`] with the attempt's result, where it ended without reaching the
    /// point.
    pub async fn cut_off<T: Debug>(
        &self,
        attempt: impl Future<Output = T>,
    ) -> Result<(), TestError> {
        let attempt = Box::pin(attempt);
        match select(attempt, pin!(self.reached.notified())).await {
            Either::Left((ended, _)) => Err(TestError::NotCrashed {
                ended: format!("{ended:?}"),
            }),
            Either::Right(((), attempt)) => {
                mem::forget(attempt);
                Ok(())
            }
        }
    }
}
