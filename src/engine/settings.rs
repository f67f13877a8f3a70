//! The settings of an engine, and their defaults.

use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::places::Place;
use crate::protocol::clock::EpochMillis;
use crate::protocol::key::DEFAULT_MAX_TOKEN_CHARS;
use crate::protocol::record::Owners;
use crate::protocol::{OnCrash, Rules};
use crate::store::grouped::Groups;

#[cfg(feature = "batch")]
use crate::store::{DynStore, GROUP};

/// Retention for requests over HTTP: clients retry for minutes, and a day covers a night's outage.
#[cfg(any(feature = "http", feature = "test-util"))]
pub(crate) const HTTP_RETENTION: Duration = Duration::from_hours(24);

/// Retention for events: a queue keeps a message for up to 14 days but most teams redrive within
/// one; longer than the default queue retention of 4 days. Raise it to two to three times *your*
/// longest redelivery.
#[doc(hidden)]
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
    /// The handler runs unprotected, but not in the [claimless](crate::Idempotency::claimless) form,
    /// which commits to the store. Only for a store that can't be reached: one that has answered any
    /// read or claim of this request still fails, even if it can't be reached a moment later. A refusal
    /// (not set up, no permission), throttling, and a record of this key are answers; so is a read
    /// that found none. That the release of an unanswered claim applies is no answer. A record may
    /// say that a crashed attempt has had its effect, or which of its steps have; an unprotected run
    /// would repeat them. Nor does the handler run while a run of this process holds the key.
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
    /// minute at most, and for [`max_duration`](crate::Settings::max_duration) after the deadline at
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

