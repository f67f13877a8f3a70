//! Sets the retention of one operation.

use std::time::Duration;

use super::Idempotency;

impl Idempotency {
    /// Gives the engine with another retention for its outcomes than
    /// [`Builder::retention`](crate::Builder::retention): for one operation of several. A layer
    /// that is made of it keeps its outcomes for as long, too. A retention under a second is one of
    /// a second.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lambda_idempotency::{Fingerprint, Idempotency, Key, store::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let payments = once.retention(Duration::from_secs(90 * 86_400));
    /// let payload = Fingerprint::json(b"{}");
    /// let charge = |_| async { Ok::<_, std::io::Error>("receipt 1".to_owned()) };
    /// let receipt = payments.run(Key::new("charge", "A-17"), payload, charge).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Failures for good are kept for
    /// [`Builder::failure_retention`](crate::Builder::failure_retention) all the same.
    #[must_use]
    pub fn retention(&self, retention: Duration) -> Self {
        self.with(|options| options.retention = Some(retention))
    }

    /// Gives the engine another default for the retention; a retention that was set stays.
    #[cfg(any(feature = "http", feature = "invoke"))]
    pub(crate) fn default_retention(mut self, retention: Duration) -> Self {
        self.options.default_retention = retention;
        self
    }

    /// Gives the engine this retention, where it is given.
    #[cfg(any(feature = "batch", feature = "invoke"))]
    pub(crate) fn keep_for(mut self, retention: Option<Duration>) -> Self {
        self.options.retention = retention.or(self.options.retention);
        self
    }
}
