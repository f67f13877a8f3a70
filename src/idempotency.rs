//! The typed interface of the engine runs a handler between [`Idempotency::begin`] and
//! [`Run::end`](crate::Run::end).

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::join;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::engine::claim::{Claim, to_faithful_json};
use crate::engine::error::{Error, Obstacle};
use crate::engine::time::{Times, ending};
use crate::engine::{Begun, Disposition, Ended, Engine, OnDrop, Options, Replay, Replayed};
use crate::protocol::causes::{HandlerError, name_causes_of};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError, RecordId};
use crate::store::{DynStore, StoreError};

mod builder;
#[cfg(any(feature = "batch", feature = "invoke"))]
pub(crate) mod source_retention;

#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
use crate::engine::settings::InFlight;
#[cfg(feature = "http")]
use crate::engine::settings::OnMissingKey;
#[cfg(feature = "batch")]
use crate::engine::{Batch, Place};
pub use crate::idempotency::builder::Builder;

/// Runs handlers so that a request which comes twice takes effect once.
///
/// Cheap to clone; make one at start-up and share it.
///
/// ```
/// use lambda_idempotency::{Fingerprint, Idempotency, Key, Outcome, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// let payload = br#"{"order": "A-17", "amount": 1250}"#;
/// let charge = || async {
///     once.run(Key::new("charge", "A-17"), Fingerprint::json(payload), |_claim| async {
///         Ok::<_, std::io::Error>("receipt 1".to_owned())
///     })
///     .await
/// };
///
/// assert!(matches!(charge().await?, Outcome::Executed(receipt) if receipt == "receipt 1"));
/// assert!(matches!(charge().await?, Outcome::Replayed(receipt, _) if receipt == "receipt 1"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Idempotency {
    engine: Arc<Engine>,
    options: Options,
}

impl Idempotency {
    pub(crate) fn of(engine: Engine) -> Self {
        Self {
            engine: Arc::new(engine),
            options: Options::default(),
        }
    }

    fn with(&self, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = self.options.clone();
        change(&mut options);
        Self {
            engine: Arc::clone(&self.engine),
            options,
        }
    }

    /// Binds the engine to an invocation that ends at `deadline`: claims last until then, plus the
    /// skew margin. [`at_deadline`](crate::Settings::at_deadline) says what happens to a handler that still
    /// runs then.
    ///
    /// In a Lambda handler, `invocation` (feature `lambda`) does it. The layers of this crate do so
    /// by themselves.
    ///
    /// A deadline that has passed and is earlier than this engine was built, by its own clock, isn't
    /// the end of the invocation (`cargo lambda watch` sends such a deadline). The engine ignores it,
    /// warns once, and its claims last for the configured [`lease`](Builder::lease), or are
    /// [renewed](Builder::renewed_lease).
    #[must_use]
    pub fn deadline(&self, deadline: SystemTime) -> Self {
        let Engine {
            clock,
            deadlines,
            settings,
            ..
        } = &*self.engine;
        self.with(|options| {
            options.deadline = None;
            let renewed = settings.lease_to_renew(options);
            let lease = renewed.unwrap_or(settings.lease);
            options.deadline = deadlines.known(deadline.into(), clock.now(), lease);
        })
    }

    /// Binds the engine to this invocation and its [deadline](Self::deadline).
    ///
    /// ```
    /// use lambda_idempotency::{Error, Idempotency, Key, store::MemoryStore};
    /// use lambda_runtime::LambdaEvent;
    ///
    /// async fn charge(once: &Idempotency, event: LambdaEvent<String>) -> Result<u32, Error<std::io::Error>> {
    ///     let once = once.invocation(&event.context);
    ///     let outcome = once.run(Key::new("charge", event.payload), None, |_| async { Ok(1250) });
    ///     Ok(outcome.await?.into_inner())
    /// }
    /// ```
    #[cfg(feature = "lambda")]
    #[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
    #[must_use]
    pub fn invocation(&self, context: &lambda_runtime::Context) -> Self {
        self.deadline(context.deadline())
    }

