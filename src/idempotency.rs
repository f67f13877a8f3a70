//! The engine's public face, and the one place that knows the order: claim, handler, then complete or release.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::claim::Claim;
use crate::clock::{Clock, EpochMillis};
use crate::engine::{Acquired, Deadlines, Engine, Request};
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, KeyError, Namespace, RecordId};
#[cfg(feature = "sqs")]
use crate::metrics::Count;
use crate::observe;
use crate::outcome::{Outcome, Verdict};
use crate::owner::Owners;
use crate::record::Owner;
use crate::settings::{Builder, EVENT_RETENTION, MissingKey, Settings, StoreDown};
use crate::store::Store;
#[cfg(feature = "sqs")]
use crate::store::{GROUP, Grouped, Sending};

mod held;
mod observing;
mod replay;
mod transactional;
mod unprotected;

/// Runs handlers so that a request which comes twice takes effect once.
///
/// Cheap to clone; make one at start-up and share it. It spawns nothing: all work is done inside the calls.
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
#[derive(Debug)]
pub struct Idempotency<S> {
    engine: Arc<Engine<S>>,
    deadline: Option<EpochMillis>,
    default_retention: Duration,
    read_first: bool,
    claimless: bool,
    wants_outcome: bool,
    overrides: Overrides,
}

/// What an adapter knows better than the engine, about one request.
#[derive(Clone, Copy, Debug, Default)]
struct Overrides {
    retention: Option<Duration>,
    missing_key: Option<MissingKey>,
}

impl<S> Clone for Idempotency<S> {
    fn clone(&self) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            ..*self
        }
    }
}

impl<S: Store> Idempotency<S> {
    /// Starts to build an engine over a store.
    pub fn builder(store: S) -> Builder<S> {
        Builder::new(store)
    }

    pub(crate) fn new(
        store: S,
        clock: Arc<dyn Clock>,
        namespace: Namespace,
        settings: Settings,
        disabled: bool,
        observing: bool,
    ) -> Result<Self, KeyError> {
        let (namespace, observed) = if observing {
            (namespace.observed()?, Some(namespace))
        } else {
            (namespace, None)
        };
        Ok(Self {
            engine: Arc::new(Engine {
                meters: Arc::default(),
                owners: Owners::default(),
                observed,
                store: Arc::new(store),
                deadlines: Arc::new(Deadlines::since(clock.now())),
                clock,
                namespace,
                settings,
                disabled,
            }),
            deadline: None,
            default_retention: EVENT_RETENTION,
            read_first: false,
            claimless: false,
            wants_outcome: true,
            overrides: Overrides::default(),
        })
    }

    /// The same engine, bound to an invocation that ends at `deadline`: claims last until then, plus the skew margin.
    ///
    /// In a Lambda handler, pass `event.context.deadline()`. The layers of this crate do so by themselves.
    ///
    /// A deadline earlier than this engine was built, by its own clock, doesn't tell when the invocation ends (`cargo lambda
    /// watch` sends such a deadline). The engine ignores it, warns once, and its claims last for the configured
    /// [`lease`](Builder::lease).
    #[must_use]
    pub fn deadline(&self, deadline: SystemTime) -> Self {
        let Engine {
            deadlines,
            settings,
            ..
        } = &*self.engine;
        Self {
            deadline: deadlines.known(deadline.into(), settings.lease),
            ..self.clone()
        }
    }

    /// The same engine, with another default for the retention; one that was set stays.
    #[cfg(feature = "http")]
    pub(crate) fn default_retention(self, retention: Duration) -> Self {
        Self {
            default_retention: retention,
            ..self
        }
    }

    /// The same engine; where a record is expected it is read before a claim is tried.
    #[cfg(feature = "sqs")]
    pub(crate) fn read_first(self, read_first: bool) -> Self {
        Self { read_first, ..self }
    }

    /// The same engine, for runs whose replays nobody reads: a large outcome is not kept.
    #[cfg(feature = "sqs")]
    pub(crate) fn unread(self) -> Self {
        Self {
            wants_outcome: false,
            ..self
        }
    }

    /// The same engine, for one batch of so many requests, on a store whose calls may leave in groups. Somebody must drive it.
    #[cfg(feature = "sqs")]
    pub(crate) fn grouped(&self, sending: Sending, requests: usize) -> Idempotency<Grouped<S>> {
        let engine = &self.engine;
        Idempotency {
            engine: Arc::new(Engine {
                store: Arc::new(Grouped::new(Arc::clone(&engine.store), sending)),
                clock: Arc::clone(&engine.clock),
                deadlines: Arc::clone(&engine.deadlines),
                namespace: engine.namespace.clone(),
                settings: engine.settings.clone(),
                disabled: engine.disabled,
                meters: Arc::clone(&engine.meters),
                owners: Owners::for_batch(requests.min(GROUP)),
                observed: engine.observed.clone(),
            }),
            deadline: self.deadline,
            default_retention: self.default_retention,
            read_first: self.read_first,
            claimless: self.claimless,
            wants_outcome: self.wants_outcome,
            overrides: self.overrides,
        }
    }

