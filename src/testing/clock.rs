//! Sets the time by hand, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::idempotency::Idempotency;
use crate::protocol::clock::{Clock, EpochMillis, SystemClock};

/// Covers the fraction of a second by which a stored expiration is rounded up.
const LEAST: Duration = Duration::from_secs(1);

/// The clock moves only when the test sets it. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    millis: Arc<AtomicI64>,
}

impl ManualClock {
    /// Makes a clock that is stopped at this time.
    pub fn at(now: EpochMillis) -> Self {
        Self {
            millis: Arc::new(AtomicI64::new(now.0)),
        }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let later = |millis| Some((EpochMillis(millis) + by).0);
        let _ = self
            .millis
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }

    /// Moves the clock forward past the [`lease`](crate::Builder::lease) of each claim that this
    /// engine has given by now, a [renewed](crate::Builder::renewed_lease) one included, and past the
    /// pause of [`RunAgainAfter`](crate::OnCrash::RunAgainAfter): an attempt that died is taken over.
    ///
    /// A claim that is bound to an invocation lasts until its deadline instead:
    /// [`advance`](Self::advance) passes it, where it is later. [`Crash`](super::Crash) has an
    /// example.
    ///
    /// # Panics
    ///
    /// When the engine has another clock, for which no time passes. A test could pass for the wrong
    /// reason then.
    #[track_caller]
    pub fn pass_lease(&self, once: &Idempotency) {
        self.pass(once, once.stored_lease());
    }

    /// Moves the clock forward past the [`retention`](crate::Builder::retention) of each outcome that
    /// this engine has stored by now, 7 days unless it is set: the key is fresh again. What a route, a
    /// message or a layer keeps for longer stays (`InvokeLayer::sns` keeps outcomes for 30 days unless
    /// it is set): [`advance`](Self::advance) by that time, and two seconds for the margin of clocks.
    ///
    /// ```
    /// use lambda_idempotency::testing::ManualClock;
    /// use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::default();
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("tests").clock(clock.clone()).build()?;
    /// let run = || once.run(Key::new("charge", "A-17"), None, async |_| Ok::<_, std::io::Error>(1250));
    ///
    /// assert!(!run().await?.is_replayed());
    /// assert!(run().await?.is_replayed());
    /// clock.pass_retention(&once);
    /// assert!(!run().await?.is_replayed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// When the engine has another clock, for which no time passes.
    #[track_caller]
    pub fn pass_retention(&self, once: &Idempotency) {
        self.pass(once, once.stored_retention());
    }

    /// Moves the clock past this time, and looks whether the engine's clock moves with it: a clock
    /// that reads this one passes, and the machine's doesn't.
    #[track_caller]
    fn pass(&self, once: &Idempotency, time: Duration) {
        let (before, of_engine) = (self.now(), once.now());
        self.advance(time.saturating_add(LEAST));
        let passed = self.now().saturating_since(before);
        assert!(
            once.now().saturating_since(of_engine) >= passed,
            "the engine has another clock than this ManualClock, so that no time passes for it: call `.clock(clock.clone())` on `Idempotency::builder(…)`, and pass the time of that clock"
        );
    }

    /// Moves the clock to this time, forward or back.
    pub fn set(&self, now: EpochMillis) {
        self.millis.store(now.0, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Makes a clock that is stopped at the machine's time: a server that sweeps expired records by
    /// its own clock then keeps the test's records.
    fn default() -> Self {
        Self::at(SystemClock.now())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> EpochMillis {
        EpochMillis(self.millis.load(Ordering::SeqCst))
    }
}
