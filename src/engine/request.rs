//! A request for a run: its key is resolved and its fingerprint taken before the handler sees
//! anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::error::{Error, Obstacle};
use crate::engine::metrics::Meter;
use crate::engine::settings::OnStoreUnavailable;
use crate::engine::time::Moment;
use crate::engine::{Engine, LEAST_STORE_TIME, Options, REPLY_TIME};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError, RecordId};
use crate::protocol::lock::lock;
use crate::protocol::record::{Completion, Found, Owner, RecordWrite};
use crate::protocol::{Decision, Settled, settle};
use crate::store::grouped::Groups;
use crate::store::{Answer, StoreError};

/// The least retention of one operation: a shorter one would not outlast a retry.
pub(super) const SHORTEST_RETENTION: Duration = Duration::from_secs(1);

/// The least retention: longer than AWS takes a request's signature, so that no copy of a commit is
/// delivered to a key that was forgotten.
pub(super) const LEAST_RETENTION: Duration = Duration::from_hours(1);

/// The number of lost races after which another attempt holds the key.
pub(super) const MAX_ROUNDS: u32 = 3;

/// The request that a claim is of.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) operation: Arc<str>,
    pub(crate) id: RecordId,
    pub(crate) meter: Arc<Meter>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(super) operation: Arc<str>,
    pub(super) id: RecordId,
    pub(super) fingerprint: Option<Fingerprint>,
    /// The time for which this outcome is kept.
    pub(super) retention: Duration,
    /// The time for which other outcomes of the key are kept.
    usual_retention: Duration,
    pub(super) options: Options,
    pub(super) meter: Arc<Meter>,
    /// The fields that logs have of the record that was met last.
    seen: Mutex<Seen>,
    /// The store has answered this request: so it can be reached.
    answered: AtomicBool,
}

/// The fields that logs have of a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) attempt: Option<u32>,
    /// The time since it was completed, or else claimed.
    pub(super) age_ms: Option<u64>,
    pub(super) is_released: bool,
}

impl Seen {
    fn of(found: Option<&Found>, now: EpochMillis) -> Self {
        let Some(record) = found.and_then(Found::record) else {
            return Self::default();
        };
        let age = |since: EpochMillis| now.saturating_since(since).as_millis().try_into().ok();
        Self {
            attempt: Some(record.attempt),
            age_ms: record.completed_at.or(record.started_at).and_then(age),
            is_released: record.is_released(),
        }
    }
}

impl Request {
    /// Returns what a claim is of.
    pub(super) fn subject(&self) -> Subject {
        Subject {
            operation: Arc::clone(&self.operation),
            id: self.id.clone(),
            meter: Arc::clone(&self.meter),
        }
    }

    /// Copies what an ending needs that outlives its call. Nobody drives the groups of its batch
    /// any more.
    pub(super) fn without_batch(&self) -> Self {
        Self {
            operation: Arc::clone(&self.operation),
            id: self.id.clone(),
            fingerprint: self.fingerprint.clone(),
            retention: self.retention,
            usual_retention: self.usual_retention,
            options: self.options.without_batch(),
            meter: Arc::clone(&self.meter),
            seen: Mutex::new(self.seen()),
            answered: AtomicBool::new(self.is_answered()),
        }
    }

    /// Keeps the record of a failure, or of an answer with its own retention, as long as another outcome,
    /// where it is to be kept: without it, a message that was acknowledged would run again; without its
    /// journal, a retry would fire the steps again, or derive the first keys.
    pub(super) fn keep_longer(&self, completion: &mut Completion, is_to_be_kept: bool) {
        if is_to_be_kept {
            completion.expiration = self.longest(completion);
        }
    }

    /// Returns the time until which the record of a completion is kept at the longest.
    pub(super) fn longest(&self, completion: &Completion) -> EpochSeconds {
        let usual = completion.completed_at + self.usual_retention;
        completion.expiration.max(usual.ceil_seconds())
    }

    /// Settles a completion that this record has refused.
    pub(super) fn settle(&self, completion: &Completion, found: Option<&Found>) -> Settled {
        settle(found, completion, self.fingerprint.as_ref())
    }

    /// Notes the record that was met.
    pub(super) fn meet(&self, found: Option<&Found>, now: EpochMillis) {
        *lock(&self.seen) = Seen::of(found, now);
    }

