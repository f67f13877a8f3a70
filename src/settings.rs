//! How an engine behaves: the settings, their defaults, and why.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::idempotency::Idempotency;
use crate::key::{DEFAULT_MAX_TOKEN_CHARS, KeyError, Namespace};
use crate::protocol::{Crashed, Rules};
use crate::store::Store;

const DAY: Duration = Duration::from_hours(24);

/// Retention for requests over HTTP: clients retry for minutes, and a day covers a night's outage.
pub const HTTP_RETENTION: Duration = DAY;

/// Retention for events: a queue keeps a message for up to 14 days but most teams redrive within one; longer than
/// the default queue retention of 4 days. Raise it to two to three times *your* longest redelivery.
pub const EVENT_RETENTION: Duration = Duration::from_hours(168);

/// The environment variable that switches protection off: `IDEMPOTENCY_DISABLED=true`.
pub const DISABLED_VARIABLE: &str = "IDEMPOTENCY_DISABLED";

/// How long the store may keep a handler waiting that is only observed.
const OBSERVER_PATIENCE: Duration = Duration::from_secs(1);

/// What to do about a key that another attempt is working on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InFlight {
    /// Answer [`Error::InFlight`](crate::Error::InFlight) at once (default): waiting is paid for by the millisecond.
    #[default]
    FailFast,
    /// Read again, with growing pauses, until the outcome is there, the lease is over, or the limit is reached.
    WaitUpTo(Duration),
}

/// What to do when the store can't be reached before the handler ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDown {
    /// Answer [`Error::Store`](crate::Error::Store); nothing runs (default): a late charge beats a double one.
    #[default]
    FailClosed,
    /// Run the handler unprotected. Only for a store that can't be reached: one that refuses (no such table, no permission)
    /// still fails.
    FailOpen,
}

/// What to do with a request that carries no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// Answer [`KeyError::Missing`] (default).
    #[default]
    Refuse,
    /// Run the handler unprotected.
    RunUnprotected,
}

/// What to do when the handler succeeded and the outcome could not be recorded before the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unrecorded {
    /// Hand the outcome to the caller, as [`Outcome::Unrecorded`](crate::Outcome::Unrecorded) (default): the effect is real, and
    /// reporting a failure would have it repeated.
    #[default]
    Return,
    /// Answer [`Error::Unrecorded`](crate::Error::Unrecorded): for effects that are safe to repeat.
    Fail,
}

/// The settings of an engine; [`Builder`] says what each means.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) retention: Option<Duration>,
    pub(crate) failure_retention: Duration,
    pub(crate) lease: Duration,
    pub(crate) rules: Rules,
    pub(crate) store_timeout: Duration,
    pub(crate) inline_limit: usize,
    pub(crate) max_token_chars: usize,
    pub(crate) in_flight: InFlight,
    pub(crate) store_down: StoreDown,
    pub(crate) missing_key: MissingKey,
    pub(crate) unrecorded: Unrecorded,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retention: None,
            failure_retention: Duration::from_hours(1),
            lease: Duration::from_mins(15),
            rules: Rules {
                crashed: Crashed::RunAgain,
                max_attempts: None,
                skew_margin: Duration::from_secs(1),
            },
            store_timeout: Duration::from_secs(10),
            inline_limit: 8 * 1_024,
            max_token_chars: DEFAULT_MAX_TOKEN_CHARS,
            in_flight: InFlight::FailFast,
            store_down: StoreDown::FailClosed,
            missing_key: MissingKey::Refuse,
            unrecorded: Unrecorded::Return,
        }
    }
}

/// Builds an [`Idempotency`]. Every setting has a default, except the namespace outside Lambda.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{Crashed, Idempotency, InFlight, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new())
///     .namespace("payments")
///     .retention(Duration::from_secs(14 * 86_400))
///     .crashed(Crashed::Interrupt)
///     .in_flight(InFlight::WaitUpTo(Duration::from_secs(2)))
///     .build()?;
/// # Ok::<(), lambda_idempotency::KeyError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<S> {
    store: S,
    clock: Arc<dyn Clock>,
    namespace: Option<String>,
    disabled: Option<bool>,
    observing: bool,
    settings: Settings,
}

