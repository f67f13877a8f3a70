//! The builder has each setting, its default, and the reason for it.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::engine::claim::Claim;
use crate::engine::settings::{InFlight, OnMissingKey, OnStoreUnavailable, Settings};
use crate::engine::{
    Deadlines, DetachedRuns, Engine, HeldKeys, Host, Meters, Pace, Permission, UnsentEndings,
    events,
};
use crate::idempotency::Idempotency;
use crate::protocol::OnCrash;
use crate::protocol::causes::unlinked;
use crate::protocol::clock::{Clock, SystemClock};
use crate::protocol::key::Namespace;
use crate::protocol::record::{Owners, error_text};
use crate::setup::BuildError;
use crate::store::grouped::Groups;
use crate::store::{DynStore, Store};

#[cfg(feature = "test-util")]
use crate::engine::settings::{EVENT_RETENTION, HTTP_RETENTION};
#[cfg(feature = "test-util")]
use crate::protocol::clock::EpochMillis;

/// The longest time that a store may delay a handler that is only observed.
const OBSERVER_TIMEOUT: Duration = Duration::from_secs(1);

/// Builds an [`Idempotency`]. Every setting has a default, except the namespace outside Lambda.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{OnCrash, Idempotency, InFlight, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new())
///     .namespace("payments")
///     .retention(Duration::from_secs(14 * 86_400))
///     .on_crash(OnCrash::Interrupt)
///     .in_flight(InFlight::WaitUpTo(Duration::from_secs(2)))
///     .build()?;
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    store: Arc<dyn DynStore>,
    clock: Arc<dyn Clock>,
    namespace: Option<String>,
    disabled: Option<bool>,
    observing: bool,
    settings: Settings,
}

impl Idempotency {
    /// Starts to build an engine over a store.
    pub fn builder(store: impl Store) -> Builder {
        Builder::new(store)
    }
}

impl Builder {
    pub(crate) fn new(store: impl Store) -> Self {
        Self {
            store: Arc::new(store),
            clock: Arc::new(SystemClock),
            namespace: None,
            disabled: None,
            observing: false,
            settings: Settings::of(Host::of_process()),
        }
    }