    /// How much time the invocation has left, where its deadline is known.
    #[cfg(feature = "sqs")]
    pub(crate) fn remaining(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_since(self.engine.clock.now()))
    }

    /// Counts a claim whose time was over before its message could start.
    #[cfg(feature = "sqs")]
    pub(crate) fn count_too_late(&self, operation: &str) {
        let engine = &self.engine;
        let meter = engine.meters.of(engine.namespace.as_str(), operation);
        meter.count(Count::TooLate);
    }

    /// The same engine, with this retention, whatever was set.
    #[cfg(feature = "http")]
    pub(crate) fn retention(mut self, retention: Duration) -> Self {
        self.overrides.retention = Some(retention);
        self
    }

    /// The same engine, with this answer to a missing key, whatever was set.
    #[cfg(feature = "http")]
    pub(crate) fn missing_key(mut self, policy: MissingKey) -> Self {
        self.overrides.missing_key = Some(policy);
        self
    }

    /// The store that the records live in.
    pub fn store(&self) -> &S {
        &self.engine.store
    }

    /// Runs the handler once for this key, or replays what it produced.
    ///
    /// The key is resolved and the fingerprint taken before the handler runs, so nothing that the handler does to its
    /// input changes either. `key` may be an `Option`, for sources where it may be missing; `fingerprint` may be `None`
    /// where the payload says nothing about the request. An error of the handler's ends the lease, so that a retry runs at
    /// once; [`run_with`](Self::run_with) decides otherwise.
    ///
    /// The value comes back from storage on a replay: it must survive a round trip through JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Handler`] with the handler's own error; any other [`Error`] says why nothing ran, or why the result isn't
    /// certain.
    ///
    /// # Panics
    ///
    /// When the handler panics: the claim is released first (unless crashed attempts wait for a person), then the panic goes
    /// on.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped while the handler runs leaves the lease to run out; then a retry runs again.
    pub async fn run<T, E, F, Fut>(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: Display + 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.run_with(key, fingerprint, handler, Verdict::of).await
    }

    /// As [`run`](Self::run), with a say in what becomes of each result: stored, released, or failed for good.
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
    pub async fn run_with<T, E, F, Fut>(
        &self,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: Display + 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let key = key.into();
        if let Some(real) = self.observed() {
            let observing = self.observe(real, key, fingerprint.into(), handler, verdict);
            return Box::pin(observing).await;
        }
        let Some(key) = key else {
            return Box::pin(self.run_without_key(handler, verdict)).await;
        };
        if self.engine.disabled {
            // Switched off means as if nothing were there: a key that can't be used stops nobody.
            // What is derived from the key stays the same, whether or not the engine was observing before.
            let namespace = self.engine.observed.as_ref();
            let namespace = namespace.unwrap_or(&self.engine.namespace);
            let id = match key.resolve(namespace, self.engine.settings.max_token_chars) {
                Ok(id) => id,
                Err(_) => RecordId::unkeyed(Owner::random()?.as_str()),
            };
            let run = self.run_unprotected(Some(&key), id, handler, verdict);
            return Box::pin(run).await;
        }
        let request = self.request(&key, fingerprint.into())?;
        if self.claimless {
            return Box::pin(self.run_claimless(&request, handler, verdict)).await;
        }
        match self.engine.acquire(&request).await {
            Ok(Acquired::Run(hold)) => self.run_held(&request, hold, handler, verdict).await,
            Ok(Acquired::Replay(record)) => {
                let replayed = Box::pin(self.replay(&request, &record)).await;
                replayed.inspect_err(|error| observe::refused(&request, error))
            }
            Err(Error::Store(error)) if error.is_unreachable() && self.fails_open() => {
                observe::unprotected(&request.operation, &error);
                let run = self.run_unprotected(Some(&key), request.id, handler, verdict);
                Box::pin(run).await
            }
            Err(error) => {
                observe::refused(&request, &error);
                Err(error)
            }
        }
    }

    /// The id of the record that stands for a key in this engine's namespace: to look it up, or to tell duplicates apart
    /// within one batch.
    ///
    /// # Errors
    ///
    /// When the key can't be used.
    pub fn record_id(&self, key: &Key) -> Result<RecordId, KeyError> {
        key.resolve(&self.engine.namespace, self.engine.settings.max_token_chars)
    }

    /// Whether the kill switch is thrown.
    #[cfg(feature = "http")]
    pub(crate) fn is_disabled(&self) -> bool {
        self.engine.disabled
    }

    fn request(&self, key: &Key, fingerprint: Option<Fingerprint>) -> Result<Request, KeyError> {
        let settings = &self.engine.settings;
        Ok(Request {
            operation: key.shared_operation(),
            id: self.record_id(key)?,
            fingerprint,
            meter: self.engine.meter(Some(key)),
            seen: Mutex::default(),
            read_first: self.read_first,
            wants_outcome: self.wants_outcome,
            deadline: self.deadline,
            retention: self
                .overrides
                .retention
                .or(settings.retention)
                .unwrap_or(self.default_retention),
        })
    }

    fn fails_open(&self) -> bool {
        self.engine.settings.store_down == StoreDown::FailOpen
    }
}
