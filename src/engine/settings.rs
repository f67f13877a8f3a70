//! The settings of an engine, and their defaults.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::places::{CalledBy, Place};
use crate::protocol::Rules;
use crate::protocol::clock::EpochMillis;
use crate::protocol::key::DEFAULT_MAX_TOKEN_CHARS;

#[cfg(feature = "batch")]
use crate::protocol::record::Owners;
#[cfg(feature = "batch")]
use crate::store::grouped::Groups;
#[cfg(feature = "batch")]
use crate::store::{DynStore, GROUP};

/// Retention for requests over HTTP: clients retry for minutes, and a day covers a night's outage.
#[cfg(any(feature = "http", feature = "test-util"))]
pub(crate) const HTTP_RETENTION: Duration = Duration::from_hours(24);

/// Retention for events: a queue keeps a message for up to 14 days but most teams redrive within
/// one; longer than the default queue retention of 4 days. Raise it to two to three times *your*
/// longest redelivery.
pub const EVENT_RETENTION: Duration = Duration::from_hours(168);

/// The most detached runs at a time, by default.
const DETACHED_LIMIT: NonZeroU32 = NonZeroU32::MIN.saturating_add(1_023);

/// The policy for a key that another attempt is working on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InFlight {
    /// The engine answers [`Error::InFlight`](crate::Error::InFlight) at once (default): waiting is
    /// paid for by the millisecond.
    #[default]
    FailFast,
    /// The engine reads again, with growing pauses, until the outcome is there, the lease is over,
    /// or the limit is reached.
    WaitUpTo(Duration),
}

/// The policy for a store that can't be reached before the handler ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreUnavailable {
    /// The engine answers [`Error::Store`](crate::Error::Store), and nothing runs (default): a late
    /// charge beats a double one.
    #[default]
    FailClosed,
    /// The handler runs unprotected. Only for a store that can't be reached: one that has answered
    /// this request in any way still fails, even if it can't be reached a moment later. A refusal
    /// (not set up, no permission), throttling, and a record of this key are answers; so is a read
    /// that found none. A record may say that a crashed attempt has had its effect, or which of its
    /// steps have; an unprotected run would repeat them.
    FailOpen,
}

/// The policy for a request that carries no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// The engine answers [`KeyError::Missing`](crate::KeyError::Missing) (default).
    #[default]
    Refuse,
    /// The handler runs unprotected.
    RunUnprotected,
}

/// The policy for work that still goes on shortly before the deadline of its invocation.
///
/// Lambda ends a function at its deadline: it freezes the process, and kills it. Lambda Managed
/// Instances don't: the caller is told that the invocation timed out, and the code goes on. So the
/// default is [`End`](Self::End) in a Lambda function, and [`GoOn`](Self::GoOn) on Managed Instances
/// (the variable `AWS_LAMBDA_MAX_CONCURRENCY` is set there) and outside of Lambda.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtDeadline {
    /// The handler's future is dropped, and its claim ended as after a panic. The caller gets
    /// [`Error::TimedOut`](crate::Error::TimedOut); a message of a batch is reported. The time that
    /// is kept back for that is a twentieth of what the invocation has, at most half a second, or as
    /// the layer's `reserve` says. A handler that blocks its thread can't be ended.
    End,
    /// The handler goes on. Its lease is renewed from shortly before the deadline on, each time for a
    /// minute at most, and for [`max_duration`](crate::Builder::max_duration) after the deadline at
    /// most; it is ended with a lease that could not be renewed. So a duplicate is told that it is in
    /// flight; the outcome is stored and replayed, and logged as `deadline_outlived`.
    GoOn,
}

/// The policy for a success whose outcome could not be recorded before the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unrecorded {
    /// The caller gets the outcome, as [`Outcome::Unrecorded`](crate::Outcome::Unrecorded)
    /// (default): the effect is real, and reporting a failure would have it repeated.
    #[default]
    Return,
    /// The engine answers [`Error::Unrecorded`](crate::Error::Unrecorded): for effects that are
    /// safe to repeat.
    Fail,
}

/// The variable that Lambda sets where an environment serves several invocations at once.
const CONCURRENCY_VARIABLE: &str = "AWS_LAMBDA_MAX_CONCURRENCY";