    /// Returns the engine in its **claimless form**, for handlers whose whole effect is the writes
    /// that they hand to [`Claim::write`].
    ///
    /// Nothing is claimed before the handler. After it, one transaction says "this key has no
    /// record yet" and holds the record and the writes: one request, exactly once, and no lease to
    /// wait for after a crash. Without writes it is a single write of the record. A duplicate runs
    /// the handler too (which has no effect of its own), loses, and gets the stored outcome; one
    /// that is known to be a redelivery (SQS) reads first.
    ///
    /// Anything else that the handler does, an e-mail, a call, its own write, is done by each
    /// duplicate. Use the claimed form for those.
    ///
    /// `dynamodb` has an example.
    #[must_use]
    pub fn claimless(&self) -> Self {
        self.with(|options| options.claimless = true)
    }

    /// Returns the engine with this retention and this policy for a missing key, where they are given.
    #[cfg(feature = "http")]
    pub(crate) fn with_overrides(
        &self,
        retention: Option<Duration>,
        missing_key: Option<OnMissingKey>,
    ) -> Self {
        self.with(|options| {
            options.retention = retention.or(options.retention);
            options.missing_key = missing_key.or(options.missing_key);
        })
    }

    /// Returns the engine with a hint: where a record is expected it is read before a claim is tried.
    #[cfg(feature = "batch")]
    pub(crate) fn read_first(mut self, read_first: bool) -> Self {
        self.options.read_first = read_first;
        self
    }

    /// Binds the engine to the requests of one batch, whose replays are not read. Drive the batch,
    /// or its groups don't leave. No store call lasts beyond `store_end`. With
    /// `keeps_failures`, a failure is kept as long as another outcome.
    #[cfg(feature = "batch")]
    pub(crate) fn batch(
        &self,
        grouped: bool,
        requests: usize,
        store_end: Option<tokio::time::Instant>,
        keeps_failures: bool,
    ) -> Self {
        let store = grouped.then(|| Arc::clone(&self.engine.store));
        let batch = Batch::new(store, requests, store_end, keeps_failures);
        self.with(|options| {
            options.wants_outcome = false;
            options.batch = Some(Arc::new(batch));
        })
    }

    /// Binds the engine to one message, which gives its place back while it waits.
    #[cfg(feature = "batch")]
    pub(crate) fn in_place(mut self, place: Arc<Place>) -> Self {
        self.options.place = Some(place);
        self
    }

    /// Returns the engine without replays of outcomes: a large one needn't be kept or read.
    #[cfg(feature = "invoke")]
    pub(crate) fn without_outcome(mut self) -> Self {
        self.options.wants_outcome = false;
        self
    }

    /// Returns whether work goes on after the deadline of its invocation.
    pub(crate) fn goes_on(&self) -> bool {
        self.engine.settings.work_goes_on(&self.options)
    }

    /// Returns whether a call waits while another attempt is in flight.
    #[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
    pub(crate) fn waits(&self) -> bool {
        self.engine.settings.in_flight != InFlight::FailFast
    }

    /// Returns whether a handler is ended at the deadline of its invocation. Where nothing is protected,
    /// nothing is ended either.
    pub(crate) fn ends_handlers(&self) -> bool {
        !self.goes_on() && !self.is_passive()
    }

    /// Returns the instants that end a handler and what follows it, where a deadline does.
    pub(crate) fn times(&self, reserve: Option<Duration>) -> Option<Times> {
        let remaining = self.remaining().filter(|_| self.ends_handlers())?;
        Some(Times::of(remaining, reserve))
    }