    /// Sets the boundary between services that share a store; it is part of every id. Default: the
    /// Lambda function's name, from `AWS_LAMBDA_FUNCTION_NAME`. Set it, so that renaming the
    /// function doesn't forget what was done.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// Sets how long an outcome is kept. Take twice the longest redelivery: client retries, or the
    /// queue's retention and the dead-letter queue's. Default: 24 hours for HTTP, 7 days for
    /// everything else, unless a source redelivers for longer: 30 days for SNS.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = Some(retention);
        self
    }

    /// Sets how long a claim lasts where no Lambda deadline is known. Default: 15 minutes, and 90
    /// minutes on Lambda Managed Instances, the longest that an invocation can last there. With a
    /// deadline, the claim lasts until then. The [skew margin](Settings::skew_margin) is added to either.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets a short lease that is renewed for as long as the handler runs, where no Lambda deadline
    /// is known: three times in its own length, and never beyond
    /// [`max_duration`](Settings::max_duration). A handler is ended with a lease that could not be
    /// renewed, before another attempt may take the key over. Default: none, and a claim lasts for
    /// [`lease`](Self::lease).
    ///
    /// For servers and long jobs: a process that dies blocks a key for this long, and not for as
    /// long as its slowest request takes. Each renewal is a write. Take 10 seconds or more, so that
    /// a store that fails for a moment costs no lease. The process must have time for its tasks: a
    /// handler that blocks its thread keeps its own lease from being renewed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lambda_idempotency::{Idempotency, store::MemoryStore};
    ///
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .namespace("reports")
    ///     .renewed_lease(Duration::from_secs(30))
    ///     .settings(|settings| settings.max_duration = Duration::from_secs(3_600))
    ///     .build()?;
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    ///
    /// [`run`](Idempotency::run), [`run_detached`](Idempotency::run_detached) and the HTTP layer
    /// renew it; a run of [`begin`](Idempotency::begin) does with
    /// [`while_renewed`](crate::Run::while_renewed). Batches, the claimless form and an engine that
    /// only observes don't.
    pub fn renewed_lease(mut self, lease: Duration) -> Self {
        self.settings.renewed_lease = Some(lease);
        self
    }

    /// Sets how many attempts a key may have before a *crashed* one is no longer taken over, but
    /// answered with [`Error::Exhausted`](crate::Error::Exhausted). Attempts that failed count, too,
    /// but no limit keeps the next one from running after a failure. An attempt that was released
    /// before its handler began doesn't count; one whose claim got no reply does, since it may have
    /// applied. Default: no limit, because the source of the requests has its own limit
    /// (`maxReceiveCount`, a client's patience).
    pub fn max_attempts(mut self, max: NonZeroU32) -> Self {
        self.settings.max_attempts = Some(max);
        self
    }

    /// Sets what may happen to an attempt that crashed. Default: [`OnCrash::RunAgain`].
    pub fn on_crash(mut self, policy: OnCrash) -> Self {
        self.settings.on_crash = policy;
        self
    }

    /// Sets what to do about a key that another attempt is working on. Default:
    /// [`InFlight::FailFast`].
    pub fn in_flight(mut self, policy: InFlight) -> Self {
        self.settings.in_flight = policy;
        self
    }

    /// Sets what to do when the store can't be reached. Default: [`OnStoreUnavailable::FailClosed`].
    pub fn on_store_unavailable(mut self, policy: OnStoreUnavailable) -> Self {
        self.settings.on_store_unavailable = policy;
        self
    }

    /// Sets what to do with a request that has no key. Default: [`OnMissingKey::Refuse`].
    pub fn on_missing_key(mut self, policy: OnMissingKey) -> Self {
        self.settings.on_missing_key = policy;
        self
    }

    /// Changes the [settings](Settings) that few functions change.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lambda_idempotency::{Idempotency, store::MemoryStore};
    ///
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .namespace("payments")
    ///     .settings(|settings| settings.store_timeout = Duration::from_secs(5))
    ///     .build()?;
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Makes a step's result that does not read back from JSON an error.
    #[cfg(feature = "test-util")]
    pub(crate) fn strict(mut self) -> Self {
        self.settings.is_strict = true;
        self
    }

    /// Reads the value of `IDEMPOTENCY_DISABLED`; `None` where the word is unknown.
    #[doc(hidden)]
    pub fn disabled_by(word: &str) -> Option<bool> {
        match word.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "" | "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// Runs every handler unprotected. This is a kill switch that needs no deployment. Default:
    /// whether `IDEMPOTENCY_DISABLED` says so in the environment, by `true`, `1`, `yes` or `on` in
    /// any case. `false`, `0`, `no`, `off` and an empty value leave protection on; so does any other
    /// word, with a warning.
    pub fn disabled(mut self, disabled: bool) -> Self {
        self.disabled = Some(disabled);
        self
    }

    /// Watches without interfering: each handler runs as if nothing were there, and nothing is
    /// replayed or refused. Claims and outcomes (without their content) are kept under a namespace
    /// of their own, `{namespace}.observed`, and so are the [metrics](mod@crate::metrics): what
    /// they count is what *would* have happened. Default: off.
    ///
    /// For trying the library on a live handler before trusting it: are the keys there, and do they
    /// recognise what comes twice and nothing else? Each run is
    /// [`Outcome::Unprotected`](crate::Outcome::Unprotected). The store's answers are waited for,
    /// at most a second each; its failures stop no handler. The HTTP layer reads a request body up
    /// to its limit, to compare it, and passes the handler's response on as it comes, unless writes were
    /// handed to the [claim](crate::Claim::write): their commit depends on the response's end.
    ///
    /// ```
    /// # use lambda_idempotency::{Fingerprint, Idempotency, Key, Outcome, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let watched = Idempotency::builder(MemoryStore::new()).namespace("payments").observe(true).build()?;
    /// for _ in 0..2 {
    ///     let run = watched.run(Key::new("charge", "A-17"), None, |_| async { Ok::<_, std::io::Error>(1) });
    ///     assert_eq!(run.await?, Outcome::Unprotected(1));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn observe(mut self, observe: bool) -> Self {
        self.observing = observe;
        self
    }

    /// Sets the source of the time. Default: the machine's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the engine.
    ///
    /// # Errors
    ///
    /// When the namespace is missing (outside Lambda) or not usable, a retention, a lease or the
    /// longest duration is zero, or the store can't work as it is set up: its settings contradict each other, or its client has no
    /// region. Nothing is sent to the store.
    pub fn build(self) -> Result<Idempotency, BuildError> {
        let checked = self.store.check();
        checked.map_err(|error| BuildError::Store(unlinked(&error)))?;
        for (setting, retention) in [
            ("retention", self.settings.retention),
            ("failure_retention", Some(self.settings.failure_retention)),
        ] {
            if retention.is_some_and(|retention| retention.is_zero()) {
                return Err(BuildError::NoRetention { setting });
            }
        }
        for (setting, time) in [
            ("lease", Some(self.settings.lease)),
            ("renewed_lease", self.settings.renewed_lease),
            ("max_duration", Some(self.settings.max_duration)),
        ] {
            if time.is_some_and(|time| time.is_zero()) {
                return Err(BuildError::NoLease { setting });
            }
        }
        let function = || std::env::var("AWS_LAMBDA_FUNCTION_NAME").ok();
        let namespace = self.namespace.or_else(function);
        let namespace = namespace.ok_or(BuildError::NoNamespace)?;
        let disabled = self.disabled.unwrap_or_else(is_thrown);
        if disabled {
            tracing::warn!(
                variable = DISABLED_VARIABLE,
                "idempotency is switched off: handlers run unprotected"
            );
        }
        let namespace = Namespace::new(namespace)?;
        let mut settings = self.settings;
        if self.observing {
            tracing::warn!("idempotency is only observed: handlers run unprotected");
            settings.in_flight = InFlight::FailFast;
            settings.renewed_lease = None;
            settings.store_timeout = settings.store_timeout.min(OBSERVER_TIMEOUT);
        }
        let (namespace, observed) = if self.observing {
            (namespace.observed()?, Some(namespace))
        } else {
            (namespace, None)
        };
        let detached = DetachedRuns::up_to(settings.detached_limit);
        let groups = settings.group_requests;
        let groups = groups.then(|| Groups::new(Arc::clone(&self.store), false));
        Ok(Idempotency::of(Engine {
            deadlines: Deadlines::of_process(self.clock.now()),
            store: self.store,
            groups,
            clock: self.clock,
            namespace,
            settings,
            disabled,
            observed,
            meters: Meters::default(),
            owners: Owners::default(),
            detached,
            permission: Permission::default(),
            unsent: UnsentEndings::default(),
            held_keys: HeldKeys::default(),
            pace: Pace::new(),
            reads_first: AtomicBool::new(false),
        }))
    }
}