/// The place where a process runs, by the variables that Lambda sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A Lambda function, whose process is frozen after each reply, and ended at a deadline.
    Lambda,
    /// A Lambda Managed Instance: nothing is frozen, and what is late goes on.
    ManagedInstance,
    /// A server, a job, a test.
    Elsewhere,
}

impl Host {
    /// Recognises the place where this process runs.
    pub(crate) fn of_process() -> Self {
        let Some(concurrency) = std::env::var_os(CONCURRENCY_VARIABLE) else {
            return match std::env::var_os("AWS_LAMBDA_RUNTIME_API") {
                Some(_) => Self::Lambda,
                None => Self::Elsewhere,
            };
        };
        let concurrency = concurrency.to_string_lossy();
        if concurrency.parse::<u32>().is_err() {
            tracing::warn!(
                event = "concurrency_unknown",
                variable = CONCURRENCY_VARIABLE,
                value = &*concurrency,
                "the value is no number: the process counts as one on Lambda Managed Instances all the same"
            );
        }
        Self::ManagedInstance
    }

    /// Returns what happens at a deadline, unless the builder says otherwise.
    pub(crate) fn at_deadline(self) -> AtDeadline {
        match self {
            Self::Lambda => AtDeadline::End,
            Self::ManagedInstance | Self::Elsewhere => AtDeadline::GoOn,
        }
    }

    /// Returns how long a claim lasts without a deadline, and an attempt that is renewed, unless the
    /// builder says otherwise: in Lambda as long as the longest invocation.
    pub(crate) fn longest(self) -> Duration {
        match self {
            Self::ManagedInstance => Duration::from_mins(90),
            Self::Lambda | Self::Elsewhere => Duration::from_mins(15),
        }
    }
}

/// The longest lease after the deadline of an invocation: a process that dies then blocks its key for
/// this long.
const LONGEST_BEYOND: Duration = Duration::from_mins(1);

/// The settings of an engine; [`Builder`](crate::Builder) says what each means.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) retention: Option<Duration>,
    pub(crate) failure_retention: Duration,
    pub(crate) lease: Duration,
    pub(crate) renewed_lease: Option<Duration>,
    pub(crate) max_duration: Duration,
    pub(crate) at_deadline: AtDeadline,
    pub(crate) rules: Rules,
    pub(crate) store_timeout: Duration,
    pub(crate) inline_limit: usize,
    pub(crate) max_token_chars: usize,
    pub(crate) in_flight: InFlight,
    pub(crate) max_retry_after: Duration,
    pub(crate) on_store_unavailable: OnStoreUnavailable,
    pub(crate) on_missing_key: OnMissingKey,
    pub(crate) unrecorded: Unrecorded,
    pub(crate) detached_limit: NonZeroU32,
    /// The texts of errors that may quote a payload are logged.
    pub(crate) logs_errors: bool,
    /// A step's result that does not read back from JSON is an error: in tests.
    pub(crate) is_strict: bool,
}

impl Settings {
    /// Makes the defaults of an engine that runs there.
    pub(crate) fn of(host: Host) -> Self {
        Self {
            retention: None,
            failure_retention: Duration::from_hours(1),
            lease: host.longest(),
            renewed_lease: None,
            max_duration: host.longest(),
            at_deadline: host.at_deadline(),
            rules: Rules::new(Duration::from_secs(1)),
            store_timeout: Duration::from_secs(10),
            inline_limit: 8 * 1_024,
            max_token_chars: DEFAULT_MAX_TOKEN_CHARS,
            in_flight: InFlight::FailFast,
            max_retry_after: Duration::from_secs(30),
            on_store_unavailable: OnStoreUnavailable::FailClosed,
            on_missing_key: OnMissingKey::Refuse,
            unrecorded: Unrecorded::Return,
            detached_limit: DETACHED_LIMIT,
            logs_errors: false,
            is_strict: false,
        }
    }

    /// Returns the length of a lease that is renewed; `None` where it lasts for the whole attempt:
    /// up to an invocation's deadline, for a batch, and without a claim.
    pub(super) fn lease_to_renew(&self, options: &Options) -> Option<Duration> {
        let lease = self.renewed_lease?;
        let lasts = options.is_batch() || options.deadline.is_some() || options.claimless;
        (!lasts).then_some(lease.min(self.max_duration))
    }

