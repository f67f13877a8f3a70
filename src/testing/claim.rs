//! Makes claims for handlers that a test calls directly, and ends attempts as a crash would.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Future;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;

use crate::engine::claim::steps::StepError;
use crate::engine::claim::{Claim, LOSSY, faithful};
use crate::engine::{Begun, Run};
use crate::idempotency::Idempotency;
use crate::protocol::digest::Digest;
use crate::protocol::key::Key;
use crate::store::process::Process;
use crate::store::{MemoryStore, Store};
use crate::testing::{ManualClock, TestError};

/// Makes a [`Claim`] for a handler that a test calls directly.
///
/// An engine gives the claim, so that all of it works: derived keys are those of production (under
/// the same [`namespace`](Self::namespace)), steps are recorded, and the time runs out by the
/// [`clock`](Self::clock). Earlier attempts are real, too: each claimed the key and died. A step whose
/// result does not read back from JSON is [`StepError::ResultOmitted`] at once, where production would
/// tell a later attempt alone.
///
/// ```
/// use lambda_idempotency::testing::TestClaim;
/// use lambda_idempotency::{Claim, Key, StepError};
///
/// async fn order(claim: Claim) -> Result<String, StepError<std::io::Error>> {
///     let receipt: String = claim.step("charge", async |key| Ok(format!("receipt under {key}"))).await?;
///     claim.step("mail", async |_key| Ok(())).await?;
///     Ok(receipt)
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The first attempt charged, and died before its mail.
/// let claim = TestClaim::new(Key::new("order", "A-17")).confirmed("charge", &"receipt 1")?.claim().await?;
/// assert_eq!(claim.attempt(), 2);
/// assert_eq!(order(claim).await?, "receipt 1");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it makes a claim when it is told to"]
pub struct TestClaim {
    key: Key,
    namespace: String,
    attempt: u32,
    lease: Duration,
    clock: ManualClock,
    steps: Vec<(String, Option<Value>)>,
}

impl TestClaim {
    /// Starts with the first attempt on this key.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            namespace: "tests".into(),
            attempt: 1,
            lease: Duration::from_mins(15),
            clock: ManualClock::default(),
            steps: Vec::new(),
        }
    }

    /// Sets the namespace, which derived keys depend on. `tests` unless set.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// Sets the number of the attempt. The attempts before it died in their handlers.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Sets the time until the claim's deadline. 15 minutes unless set.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the clock of the claim, to move it past the deadline while the handler runs. Earlier
    /// attempts move it forward by their leases.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a step that the attempt before has confirmed with this result. The claim's attempt is
    /// then at least the second.
    ///
    /// # Errors
    ///
    /// When the result isn't JSON, or JSON has the same form for another result.
    pub fn confirmed<T: Serialize + ?Sized>(
        mut self,
        step: impl Into<String>,
        result: &T,
    ) -> Result<Self, TestError> {
        if Digest::of(result).is_some_and(|digest| digest.is_lossy) {
            return Err(TestError::not_kept::<T>(LOSSY));
        }
        let result = serde_json::to_value(result)?;
        self.steps.push((step.into(), Some(result)));
        Ok(self)
    }

    /// Adds a step whose effect was under way when the attempt before died. The claim's attempt is
    /// then at least the second.
    pub fn pending(mut self, step: impl Into<String>) -> Self {
        self.steps.push((step.into(), None));
        self
    }

    /// Makes the claim, on a store in memory. Nothing ends it but its time.
    ///
    /// # Errors
    ///
    /// When the namespace, the key, the lease or a step's name can't be used.
    pub async fn claim(self) -> Result<Claim, TestError> {
        let run = self.begin(MemoryStore::new()).await?;
        let claim = run.claim().clone();
        // Dropped, the run would count as one whose work was cut off.
        mem::forget(run);
        Ok(claim)
    }

    /// Makes the run on this store. [`Run::claim`] is the claim for the handler, and [`Run::end`]
    /// stores its outcome together with what it handed to [`Claim::write`].
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim); or the store fails, or its record of the key has an outcome or is
    /// held by another attempt.
    pub async fn begin<S: Store>(self, store: S) -> Result<Run, TestError> {
        let once = Idempotency::builder(store)
            .namespace(self.namespace.as_str())
            .lease(self.lease)
            .clock(self.clock.clone())
            // Its environment may be a function's.
            .disabled(false)
            .strict()
            .build()?;
        let least = if self.steps.is_empty() { 1 } else { 2 };
        let attempt = self.attempt.max(least);
        for earlier in 1..attempt {
            let run = begin(&once, &self.key).await?;
            if earlier + 1 == attempt {
                self.record_steps(run.claim()).await?;
            }
            mem::forget(run);
            self.clock.pass_lease(&once);
        }
        begin(&once, &self.key).await
    }

    async fn record_steps(&self, claim: &Claim) -> Result<(), TestError> {
        for (name, result) in &self.steps {
            let failed = |reason: String| TestError::Step {
                step: name.clone(),
                reason,
            };
            let Some(result) = result else {
                let crash = Crash::new();
                let step = claim.step(name.as_str(), |_| crash.here::<Result<(), Infallible>>());
                let cut_off = crash.cut_off(step).await;
                cut_off.map_err(|error| failed(error.to_string()))?;
                continue;
            };
            let effect = async |_| Ok::<_, Infallible>(result.clone());
            let recorded: Result<Value, StepError<Infallible>> =
                claim.step(name.as_str(), effect).await;
            recorded.map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }
}