    /// Tells how much time the invocation has left, where its deadline is known.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let deadline = self.options.deadline?;
        Some(deadline.saturating_since(self.engine.clock.now()))
    }

    /// Returns the store that the records live in: for tools and tests that look at a record.
    #[doc(hidden)]
    pub fn store(&self) -> &dyn DynStore {
        &*self.engine.store
    }

    /// Returns the id of a key's record in this engine's namespace: to look it up, or to find
    /// duplicates within one batch.
    ///
    /// # Errors
    ///
    /// When the key can't be used.
    pub fn record_id(&self, key: &Key) -> Result<RecordId, KeyError> {
        self.engine.record_id(key)
    }

    /// Begins a request and gives a run, or the outcome of an earlier one. For work that is not a
    /// closure; [`run`](Self::run) is this and [`Run::end`](crate::Run::end) around a handler.
    ///
    /// ```
    /// use lambda_idempotency::{Begun, Disposition, Fingerprint, Idempotency, Key, store::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// for expected in ["charged", "replayed"] {
    ///     let done = match once.begin(Key::new("charge", "A-17"), Fingerprint::json(b"{}")).await? {
    ///         Begun::Run(run) => {
    ///             let receipt = run.claim().derive_key("gateway"); // charge the card here
    ///             run.end(Disposition::Complete(Ok(format!("\"{receipt}\"")))).await?;
    ///             "charged"
    ///         }
    ///         Begun::Replay(replayed) => {
    ///             assert_eq!(replayed.decode::<String>()?.len(), 64);
    ///             "replayed"
    ///         }
    ///     };
    ///     assert_eq!(done, expected);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The obstacle, where there is neither: [`Error`] says what each means.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped may leave a claim, which the engine's next call releases.
    pub async fn begin(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
    ) -> Result<Begun, Error<Infallible>> {
        let options = self.options.clone();
        self.engine
            .begin(key.into(), fingerprint.into(), options)
            .await
    }

    /// Runs the handler once for this key, or replays what it produced.
    ///
    /// The key is resolved and the fingerprint taken before the handler runs, so nothing that the
    /// handler does to its input changes either. `key` may be an `Option`, for sources where it may
    /// be missing; `fingerprint` may be `None` where the payload says nothing about the request. An
    /// error of the handler's ends the lease, so that a retry runs at once;
    /// [`run_with`](Self::run_with) decides otherwise.
    ///
    /// The value comes back from storage on a replay, so it is decoded once before it is stored. One
    /// whose JSON form gives another value (NaN, `Some(())`) is returned and not kept: a duplicate
    /// gets [`Error::OutcomeOmitted`]. Not seen are fields that the type itself leaves out, as
    /// `#[serde(skip)]` does, and, below the value itself, `#[serde(untagged)]` variants of equal
    /// form: such an outcome comes back as the first of them.
    ///
    /// # Errors
    ///
    /// [`Error::Handler`] with the handler's own error; any other [`Error`] says why nothing ran,
    /// or why the result isn't certain.
    ///
    /// # Panics
    ///
    /// When the handler panics: the claim is released first (unless crashed attempts wait for a
    /// person), then the panic continues.
    ///
    /// # Cancellation
    ///
    /// Dropped, it ends the handler wherever it is, as the deadline does under
    /// [`AtDeadline::End`](crate::AtDeadline::End). The engine's next call releases the key, or sends
    /// the completion that was decided; under [`OnCrash::Interrupt`](crate::OnCrash) a dropped
    /// handler's lease runs out. Where callers go away, use [`run_detached`](Self::run_detached).
    pub async fn run<T, E, M, F, Fut>(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: HandlerError<M>,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.run_with(key, fingerprint, handler, |result| result.into())
            .await
    }

    /// Runs the handler as [`run`](Self::run) does, and lets `verdict` decide what becomes of each
    /// result: stored, released, or failed permanently.
    ///
    /// ```
    /// # use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, Verdict, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// #[derive(Debug, thiserror::Error)]
    /// enum PaymentError {
    ///     #[error("card declined")]
    ///     Declined,
    ///     #[error("gateway unreachable")]
    ///     Unreachable,
    /// }
    ///
    /// let verdict = |result: &Result<String, PaymentError>| match result {
    ///     Ok(_) => Verdict::Complete,
    ///     Err(PaymentError::Declined) => Verdict::Fail, // a retry gets the same answer
    ///     Err(PaymentError::Unreachable) => Verdict::Release, // a retry runs
    /// };
    /// let pay = || once.run_with(Key::new("charge", "A-18"), None, |_| async { Err(PaymentError::Declined) }, verdict);
    /// assert!(matches!(pay().await, Err(Error::Handler(PaymentError::Declined))));
    /// assert!(matches!(pay().await, Err(Error::Failed(failure)) if failure.message == "card declined"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub async fn run_with<T, E, M, F, Fut>(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: HandlerError<M>,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let times = self.times(None);
        let begun = match self.begin(key, fingerprint).await {
            Ok(Begun::Run(run)) => Box::pin(run.in_time(times)).await,
            begun => begun,
        };
        let run = match begun.map_err(Obstacle::widen)? {
            Begun::Run(run) => run,
            Begun::Replay(replayed) => return given(&replayed),
        };
        let claim = run.claim().clone();
        // The call itself is inside, too: a handler may panic before it returns its future. Boxed,
        // since its size is not known, and each future around it would have room for it, too.
        let running = Box::pin(async move { handler(claim).await });
        let running = AssertUnwindSafe(running).catch_unwind();
        let end = times.map(|times| times.end);
        let result = match run.within(end, running).await {
            Some(Ok(result)) => result,
            Some(Err(panic)) => {
                Box::pin(ending(times, run.panicked())).await;
                resume_unwind(panic);
            }
            None => {
                let ended = Box::pin(run.timed_out(times)).await;
                return Err(ended.widen());
            }
        };
        // The caller's verdict may panic, after a handler that succeeded: then the default verdict
        // applies.
        if let Err(error) = &result {
            name_causes_of::<E, M>();
            self.log_error(run.claim(), error);
        }
        let verdict = catch_unwind(AssertUnwindSafe(|| verdict(&result)))
            .unwrap_or_else(|_| Verdict::from(&result));
        let disposition = match (&result, verdict) {
            (Ok(_), Verdict::Release) => Disposition::Release(None),
            (Ok(value), _) => run.completion(|| to_faithful_json(value)),
            (Err(error), verdict) => Disposition::of_error(error, verdict != Verdict::Release),
        };
        match (run.ended(disposition).await, result) {
            (Ok(Ended::Replay(replayed)), _) => given(&replayed),
            (Ok(Ended::Done), Ok(value)) => Ok(Outcome::Executed(value)),
            (Ok(Ended::Unrecorded(_)), Ok(value)) => Ok(Outcome::Unrecorded(value)),
            (Ok(Ended::Unprotected), Ok(value)) => Ok(Outcome::Unprotected(value)),
            (Ok(_), Err(error)) => Err(Error::Handler(error)),
            // The handler's own answer to the condition of a write.
            (Err(Error::Refused(refusal)), _) => Err(match refusal.into_answer() {
                Ok(error) => Error::Handler(error),
                Err(refusal) => Error::Refused(refusal),
            }),
            (Err(obstacle), _) => Err(obstacle.widen()),
        }
    }
}

