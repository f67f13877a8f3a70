//! One structured event per decision, and one count. Hashes and names only: never a payload, a token or an outcome.

use std::fmt::Display;

use crate::claim::Hold;
use crate::clock::EpochMillis;
use crate::engine::{Finished, Request};
use crate::error::Error;
use crate::metrics::Count;
use crate::record::{Completion, Found, Record, StoredOutcome};

/// What may be said of the record that a request met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    attempt: Option<u32>,
    /// How long ago it was completed, or else claimed.
    age_ms: Option<u64>,
}

impl Seen {
    pub(crate) fn of(found: Option<&Found>, now: EpochMillis) -> Self {
        let Some(record) = readable(found) else {
            return Self::default();
        };
        let age = |since: EpochMillis| now.saturating_since(since).as_millis().try_into().ok();
        Self {
            attempt: Some(record.attempt),
            age_ms: record.completed_at.or(record.started_at).and_then(age),
        }
    }
}

fn readable(found: Option<&Found>) -> Option<&Record> {
    found.and_then(|found| found.content.as_ref().ok())
}

pub(crate) fn claimed(request: &Request, hold: &Hold, found: Option<&Found>) {
    request.meter.count(Count::Executions);
    let event = match readable(found) {
        Some(record) if hold.attempt > 1 && record.is_released() => {
            request.meter.count(Count::Retries);
            "retried"
        }
        _ if hold.attempt > 1 => {
            request.meter.count(Count::Takeovers);
            "taken_over"
        }
        _ => "claimed",
    };
    tracing::debug!(event, operation = request.operation, key = %request.id, attempt = hold.attempt, "idempotency");
}

pub(crate) fn replayed(request: &Request, record: &Record, seen: Seen) {
    request.meter.count(Count::Replays);
    tracing::info!(
        event = "replayed",
        operation = request.operation,
        key = %request.id,
        attempt = record.attempt,
        age_ms = seen.age_ms,
        status = record.status.as_str(),
        "idempotency"
    );
}

pub(crate) fn refused<E>(request: &Request, error: &Error<E>, seen: Seen) {
    if let Some(what) = refusal(error) {
        request.meter.count(what);
    }
    let event = error.code();
    let (operation, key) = (&request.operation, &request.id);
    let Seen { attempt, age_ms } = seen;
    match error {
        Error::InFlight { .. } => {
            tracing::info!(event, operation, %key, attempt, age_ms, "idempotency");
        }
        Error::Store(reason) => {
            tracing::error!(event, operation, %key, error = %reason, "idempotency");
        }
        Error::Unreadable(reason) => {
            tracing::error!(event, operation, %key, error = reason, "idempotency");
        }
        _ => tracing::warn!(event, operation, %key, attempt, age_ms, "idempotency"),
    }
}

fn refusal<E>(error: &Error<E>) -> Option<Count> {
    Some(match error {
        Error::InFlight { .. } => Count::InFlight,
        Error::Mismatch => Count::Mismatches,
        Error::Interrupted { .. } | Error::Exhausted { .. } => Count::Interrupted,
        Error::TooLate => Count::TooLate,
        // Duplicates, all the same: the handler doesn't run again.
        Error::Failed(_) | Error::OutcomeOmitted { .. } => Count::Replays,
        Error::Unreadable(_) => Count::Unreadable,
        Error::Store(_) => Count::StoreErrors,
        _ => return None,
    })
}

pub(crate) fn finished(
    request: &Request,
    hold: &Hold,
    completion: &Completion,
    finished: &Finished,
) {
    let (operation, key, attempt) = (&request.operation, &request.id, hold.attempt);
    let ran_ms = ran_ms(hold, completion.completed_at);
    match finished {
        Finished::Recorded => {
            let (event, status) = ("completed", completion.status.as_str());
            match &completion.outcome {
                StoredOutcome::Inline(text) => request.meter.stored(text.len()),
                StoredOutcome::Omitted(reason) => {
                    request.meter.count(Count::OutcomesOmitted);
                    let event = "outcome_omitted";
                    tracing::warn!(event, operation, %key, attempt, ?reason, "idempotency");
                    return;
                }
            }
            tracing::debug!(event, operation, %key, attempt, ran_ms, status, outcome = ?completion.outcome, "idempotency");
        }
        Finished::Superseded(_) | Finished::Lost => {
            request.meter.count(Count::LeasesLost);
            tracing::warn!(event = "lease_lost", operation, %key, attempt, ran_ms, "idempotency");
        }
        Finished::Unrecorded(error) => {
            request.meter.count(Count::Unrecorded);
            request.meter.count(Count::StoreErrors);
            tracing::error!(event = "unrecorded", operation, %key, attempt, %error, "idempotency");
        }
    }
}

fn ran_ms(hold: &Hold, now: EpochMillis) -> Option<u64> {
    let ran = now.saturating_since(hold.started_at?);
    ran.as_millis().try_into().ok()
}

pub(crate) fn released(request: &Request, hold: &Hold, last_error: Option<&str>) {
    tracing::info!(
        event = "released",
        operation = request.operation,
        key = %request.id,
        attempt = hold.attempt,
        last_error,
        "idempotency"
    );
}

pub(crate) fn release_failed(request: &Request, hold: &Hold, error: &dyn Display) {
    request.meter.count(Count::StoreErrors);
    tracing::warn!(
        event = "release_failed",
        operation = request.operation,
        key = %request.id,
        attempt = hold.attempt,
        %error,
        "idempotency"
    );
}

pub(crate) fn unprotected(operation: &str, reason: &dyn Display) {
    tracing::warn!(event = "unprotected", operation, %reason, "idempotency");
}