async fn begin(once: &Idempotency, key: &Key) -> Result<Run, TestError> {
    match once.begin(key.clone(), None).await? {
        Begun::Run(run) => Ok(run),
        Begun::Replay(_) => Err(TestError::Replayed),
    }
}

/// The point at which the process of an attempt dies.
///
/// [`FaultyStore::crash_before`] and [`FaultyStore::crash_after`] make a point at a call of the
/// store, for a handler that stays as it is. [`here`](Self::here) is a point inside the test's own
/// double of a service. [`cut_off`](Self::cut_off) runs the attempt until it gets there. Clones are
/// one point.
///
/// With the attempt end the tasks that this crate has spawned for it: those that send the writes of a
/// batch together, and [detached](crate::Idempotency::run_detached) runs. Tasks that your own code has
/// spawned go on, and write. [Groups of requests](crate::Settings::group_requests) are part of a
/// process: with them, give each attempt that dies an engine of its own, over a store that they share.
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

    /// Runs the attempt until it reaches the point, and ends it there, with the tasks that this crate
    /// has spawned for it.
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
        let process = Process::default();
        let attempt = Box::pin(process.run(attempt));
        let ended = match select(attempt, pin!(self.reached.notified())).await {
            Either::Left((ended, _)) => Err(TestError::NotCrashed {
                ended: format!("{ended:?}"),
            }),
            Either::Right(((), attempt)) => {
                process.die();
                mem::forget(attempt);
                Ok(())
            }
        };
        // This attempt may have reached the point once more, which the next one has not.
        self.reached.notified().now_or_never();
        ended
    }
}

/// Checks that a handler's outcome, or a step's result, reads back from its record as the same value.
///
/// Stronger than the check in production, which can't compare: it sees a field that the type leaves
/// out, too.
///
/// ```
/// use lambda_idempotency::testing::reads_back;
///
/// #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// struct Receipt {
///     cents: u32,
///     #[serde(skip)]
///     printed: bool,
/// }
///
/// assert!(reads_back(&Receipt { cents: 1250, printed: false }).is_ok());
/// assert!(reads_back(&Receipt { cents: 1250, printed: true }).is_err());
/// assert!(reads_back(&Some(())).is_err());
/// assert!(reads_back(&f64::NAN).is_err());
/// ```
///
/// # Errors
///
/// [`TestError::NotKept`] says why it doesn't.
pub fn reads_back<T>(value: &T) -> Result<(), TestError>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let text = faithful(value).map_err(TestError::not_kept::<T>)?;
    if serde_json::from_str::<T>(&text)? == *value {
        return Ok(());
    }
    Err(TestError::not_kept::<T>("it reads back as another value"))
}