/// The settings of an engine that few functions change, with their defaults: those that
/// [`Builder::settings`](crate::Builder::settings) gives to its closure. [`Builder`](crate::Builder)
/// has methods for the others.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{AtDeadline, Idempotency, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new())
///     .namespace("payments")
///     .settings(|settings| {
///         settings.at_deadline = AtDeadline::End;
///         settings.store_timeout = Duration::from_secs(5);
///     })
///     .build()?;
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The time for which a permanent failure is replayed. Default: 1 hour, long enough for a
    /// queue's retries, short enough that a redrive after a fix isn't blocked. Behind a step that may
    /// have had its effect, under new derived keys, or where a batch has
    /// [`on_rejected`](crate::batch::BatchLayer::on_rejected), a failure is kept for the retention.
    pub failure_retention: Duration,
    /// The longest time of an attempt under a [renewed lease](crate::Builder::renewed_lease), from
    /// its claim on; where it [goes on](AtDeadline::GoOn) after its invocation's deadline, from the
    /// deadline on. Then the lease is renewed no more, the handler is ended, and another attempt may
    /// take the key over. Default: 15 minutes, and 90 minutes on Lambda Managed Instances.
    pub max_duration: Duration,
    /// The policy for a handler that still runs shortly before the deadline of its invocation: it is
    /// ended, or it goes on under a lease that is renewed. Default: as the place where the process
    /// runs says, `AtDeadline::End` in a Lambda function, `AtDeadline::GoOn` on Lambda Managed
    /// Instances and outside of Lambda.
    ///
    /// It holds in [`run`](crate::Idempotency::run), in the layers and in batches. A run of
    /// [`begin`](crate::Idempotency::begin) goes on, and is ended with its lease, within
    /// [`while_renewed`](crate::Run::while_renewed). A claimless handler that goes on has no lease;
    /// its commit is conditional, however late it is.
    ///
    /// Set `GoOn` in a Lambda function only to have nothing ended: Lambda kills the process at the
    /// deadline all the same, and the key is then in flight for up to a minute longer.
    pub at_deadline: AtDeadline,
    /// The time by which the clocks of two machines may differ. Default: 1 second; Amazon's time
    /// service keeps them within milliseconds.
    pub skew_margin: Duration,
    /// The longest time after which a duplicate of a request in flight is told to ask again, in
    /// HTTP's `Retry-After` and in [`Error::InFlight`](crate::Error::InFlight). The lease may last
    /// for minutes yet, and the outcome is usually there within seconds. Default: 30 seconds.
    ///
    /// A message of a queue isn't told: each receive counts towards its queue's `maxReceiveCount`, so
    /// `sqs::Visibility` hides it until the lease is over.
    pub max_retry_after: Duration,
    /// The policy for a success that could not be recorded. Default: [`Unrecorded::Return`].
    pub unrecorded: Unrecorded,
    /// The time that the store may take to answer a claim, retries included. Default: 10 seconds. Of the
    /// time before a deadline, it leaves what a release and the answer need; under
    /// [`FailOpen`](OnStoreUnavailable::FailOpen), a claim takes half of what is left then, or half a
    /// second. Beyond 10 seconds it changes nothing for a claim without an answer, which the clients of
    /// `from_env` and `sdk_config` give up then.
    pub store_timeout: Duration,
    /// The largest outcome, in bytes of JSON, that is kept in the record. Default: 8 KiB, since a
    /// store may bill a condition that fails by the size of the record that it meets, as DynamoDB
    /// does: each duplicate then pays for a large outcome again. Leave room under the largest record
    /// that the store takes (for DynamoDB, set at most 358,400; with steps, whose journal takes up to
    /// 128 KiB, 245,760).
    ///
    /// A larger outcome is compressed, and where that doesn't bring it under the limit, kept beside
    /// its record. One that is too large even for that is not kept: its request is done, and a
    /// duplicate gets [`Error::OutcomeOmitted`](crate::Error::OutcomeOmitted).
    pub inline_limit: usize,
    /// The longest token, in characters. Default: 255. A lower limit isn't for the tokens that a
    /// source itself gives its messages and events. The hash of an identity of several parts has 64.
    pub max_token_chars: usize,
    /// The maximum number of concurrent detached runs: those of
    /// [`run_detached`](crate::Idempotency::run_detached), and of the HTTP layer where no deadline
    /// [ends](crate::AtDeadline::End) its handlers: outside Lambda, and on Managed Instances.
    /// Default: 1,024. A further run gets [`Error::Overloaded`](crate::Error::Overloaded) before a
    /// claim is tried.
    ///
    /// Clients that hang up don't end their runs, so without a limit a server has no bound on what
    /// it holds.
    pub detached_limit: NonZeroU32,
    /// Sends claims, completions, releases and reads of concurrent calls in groups: a process that
    /// works for many at once pays a fraction of the CPU for each. Default: off.
    ///
    /// Set it where one process has many requests under way: a server, or a function that runs
    /// several invocations at once. A function that has one invocation at a time gains nothing, and
    /// pays next to nothing. The layers for batches group the writes of a batch by themselves.
    ///
    /// - A request leaves at once where none of its kind is under way. What arrives meanwhile leaves
    ///   when that one has its answer, when it is 25, or after 250 ms: it waits for one round trip to
    ///   the table at the most, and then for its own. So does a duplicate whose outcome a
    ///   [`CachedStore`](crate::store::CachedStore) has; it takes no request all the same. Where
    ///   requests have met lately, one yields to the runtime once before it leaves: those that the
    ///   same answer woke join it.
    /// - A write that leaves in a group is conditional, and is answered, as by itself. Two requests
    ///   for one record never share a group: the second leaves at once, alone, so that a key that
    ///   many ask for slows no other. Takeovers, renewals, commits, steps, large outcomes and what
    ///   dropped runs have left leave alone, too.
    /// - On DynamoDB, groups need `dynamodb:PartiQLInsert`, `dynamodb:PartiQLUpdate` and
    ///   `dynamodb:BatchGetItem`. Without them requests leave alone, with one warning. They cost what
    ///   single requests cost.
    /// - A group is sent by its own task, so that it does not matter which call is dropped, or is not
    ///   polled: a request that waits is taken out of its group, and one that has left may apply, as
    ///   without groups. One that did not leave in its time fails as
    ///   [`StoreError::NotSent`](crate::store::StoreError::NotSent).
    ///
    /// The clones of an engine share their groups.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .namespace("payments")
    ///     .settings(|settings| settings.group_requests = true)
    ///     .build()?;
    /// let charge = |order: &'static str| once.run(Key::new("charge", order), None, |_| async { Ok::<_, std::io::Error>(7) });
    /// let (first, second, third) = tokio::join!(charge("A-1"), charge("A-2"), charge("A-3"));
    /// assert_eq!((first?.into_inner(), second?.into_inner(), third?.into_inner()), (7, 7, 7));
    /// # Ok(()) }
    /// ```
    pub group_requests: bool,
    /// Logs the text of each error that a handler returns (the event `handler_failed`) and of a hook
    /// (`hook_failed`), and the parser's whole message for a body that doesn't decode. Default: off,
    /// and logs have the error's type, the place in the body and the name of a field that is
    /// missing.
    ///
    /// Such texts may quote the request: switch it on where logs may hold what payloads hold, or
    /// where your errors quote nothing.
    ///
    /// ```
    /// # use lambda_idempotency::{Error, Idempotency, Key, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .namespace("payments")
    ///     .settings(|settings| settings.log_errors = true)
    ///     .build()?;
    /// let run = once.run(Key::new("charge", "A-17"), None, |_| async { Err::<(), _>("card declined") });
    /// assert!(matches!(run.await, Err(Error::Handler("card declined")))); // and logged
    /// # Ok(()) }
    /// ```
    pub log_errors: bool,
    // The builder's methods set the others.
    pub(crate) retention: Option<Duration>,
    pub(crate) lease: Duration,
    pub(crate) renewed_lease: Option<Duration>,
    pub(crate) max_attempts: Option<NonZeroU32>,
    pub(crate) on_crash: OnCrash,
    pub(crate) in_flight: InFlight,
    pub(crate) on_store_unavailable: OnStoreUnavailable,
    pub(crate) on_missing_key: OnMissingKey,
    /// A step's result that does not read back from JSON is an error: in tests.
    pub(crate) is_strict: bool,
}