    /// Returns whether the store has answered a read or a claim of this request in any way: with a
    /// record, with its absence, by throttling or by a refusal.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Notes the answer to a claim. Other writes come after the decision to run, or after the claim
    /// has failed.
    fn note_claim(&self, write: &RecordWrite, reply: &Result<Answer, StoreError>) {
        if matches!(write, RecordWrite::Create(_) | RecordWrite::TakeOver { .. }) {
            self.note(reply);
        }
    }

    /// Notes that the store has shown a record of the key.
    pub(super) fn note_record(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Notes whether this was an answer.
    pub(super) fn note<T>(&self, reply: &Result<T, StoreError>) {
        let is_silent = |error: &StoreError| {
            (error.is_unreachable() && !error.is_uncertain())
                || matches!(error, StoreError::NotSent)
        };
        if !reply.as_ref().is_err_and(is_silent) {
            self.answered.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the record that was met last.
    pub(super) fn seen(&self) -> Seen {
        *lock(&self.seen)
    }
}

/// The name of the operation of requests without a key, in the metrics.
const UNKEYED: &str = "unkeyed";

impl Engine {
    pub(super) fn request(
        &self,
        key: &Key,
        fingerprint: Option<Fingerprint>,
        options: Options,
    ) -> Result<Request, KeyError> {
        let own = options.retention.map(|own| own.max(SHORTEST_RETENTION));
        let retention = own.or(self.settings.retention);
        let retention = retention.unwrap_or(options.default_retention);
        Ok(Request {
            operation: key.shared_operation(),
            id: self.record_id(key)?,
            fingerprint: key.bind(fingerprint),
            retention,
            usual_retention: retention,
            options,
            meter: self.meter(Some(key)),
            seen: Mutex::default(),
            answered: AtomicBool::new(false),
        })
    }

    /// Returns the id of a key's record.
    pub(crate) fn record_id(&self, key: &Key) -> Result<RecordId, KeyError> {
        let id = key.resolve(&self.namespace, self.settings.max_token_chars)?;
        let (bytes, max) = (id.as_str().len(), self.store.max_id_bytes());
        if bytes > max {
            return Err(KeyError::IdTooLong { bytes, max });
        }
        Ok(id)
    }

    /// Returns the meter of a key's operation.
    pub(super) fn meter(&self, key: Option<&Key>) -> Arc<Meter> {
        let operation = key.map_or(UNKEYED, Key::label);
        self.meters.of(self.namespace.as_str(), operation)
    }

    /// Returns the time until which a claim lasts: the invocation's deadline, else the end of the
    /// renewed or the configured lease. Never in the past, so that a remaining time of zero still gives a
    /// lease.
    pub(super) fn run_until(&self, request: &Request, now: EpochMillis) -> EpochMillis {
        let deadline = request.options.deadline;
        let lease = || {
            self.settings
                .lease_to_renew(&request.options)
                .unwrap_or(self.settings.lease)
        };
        deadline.unwrap_or_else(|| now + lease()).max(now)
    }

    /// Returns the instant that ends a store call which begins now: the batch's, or one before the deadline
    /// that ends the request's work.
    pub(super) fn store_end(&self, request: &Request, now: Moment) -> Option<Instant> {
        let options = &request.options;
        if options.is_batch() || self.settings.work_goes_on(options) {
            return options.store_end();
        }
        now.end_before(options.deadline?)
    }

    /// Returns the deadline of a store call of this request.
    pub(super) fn store_deadline(
        &self,
        request: &Request,
        now: Moment,
        until: EpochMillis,
        limit: Duration,
    ) -> Instant {
        now.store_deadline(until, limit, self.store_end(request, now))
    }

    /// Returns the deadline of a store call before the handler. Within an invocation it leaves time for
    /// as many more calls; where the handler runs although no answer comes, the call takes half of what
    /// is left, or half a second.
    pub(super) fn deadline_to_begin(&self, request: &Request, now: Moment, more: u32) -> Instant {
        let until = self.run_until(request, now.time);
        let needs_no_answer = self.observed.is_some()
            || request.options.claimless
            || self.settings.on_store_unavailable == OnStoreUnavailable::FailOpen;
        let kept = match request.options.deadline {
            None => Duration::ZERO,
            Some(_) if needs_no_answer => until.saturating_since(now.time) / 2,
            Some(_) => LEAST_STORE_TIME * more,
        };
        self.store_deadline(request, now, until - kept, self.settings.store_timeout)
    }

    /// Limits how long a duplicate waits for another attempt, so that its last look and its answer come
    /// before its own invocation ends. A message of a batch waits for as long as it may start.
    pub(super) fn longest_wait(&self, request: &Request, limit: Duration) -> Duration {
        if let Some(stop) = request.options.stop() {
            return limit.min(stop - Instant::now());
        }
        let deadline = request.options.deadline;
        let left = deadline.map(|deadline| deadline.saturating_since(self.clock.now()));
        let kept = LEAST_STORE_TIME + REPLY_TIME;
        left.map_or(limit, |left| limit.min(left.saturating_sub(kept)))
    }

    /// Returns the groups that a request's writes and reads leave with: its batch's, or the engine's.
    fn groups<'a>(&'a self, request: &'a Request) -> Option<&'a Groups> {
        if request.options.is_batch() {
            request.options.groups()
        } else {
            self.groups.as_ref()
        }
    }

    /// Sends a write: in a group, where there are groups, else alone.
    pub(super) async fn write(
        &self,
        request: &Request,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = match self.groups(request) {
            Some(groups) => groups.write(write, deadline).await,
            None => self.store.write(write, deadline).await,
        };
        request.note_claim(write, &answer);
        answer
    }

    /// Reads the request's record, as [`write`](Self::write) sends a write.
    pub(super) async fn read(
        &self,
        request: &Request,
        deadline: Instant,
    ) -> Result<Option<Found>, StoreError> {
        let found = match self.groups(request) {
            Some(groups) => groups.load(&request.id, deadline).await,
            None => self.store.load(&request.id, deadline).await,
        };
        request.note(&found);
        found
    }

    pub(super) fn new_owner(&self, request: &Request) -> Result<Owner, Obstacle> {
        let batch = request.options.batch.as_ref();
        let owners = batch.map_or(&self.owners, |batch| &batch.owners);
        owners.next().map_err(Error::Entropy)
    }

    pub(super) async fn look(&self, request: &Request) -> Result<Option<Found>, StoreError> {
        let now = self.moment();
        let until = self.run_until(request, now.time);
        let deadline = self.store_deadline(request, now, until, self.settings.store_timeout);
        self.read(request, deadline).await
    }

    /// Looks before anything else: a claim may follow, and its release.
    pub(super) async fn look_first(&self, request: &Request) -> Result<Option<Found>, StoreError> {
        let deadline = self.deadline_to_begin(request, self.moment(), 2);
        self.read(request, deadline).await
    }

    /// Returns the obstacle that a decision means.
    pub(super) fn obstacle(
        &self,
        request: &Request,
        decision: &Decision<'_>,
        now: EpochMillis,
    ) -> Obstacle {
        match *decision {
            // The attempt may fail and leave the key free. A queue delivers its message until then.
            Decision::Mismatch { until: Some(until) } if request.options.is_batch() => {
                self.in_flight(request, until.saturating_since(now))
            }
            Decision::InFlight { until } => self.in_flight(request, until.saturating_since(now)),
            Decision::Mismatch { .. } => Error::Mismatch,
            Decision::Interrupted { since } => Error::Interrupted {
                since: since.into(),
            },
            Decision::Exhausted { attempts } => Error::Exhausted { attempts },
            Decision::Unreadable(reason) => Error::Unreadable(reason.to_owned()),
            // The key is free, but the claim was lost to other attempts in each round.
            Decision::Create
            | Decision::Mine(_)
            | Decision::TakeOver { .. }
            | Decision::Replay(_)
            | Decision::ReplayFailure(_) => self.in_flight(request, Duration::ZERO),
        }
    }

    /// Returns the obstacle of another attempt whose lease ends after this time. A message of a batch is
    /// not told to come earlier: each receive counts towards its queue's limit.
    pub(super) fn in_flight(&self, request: &Request, lease: Duration) -> Obstacle {
        let limit = if request.options.is_batch() {
            Duration::MAX
        } else {
            self.settings.max_retry_after
        };
        Error::InFlight {
            retry_after: lease.min(limit),
            lease,
        }
    }
}
