//! Makes requests, and sends their store calls: in the group of their batch, or alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::metrics::Meter;
use crate::engine::request::SHORTEST_RETENTION;
use crate::engine::{Engine, Options, REPLY_TIME, Request};
use crate::protocol::clock::EpochMillis;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError, RecordId};
use crate::protocol::record::{Found, RecordWrite};
use crate::store::{Answer, StoreError};

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
        let (operation, id) = (key.shared_operation(), self.record_id(key)?);
        let meter = self.meter(Some(key));
        let fingerprint = key.bind(fingerprint);
        let request = Request::new(operation, id, fingerprint, retention, options, meter);
        Ok(request)
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
            self.renewed_lease(&request.options)
                .unwrap_or(self.settings.lease)
        };
        deadline.unwrap_or_else(|| now + lease()).max(now)
    }

    /// Limits how long a duplicate waits for another attempt, so that its own invocation does not
    /// end meanwhile. A message of a batch waits for as long as it may start.
    pub(super) fn longest_wait(&self, request: &Request, limit: Duration) -> Duration {
        let deadline = request.options.deadline;
        let left = deadline.map(|deadline| deadline.saturating_since(self.clock.now()));
        let limit = left.map_or(limit, |left| limit.min(left.saturating_sub(REPLY_TIME)));
        let stop = request.options.stop();
        stop.map_or(limit, |stop| limit.min(stop - Instant::now()))
    }

    /// Sends a write: with its batch's group, where it has one, else alone.
    pub(super) async fn write(
        &self,
        request: &Request,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        #[cfg(feature = "batch")]
        if let Some(groups) = request.options.groups() {
            let answer = groups.write(write, deadline).await;
            request.note_claim(write, &answer);
            return answer;
        }
        let answer = self.store.write(write, deadline).await;
        request.note_claim(write, &answer);
        answer
    }

    /// Reads the request's record: with its batch's group, where it has one, else alone.
    pub(super) async fn read(
        &self,
        request: &Request,
        deadline: Instant,
    ) -> Result<Option<Found>, StoreError> {
        #[cfg(feature = "batch")]
        if let Some(groups) = request.options.groups() {
            let found = groups.load(&request.id, deadline).await;
            request.note(&found);
            return found;
        }
        let found = self.store.load(&request.id, deadline).await;
        request.note(&found);
        found
    }
}