impl Idempotency {
    /// Returns the engine with another retention for its outcomes than
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
    /// Permanent failures are kept for
    /// [`Settings::failure_retention`](crate::Settings::failure_retention) all the same.
    #[must_use]
    pub fn retention(&self, retention: Duration) -> Self {
        self.with(|options| options.retention = Some(retention))
    }

    /// Returns the engine with another default for the retention; a retention that was set stays.
    #[cfg(any(feature = "http", feature = "invoke"))]
    pub(crate) fn default_retention(mut self, retention: Duration) -> Self {
        self.options.default_retention = retention;
        self
    }

    /// Returns the engine with this retention, where it is given.
    #[cfg(any(feature = "batch", feature = "invoke"))]
    pub(crate) fn keep_for(mut self, retention: Option<Duration>) -> Self {
        self.options.retention = retention.or(self.options.retention);
        self
    }
}

/// The environment variable that switches protection off: `IDEMPOTENCY_DISABLED=true`.
///
/// It takes `true`, `1`, `yes` and `on` in any case. `false`, `0`, `no`, `off` and an empty value
/// leave protection on; so does any other word, with a warning.
const DISABLED_VARIABLE: &str = "IDEMPOTENCY_DISABLED";

/// Returns whether the environment switches protection off.
pub(super) fn is_thrown() -> bool {
    let Some(value) = std::env::var_os(DISABLED_VARIABLE) else {
        return false;
    };
    let value = value.to_string_lossy();
    Builder::disabled_by(&value).unwrap_or_else(|| {
        tracing::warn!(
            event = "switch_unknown",
            variable = DISABLED_VARIABLE,
            value = &*value,
            "the value is none of true, 1, yes, on, false, 0, no, off: protection stays on"
        );
        false
    })
}

impl Idempotency {
    /// Returns whether the kill switch is on.
    #[cfg(feature = "http")]
    pub(crate) fn is_disabled(&self) -> bool {
        self.engine.disabled
    }

    /// Returns whether handlers run whatever the records say.
    pub(crate) fn is_passive(&self) -> bool {
        self.engine.disabled || self.engine.is_observing()
    }

    /// Returns whether the engine only observes.
    #[cfg(feature = "http")]
    pub(crate) fn is_observing(&self) -> bool {
        self.engine.is_observing()
    }

