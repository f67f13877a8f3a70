//! A request for a run: its key is resolved and its fingerprint taken before the handler sees
//! anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::claim::Subject;
use crate::engine::metrics::Meter;
use crate::engine::moment::Moment;
use crate::engine::options::Options;
use crate::protocol::clock::EpochMillis;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::RecordId;
use crate::protocol::record::{Found, RecordWrite};
use crate::store::{Answer, StoreError};

/// The least retention of one operation: a shorter one would not outlast a retry.
pub(super) const SHORTEST_RETENTION: Duration = Duration::from_secs(1);

/// The least retention: longer than AWS takes a request's signature, so that no copy of a commit is
/// delivered to a key that was forgotten.
pub(super) const LEAST_RETENTION: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub(crate) struct Request {
    pub(super) operation: Arc<str>,
    pub(super) id: RecordId,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) retention: Duration,
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
        let Some(record) = found.and_then(|found| found.content.as_ref().ok()) else {
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
    /// Makes a request that has met no record yet.
    pub(super) fn new(
        operation: Arc<str>,
        id: RecordId,
        fingerprint: Option<Fingerprint>,
        retention: Duration,
        options: Options,
        meter: Arc<Meter>,
    ) -> Self {
        Self {
            operation,
            id,
            fingerprint,
            retention,
            options,
            meter,
            seen: Mutex::default(),
            answered: AtomicBool::new(false),
        }
    }

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
            options: self.options.without_batch(),
            meter: Arc::clone(&self.meter),
            seen: Mutex::new(self.seen()),
            answered: AtomicBool::new(self.is_answered()),
        }
    }

    /// Returns the deadline of a store call of this request: its batch may end it earlier.
    pub(super) fn store_deadline(
        &self,
        now: Moment,
        until: EpochMillis,
        limit: Duration,
    ) -> Instant {
        now.store_deadline(until, limit, self.options.store_end())
    }

    /// Notes the record that was met.
    pub(super) fn meet(&self, found: Option<&Found>, now: EpochMillis) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Seen::of(found, now);
    }

    /// Tells whether the store has answered a read or a claim of this request in any way: with a
    /// record, with its absence, by throttling or by a refusal.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Notes the answer to a claim. Other writes come after the decision to run, or after the claim
    /// has failed.
    pub(super) fn note_claim(&self, write: &RecordWrite, reply: &Result<Answer, StoreError>) {
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
        let is_silent =
            |error: &StoreError| error.is_unreachable() || matches!(error, StoreError::NotSent);
        if !reply.as_ref().is_err_and(is_silent) {
            self.answered.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the record that was met last.
    pub(super) fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