impl Settings {
    /// Makes the defaults of an engine that runs there.
    pub(crate) fn of(host: Host) -> Self {
        Self {
            failure_retention: Duration::from_hours(1),
            max_duration: host.longest(),
            at_deadline: host.at_deadline(),
            skew_margin: Duration::from_secs(1),
            max_retry_after: Duration::from_secs(30),
            unrecorded: Unrecorded::Return,
            store_timeout: Duration::from_secs(10),
            inline_limit: 8 * 1_024,
            max_token_chars: DEFAULT_MAX_TOKEN_CHARS,
            detached_limit: DETACHED_LIMIT,
            group_requests: false,
            log_errors: false,
            retention: None,
            lease: host.longest(),
            renewed_lease: None,
            max_attempts: None,
            on_crash: OnCrash::RunAgain,
            in_flight: InFlight::FailFast,
            on_store_unavailable: OnStoreUnavailable::FailClosed,
            on_missing_key: OnMissingKey::Refuse,
            is_strict: false,
        }
    }

    /// Returns the settings on which decisions depend.
    pub(super) fn rules(&self) -> Rules {
        Rules {
            on_crash: self.on_crash,
            max_attempts: self.max_attempts,
            skew_margin: self.skew_margin,
        }
    }

    /// Returns the length of a lease that is renewed; `None` where it lasts for the whole attempt:
    /// up to an invocation's deadline, for a batch, and without a claim.
    pub(crate) fn lease_to_renew(&self, options: &Options) -> Option<Duration> {
        let lease = self.renewed_lease?;
        let lasts = options.is_batch() || options.deadline.is_some() || options.claimless;
        (!lasts).then_some(lease.min(self.max_duration))
    }

    /// Returns whether work goes on after the deadline of its invocation.
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
    /// The caller of a detached run, while it waits. Any other run is dropped with its caller.
    pub(crate) caller: Option<Weak<()>>,
    /// `None` where the request is no message of a batch.
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
            caller: None,
            batch: None,
            place: None,
        }
    }
}