    /// Returns whether texts that may quote a payload are logged.
    #[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
    pub(crate) fn logs_errors(&self) -> bool {
        self.engine.settings.log_errors
    }

    /// Logs the text of a handler's error, where the setting asks for it.
    pub(crate) fn log_error<E: Display + 'static>(&self, claim: &Claim, error: &E) {
        if self.engine.settings.log_errors {
            let error = error_text(error);
            events::handler_failed(claim.operation(), claim.key_hash(), claim.attempt(), &error);
        }
    }

    /// Reads the engine's clock.
    #[cfg(feature = "test-util")]
    pub(crate) fn now(&self) -> EpochMillis {
        self.engine.clock.now()
    }

    /// Returns the longest time for which a claim that was not bound to an invocation keeps other
    /// attempts from running: with the skew margin, and the pause after a crash.
    #[cfg(feature = "test-util")]
    pub(crate) fn stored_lease(&self) -> Duration {
        let settings = &self.engine.settings;
        let renewed = settings.renewed_lease.unwrap_or_default();
        let pause = settings.on_crash.pause().unwrap_or_default();
        let lease = settings.lease.max(renewed);
        let margin = settings.skew_margin.saturating_add(pause);
        lease.saturating_add(margin)
    }

    /// Returns the time after which no outcome counts any more, unless a route keeps it for longer.
    #[cfg(feature = "test-util")]
    pub(crate) fn stored_retention(&self) -> Duration {
        let settings = &self.engine.settings;
        let retention = self.options.retention.or(settings.retention);
        let retention = retention.unwrap_or(EVENT_RETENTION.max(HTTP_RETENTION));
        let retention = retention.max(settings.failure_retention);
        retention.saturating_add(settings.skew_margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::Idempotency;
    use crate::store::MemoryStore;

    #[test]
    fn a_namespace_is_needed_outside_lambda() {
        let error = Builder::new(MemoryStore::new()).build().unwrap_err();
        assert_matches!(error, BuildError::NoNamespace);
    }

    #[test]
    fn a_retention_or_a_lease_of_zero_is_refused() {
        const ZERO: Duration = Duration::ZERO;
        let builder = || Builder::new(MemoryStore::new()).namespace("shop");
        let with = |change: fn(&mut Settings)| builder().settings(change);
        let retention = |setting| BuildError::NoRetention { setting };
        let lease = |setting| BuildError::NoLease { setting };
        for (built, expected) in [
            (builder().retention(ZERO), retention("retention")),
            (
                with(|settings| settings.failure_retention = ZERO),
                retention("failure_retention"),
            ),
            (builder().lease(ZERO), lease("lease")),
            (builder().renewed_lease(ZERO), lease("renewed_lease")),
            (
                with(|settings| settings.max_duration = ZERO),
                lease("max_duration"),
            ),
        ] {
            assert_eq!(built.build().unwrap_err(), expected);
        }
    }

    #[test]
    fn what_main_prints_says_what_to_do() {
        let built = Idempotency::builder(MemoryStore::new())
            .namespace("")
            .build();
        for (error, advice) in [
            (BuildError::NoNamespace, "call `.namespace(\"…\")`"),
            (built.unwrap_err(), "call `.namespace(\"…\")`"),
            (
                BuildError::NoRetention {
                    setting: "retention",
                },
                "keep outcomes for longer",
            ),
            (BuildError::Store("two attributes".into()), "two attributes"),
        ] {
            // A `main` that returns this one, or a box of it.
            let boxed: Box<dyn std::error::Error + Send + Sync> = error.clone().into();
            for printed in [format!("{error:?}"), format!("{boxed:?}")] {
                assert_eq!(printed, error.to_string());
                assert!(printed.contains(advice), "{printed}");
            }
        }
    }

    #[test]
    fn the_usual_words_throw_the_switch_or_leave_it() {
        for word in ["true", " TRUE ", "True", "1", "yes", "YES", "on", "On"] {
            assert_eq!(Builder::disabled_by(word), Some(true), "{word:?}");
        }
        for word in ["", "false", "FALSE", "0", "no", "No", "off"] {
            assert_eq!(Builder::disabled_by(word), Some(false), "{word:?}");
        }
        for word in ["ture", "2", "enabled", "disabled", "yes please"] {
            assert_eq!(Builder::disabled_by(word), None, "{word:?}");
        }
    }
}