fn given<T: DeserializeOwned, E>(replayed: &Replayed) -> Result<Outcome<T>, Error<E>> {
    let value = replayed.decode().map_err(Obstacle::widen)?;
    Ok(Outcome::Replayed(value, replayed.replay))
}

impl Idempotency {
    /// Runs the handler as [`run`](Self::run) does, in its own task that the caller joins: for
    /// servers, where the caller may go away meanwhile.
    ///
    /// Claim, handler and completion go on when the returned future is dropped, so that a retry is
    /// given the outcome. At most [`detached_limit`](crate::Settings::detached_limit) runs go on at
    /// a time. A server calls [`drain`](Self::drain) before its process ends.
    ///
    /// The task has the caller's tracing span and subscriber; task-locals stay behind. An engine
    /// that is bound to an invocation's [deadline](Self::deadline) spawns nothing where work
    /// [ends](crate::AtDeadline::End) with it, since Lambda freezes what goes on after the reply:
    /// there it is [`run`](Self::run).
    ///
    /// ```
    /// use lambda_idempotency::{Fingerprint, Idempotency, Key, store::MemoryStore};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let charge = || {
    ///     once.run_detached(Key::new("charge", "A-17"), Fingerprint::json(b"{}"), |_claim| async {
    ///         tokio::time::sleep(Duration::from_millis(50)).await;
    ///         Ok::<_, std::io::Error>("receipt 1".to_owned())
    ///     })
    /// };
    /// // The caller gives up before the handler has ended.
    /// assert!(tokio::time::timeout(Duration::from_millis(10), charge()).await.is_err());
    ///
    /// let left = once.drain(Duration::from_secs(5)).await;
    /// assert_eq!(left, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); and [`Error::Overloaded`] where the limit is reached or the engine
    /// drains. [`Error::Unrecorded`] where the runtime shut down and cut the task off.
    ///
    /// # Panics
    ///
    /// When the handler panics, as [`run`](Self::run) does; and outside of a tokio runtime.
    ///
    /// # Cancellation
    ///
    /// The run goes on; one that still [waits](crate::InFlight::WaitUpTo) for another attempt ends
    /// within about a second. A future that was never polled has started nothing.
    pub async fn run_detached<T, E, M, F, Fut>(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: HandlerError<M> + Send,
        M: 'static,
        F: FnOnce(Claim) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let (key, fingerprint) = (key.into(), fingerprint.into());
        let run = async move |once: Self| once.run(key, fingerprint, handler).await;
        if self.ends_with_invocation() {
            return run(self.clone()).await;
        }
        self.detach(run).await.map_err(Obstacle::widen)?
    }