impl Options {
    /// Copies the options of this call alone.
    pub(super) fn without_batch(&self) -> Self {
        Self {
            batch: None,
            place: None,
            ..self.clone()
        }
    }

    /// Returns whether the caller of a detached run has gone away.
    pub(super) fn caller_has_gone(&self) -> bool {
        let caller = self.caller.as_ref();
        caller.is_some_and(|caller| caller.strong_count() == 0)
    }

    /// Returns the groups of the request's batch, where it has some.
    pub(super) fn groups(&self) -> Option<&Groups> {
        self.batch.as_ref()?.groups.as_ref()
    }

    /// Returns the instant from which on a message of a batch may not start.
    pub(super) fn stop(&self) -> Option<Instant> {
        self.place.as_ref()?.stop().filter(|_| self.is_batch())
    }

    /// Returns whether it has its place, or needs none.
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

    /// Returns whether the request is a message of a batch.
    pub(super) fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Returns whether a failure is kept as long as another outcome.
    pub(super) fn keeps_failures(&self) -> bool {
        self.batch
            .as_ref()
            .is_some_and(|batch| batch.keeps_failures)
    }

    /// Returns the instant that ends each store call, whatever time the call would get by itself.
    pub(super) fn store_end(&self) -> Option<Instant> {
        self.batch.as_ref()?.store_end
    }
}

/// The state that the requests of one batch share.
#[derive(Debug)]
pub(crate) struct Batch {
    /// `None` where each request leaves alone.
    groups: Option<Groups>,
    pub(super) owners: Owners,
    /// `None` where the invocation's deadline is not known. The reply to the other requests doesn't
    /// wait longer for a slow store.
    store_end: Option<Instant>,
    /// The messages that fail may be acknowledged, and delivered again.
    keeps_failures: bool,
}

#[cfg(feature = "batch")]
impl Batch {
    /// Creates the state for a batch of this many requests; without a store, each request leaves
    /// alone.
    pub(crate) fn new(
        store: Option<Arc<dyn DynStore>>,
        requests: usize,
        store_end: Option<Instant>,
        keeps_failures: bool,
    ) -> Self {
        Self {
            groups: store.map(|store| Groups::new(store, true)),
            owners: Owners::for_batch(requests.min(GROUP)),
            store_end,
            keeps_failures,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_where_nothing_else_ends_the_attempt() {
        let lease = Duration::from_secs(20);
        let settings = Settings {
            renewed_lease: Some(lease),
            ..Settings::of(Host::Elsewhere)
        };
        let renewed = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            settings.lease_to_renew(&options)
        };
        assert_eq!(renewed(|_| {}), Some(lease));
        assert_eq!(renewed(|options| options.claimless = true), None);
        assert_eq!(
            renewed(|options| options.deadline = Some(EpochMillis(1))),
            None
        );
        let settings = Settings {
            max_duration: lease / 2,
            ..settings
        };
        let shorter = settings.lease_to_renew(&Options::default());
        assert_eq!(shorter, Some(lease / 2));
    }

    #[test]
    fn after_a_deadline_a_lease_lasts_for_a_minute_unless_a_setting_is_shorter() {
        let beyond = |renewed_lease, max_duration, claimless| {
            let settings = Settings {
                renewed_lease,
                max_duration,
                at_deadline: AtDeadline::GoOn,
                ..Settings::of(Host::Elsewhere)
            };
            settings.lease_beyond_deadline(&Options {
                deadline: Some(EpochMillis(1)),
                claimless,
                ..Options::default()
            })
        };
        let [second, minute, hour] = [1, 60, 3_600].map(Duration::from_secs);
        assert_eq!(beyond(None, hour, false), Some(minute));
        assert_eq!(beyond(Some(hour), hour, false), Some(minute));
        assert_eq!(beyond(Some(second), hour, false), Some(second));
        assert_eq!(beyond(None, second, false), Some(second));
        assert_eq!(beyond(None, hour, true), None);
    }
}