impl<S: Store> Builder<S> {
    pub(crate) fn new(store: S) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock),
            namespace: None,
            disabled: None,
            observing: false,
            settings: Settings::default(),
        }
    }

    /// The boundary between services that share a table; part of every id. Default: the Lambda function's name, from
    /// `AWS_LAMBDA_FUNCTION_NAME`. Set it, so that renaming the function doesn't forget what was done.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// How long an outcome is kept. Longer than the longest redelivery: client retries, queue retention, the redrive of a
    /// dead-letter queue; two to three times that. Default: 24 hours for HTTP ([`HTTP_RETENTION`]), 7 days for
    /// everything else ([`EVENT_RETENTION`]).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = Some(retention);
        self
    }

    /// How long a permanent failure is replayed. Default: 1 hour, long enough for a queue's retries, short enough that a
    /// redrive after a fix isn't blocked.
    pub fn failure_retention(mut self, retention: Duration) -> Self {
        self.settings.failure_retention = retention;
        self
    }

    /// How long a claim lasts where no Lambda deadline is known. Default: 15 minutes, the longest that a Lambda function can
    /// run. With a deadline, the claim lasts until then. The skew margin is added to either.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// By how much the clocks of two machines may differ. Default: 1 second; Amazon's time service keeps them within
    /// milliseconds.
    pub fn skew_margin(mut self, margin: Duration) -> Self {
        self.settings.rules.skew_margin = margin;
        self
    }

    /// How many attempts a key may have before a *crashed* one is no longer taken over, but answered with
    /// [`Error::Exhausted`](crate::Error::Exhausted). Default: no limit, because the source of the requests has one of its own
    /// (`maxReceiveCount`, a client's patience).
    pub fn max_attempts(mut self, max: NonZeroU32) -> Self {
        self.settings.rules.max_attempts = Some(max);
        self
    }

    /// What may happen to an attempt that crashed. Default: [`Crashed::RunAgain`].
    pub fn crashed(mut self, policy: Crashed) -> Self {
        self.settings.rules.crashed = policy;
        self
    }

    /// What to do about a key that is being worked on. Default: [`InFlight::FailFast`].
    pub fn in_flight(mut self, policy: InFlight) -> Self {
        self.settings.in_flight = policy;
        self
    }

    /// What to do when the store can't be reached. Default: [`StoreDown::FailClosed`].
    pub fn store_down(mut self, policy: StoreDown) -> Self {
        self.settings.store_down = policy;
        self
    }

    /// What to do with a request that has no key. Default: [`MissingKey::Refuse`].
    pub fn missing_key(mut self, policy: MissingKey) -> Self {
        self.settings.missing_key = policy;
        self
    }

    /// What to do with a success that could not be recorded. Default: [`Unrecorded::Return`].
    pub fn unrecorded(mut self, policy: Unrecorded) -> Self {
        self.settings.unrecorded = policy;
        self
    }

    /// How long the store may take to answer a claim, retries included; never longer than the remaining time. Default:
    /// 10 seconds.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.settings.store_timeout = timeout;
        self
    }

    /// The largest outcome, in bytes of JSON, that is kept in the record. Default: 8 KiB. A condition that fails is billed by
    /// the size of the item that it meets, so each duplicate pays for a large outcome again; at most about 390,000, since
    /// DynamoDB takes items up to 400 KB. A larger outcome is compressed, and where that doesn't bring it under the limit, kept
    /// beside its record. One that is too large even for that is not kept: its request is done, and a duplicate gets
    /// [`Error::OutcomeOmitted`](crate::Error::OutcomeOmitted).
    pub fn inline_limit(mut self, bytes: usize) -> Self {
        self.settings.inline_limit = bytes;
        self
    }

    /// The longest token, in characters. Default: 255.
    pub fn max_token_chars(mut self, chars: usize) -> Self {
        self.settings.max_token_chars = chars;
        self
    }

    /// Runs every handler unprotected. Default: whether the environment says `IDEMPOTENCY_DISABLED=true`. A kill switch, to be
    /// thrown without a deployment.
    pub fn disabled(mut self, disabled: bool) -> Self {
        self.disabled = Some(disabled);
        self
    }

    /// Watches without interfering: each handler runs as if nothing were there, and nothing is replayed or refused. Claims and
    /// outcomes (without their content) are kept under a namespace of their own, `{namespace}.observed`, and so are the
    /// [metrics](mod@crate::metrics): what they count is what *would* have happened. Default: off.
    ///
    /// For trying the library on a live handler before trusting it: are the keys there, and do they recognise what comes twice
    /// and nothing else? Each run is [`Outcome::Unprotected`](crate::Outcome::Unprotected). The store's answers are waited for, at
    /// most a second each; its failures stop nobody.
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

    /// Where the time comes from. Default: the machine's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The engine.
    ///
    /// # Errors
    ///
    /// When the namespace is missing (outside Lambda) or not usable.
    pub fn build(self) -> Result<Idempotency<S>, KeyError> {
        let namespace = self
            .namespace
            .or_else(|| std::env::var("AWS_LAMBDA_FUNCTION_NAME").ok())
            .unwrap_or_default();
        let disabled = self
            .disabled
            .unwrap_or_else(|| is_switched_off(std::env::var(DISABLED_VARIABLE).ok()));
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
            settings.store_timeout = settings.store_timeout.min(OBSERVER_PATIENCE);
        }
        Idempotency::new(
            self.store,
            self.clock,
            namespace,
            settings,
            disabled,
            self.observing,
        )
    }
}

fn is_switched_off(variable: Option<String>) -> bool {
    variable.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn a_namespace_is_needed_outside_lambda() {
        let error = Builder::new(MemoryStore::new()).build().unwrap_err();
        assert!(matches!(error, KeyError::Namespace { .. }));
    }

    #[test]
    fn only_true_throws_the_kill_switch() {
        for (value, expected) in [
            (Some("true"), true),
            (Some(" TRUE "), true),
            (Some("false"), false),
            (Some("1"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(
                is_switched_off(value.map(str::to_owned)),
                expected,
                "{value:?}"
            );
        }
    }
}