    /// Tells whether work goes on after the deadline of its invocation.
    pub(crate) fn work_goes_on(&self, options: &Options) -> bool {
        options.deadline.is_some() && self.at_deadline == AtDeadline::GoOn
    }

    /// Returns the length of the leases that a claim gets one after the other from its invocation's
    /// deadline on; `None` where it ends with the deadline, and without a claim.
    pub(super) fn lease_beyond_deadline(&self, options: &Options) -> Option<Duration> {
        let lease = self.renewed_lease.unwrap_or(LONGEST_BEYOND);
        let lease = lease.min(LONGEST_BEYOND).min(self.max_duration);
        (self.work_goes_on(options) && !options.claimless).then_some(lease)
    }
}

/// The options of one call.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The end of the invocation, where it is known.
    pub(crate) deadline: Option<EpochMillis>,
    /// The retention, where neither the call nor the settings name one.
    pub(crate) default_retention: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) missing_key: Option<OnMissingKey>,
    /// A record is expected, so that reading first is the cheaper way.
    pub(crate) read_first: bool,
    pub(crate) claimless: bool,
    /// The outcome of a replay is read. Where it is not, a large one needn't be kept.
    pub(crate) wants_outcome: bool,
    pub(crate) called_by: CalledBy,
    #[cfg(feature = "batch")]
    pub(crate) batch: Option<Arc<Batch>>,
    /// Given back while the request waits for another attempt.
    pub(crate) place: Option<Arc<Place>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: None,
            default_retention: EVENT_RETENTION,
            retention: None,
            missing_key: None,
            read_first: false,
            claimless: false,
            wants_outcome: true,
            called_by: CalledBy::default(),
            #[cfg(feature = "batch")]
            batch: None,
            place: None,
        }
    }
}

impl Options {
    /// Copies the options of this call alone.
    pub(super) fn without_batch(&self) -> Self {
        Self {
            #[cfg(feature = "batch")]
            batch: None,
            place: None,
            ..self.clone()
        }
    }

    #[cfg(feature = "batch")]
    pub(super) fn groups(&self) -> Option<&Groups> {
        self.batch.as_ref()?.groups.as_ref()
    }

    /// Returns the instant from which on a message of a batch may not start.
    pub(super) fn stop(&self) -> Option<Instant> {
        self.place.as_ref()?.stop().filter(|_| self.is_batch())
    }

    /// Tells whether it has its place, or needs none.
    pub(super) fn has_place(&self) -> bool {
        self.place.as_ref().is_none_or(|place| place.is_held())
    }

    /// Waits until it has its place again; `false` where none was free in time.
    pub(super) async fn takes_place(&self) -> bool {
        match &self.place {
            Some(place) => Box::pin(place.take()).await,
            None => true,
        }
    }

    /// Tells whether the request is a message of a batch.
    #[cfg_attr(
        not(feature = "batch"),
        expect(clippy::unused_self, reason = "there is no batch")
    )]
    pub(super) fn is_batch(&self) -> bool {
        #[cfg(feature = "batch")]
        return self.batch.is_some();
        #[cfg(not(feature = "batch"))]
        false
    }

    /// Returns the instant that ends each store call, whatever time the call would get by itself.
    #[cfg_attr(
        not(feature = "batch"),
        expect(clippy::unused_self, reason = "only a batch ends store calls early")
    )]
    pub(super) fn store_end(&self) -> Option<Instant> {
        #[cfg(feature = "batch")]
        return self.batch.as_ref()?.store_end;
        #[cfg(not(feature = "batch"))]
        None
    }
}

/// The state that the requests of one batch share.
#[cfg(feature = "batch")]
#[derive(Debug)]
pub(crate) struct Batch {
    /// `None` where each request leaves alone.
    groups: Option<Groups>,
    pub(super) owners: Owners,
    /// `None` where the invocation's deadline is not known. The reply to the other requests doesn't
    /// wait longer for a slow store.
    store_end: Option<Instant>,
}

#[cfg(feature = "batch")]
impl Batch {
    /// Creates the state for a batch of this many requests; without a store, each request leaves
    /// alone.
    pub(crate) fn new(
        store: Option<Arc<dyn DynStore>>,
        requests: usize,
        store_end: Option<Instant>,
    ) -> Self {
        Self {
            groups: store.map(|store| Groups::new(store, true)),
            owners: Owners::for_batch(requests.min(GROUP)),
            store_end,
        }
    }
}