    /// Waits until the detached runs of this engine have ended, sends the endings that runs have left, and
    /// returns the number of both that are left when `timeout` is over: 0 is a clean end. From the call on,
    /// no other detached run begins: it is answered with [`Error::Overloaded`].
    ///
    /// A server calls it when it has stopped to accept connections, and then ends its process. A
    /// run that is left is cut off with the process: its effect may have happened, its outcome is
    /// not stored, and its key is free when its lease is over. The log then has the event
    /// `drain_timed_out`, with the number in `left`. Drain for longer, or give handlers a shorter
    /// timeout than this one.
    #[must_use = "the number of runs that were left, which end with the process before their outcomes are stored: log it, and drain for longer where it isn't 0"]
    pub async fn drain(&self, timeout: Duration) -> u32 {
        let began = tokio::time::Instant::now();
        // A run that hangs keeps no ending back that was left before.
        let draining = self.engine.detached.drain(timeout);
        let (runs, _) = join(draining, self.engine.send_all(timeout)).await;
        let rest = timeout.saturating_sub(began.elapsed());
        let left = runs.saturating_add(self.engine.send_all(rest).await);
        if left > 0 {
            tracing::warn!(
                event = "drain_timed_out",
                left,
                detail = format!(
                    "{left} runs or endings are left after {timeout:?}: if the process ends now, they are cut off before their outcomes are stored, and a retry runs again when the lease is over; drain for longer, or give handlers a shorter timeout"
                ),
                "idempotency"
            );
        }
        left
    }

    /// Returns whether the engine is bound to the deadline of an invocation that ends its work.
    pub(crate) fn ends_with_invocation(&self) -> bool {
        self.options.deadline.is_some() && !self.goes_on()
    }

    /// Runs this in its own task, and joins it.
    pub(crate) async fn detach<T, Fut>(&self, run: impl FnOnce(Self) -> Fut) -> Result<T, Obstacle>
    where
        T: Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let Some(place) = self.engine.detached.admit() else {
            tracing::warn!(event = "overloaded", "idempotency");
            return Err(Error::Overloaded);
        };
        let caller = Arc::new(());
        let run = run(self.with(|options| {
            options.caller = Some(Arc::downgrade(&caller));
            options.place = Some(Arc::clone(&place));
        }));
        // The place is free when the run has ended, whatever still holds it.
        let free = OnDrop::new(move || place.leave());
        let task = async move {
            let _free = free;
            run.await
        };
        let task = task.in_current_span().with_current_subscriber();
        #[cfg(feature = "test-util")]
        let task = crate::store::process::ending_with_it(task);
        let joined = tokio::spawn(task).await;
        drop(caller);
        joined.map_err(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(cancelled) => Error::Unrecorded(StoreError::Unavailable(cancelled.into())),
        })
    }
}

/// The outcome of a run has the handler's value, and says where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The handler ran now, and its verdict was carried out.
    Executed(T),
    /// Another attempt's outcome. The handler ran only in the claimless form, or if it outlived its lease.
    Replayed(T, Replay),
    /// The handler ran now and succeeded, but its outcome could not be recorded: a duplicate may
    /// run again when the lease is over.
    Unrecorded(T),
    /// The handler ran now, unprotected.
    Unprotected(T),
}

impl<T> Outcome<T> {
    /// Returns the value, wherever it came from.
    pub fn into_inner(self) -> T {
        match self {
            Self::Executed(value)
            | Self::Replayed(value, _)
            | Self::Unrecorded(value)
            | Self::Unprotected(value) => value,
        }
    }

    /// Returns the value, wherever it came from.
    pub fn get(&self) -> &T {
        match self {
            Self::Executed(value)
            | Self::Replayed(value, _)
            | Self::Unrecorded(value)
            | Self::Unprotected(value) => value,
        }
    }

    /// Returns whether the value is another attempt's outcome.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed(..))
    }
}

/// The verdict decides what becomes of the claim when the handler has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The result is final: it is stored, and replayed to duplicates. On an `Err`, the same as
    /// [`Fail`](Self::Fail).
    Complete,
    /// The result is not final: the lease ends, so that a retry runs at once.
    Release,
    /// The failure is one that no retry will fix: it is stored, and replayed to duplicates. On an
    /// `Ok`, the same as [`Complete`](Self::Complete); on an HTTP response, without its
    /// [writes](Claim::write).
    Fail,
}

/// The default verdict: a success is final, an error is not.
impl<T, E> From<&Result<T, E>> for Verdict {
    fn from(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Complete,
            Err(_) => Self::Release,
        }
    }
}
