//! One structured event per decision. Hashes and names only: never a payload, a token or an outcome.

use std::fmt::Display;

use crate::claim::Hold;
use crate::engine::Seen;
use crate::engine::{Ended, Finished, Request};
use crate::error::Error;
use crate::key::RecordId;
use crate::metrics::Count;
use crate::record::{Completion, Record, StoredOutcome};

pub(crate) fn claimed(request: &Request, hold: &Hold) {
    request.meter.count(Count::Executions);
    let event = match hold.attempt {
        ..=1 => "claimed",
        _ if request.seen().is_released => {
            request.meter.count(Count::Retries);
            "retried"
        }
        _ => {
            request.meter.count(Count::Takeovers);
            "taken_over"
        }
    };
    tracing::debug!(event, operation = &*request.operation, key = %request.id, attempt = hold.attempt, "idempotency");
}

pub(crate) fn replayed(request: &Request, record: &Record) {
    request.meter.count(Count::Replays);
    tracing::info!(
        event = "replayed",
        operation = &*request.operation,
        key = %request.id,
        attempt = record.attempt,
        age_ms = request.seen().age_ms,
        status = record.status.as_str(),
        "idempotency"
    );
}

pub(crate) fn refused<E>(request: &Request, error: &Error<E>) {
    if let Some(what) = refusal(error) {
        request.meter.count(what);
    }
    let event = error.code();
    let (operation, key) = (&*request.operation, &request.id);
    let Seen {
        attempt, age_ms, ..
    } = request.seen();
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
        Error::LeaseLost => Count::LeasesLost,
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
    finished_by(request, hold.attempt, completion, finished);
}

fn finished_by(request: &Request, attempt: u32, completion: &Completion, finished: &Finished) {
    let (operation, key) = (&*request.operation, &request.id);
    match finished {
        Finished::Recorded if matches!(completion.outcome, StoredOutcome::Omitted(_)) => {
            request.meter.count(Count::OutcomesOmitted);
            let outcome = &completion.outcome;
            tracing::warn!(event = "outcome_omitted", operation, %key, attempt, ?outcome, "idempotency");
        }
        Finished::Recorded => {
            match &completion.outcome {
                StoredOutcome::Inline(text) => request.meter.stored(text.len() as u64),
                StoredOutcome::Packed(packed) => request.meter.stored(packed.bytes),
                StoredOutcome::Omitted(_) => {}
            }
            let (event, status) = ("completed", completion.status.as_str());
            tracing::debug!(event, operation, %key, attempt, status, outcome = ?completion.outcome, "idempotency");
        }
        Finished::Superseded(_) | Finished::Lost => {
            request.meter.count(Count::LeasesLost);
            tracing::warn!(event = "lease_lost", operation, %key, attempt, "idempotency");
        }
        Finished::Unrecorded(error) => {
            request.meter.count(Count::Unrecorded);
            request.meter.count(Count::StoreErrors);
            tracing::error!(event = "unrecorded", operation, %key, attempt, %error, "idempotency");
        }
    }
}

/// A handler that runs without a claim: a duplicate's, too.
pub(crate) fn unclaimed(request: &Request) {
    request.meter.count(Count::Executions);
}

/// A transaction's end.
pub(crate) fn committed(request: &Request, attempt: u32, completion: &Completion, ended: &Ended) {
    let (operation, key) = (&*request.operation, &request.id);
    match ended {
        Ended::Finished(finished) => finished_by(request, attempt, completion, finished),
        Ended::Refused(refusal) => {
            request.meter.count(Count::Failures);
            let index = refusal.index();
            tracing::info!(event = "condition_failed", operation, %key, attempt, index, "idempotency");
        }
        Ended::NotCommitted(error) => {
            request.meter.count(Count::Failures);
            request.meter.count(Count::StoreErrors);
            tracing::warn!(event = "not_committed", operation, %key, attempt, %error, "idempotency");
        }
        Ended::Unknown(error) => {
            request.meter.count(Count::OutcomesUnknown);
            tracing::error!(event = "outcome_unknown", operation, %key, attempt, %error, "idempotency");
        }
    }
}

pub(crate) fn released(request: &Request, hold: &Hold, last_error: Option<&str>) {
    tracing::info!(
        event = "released",
        operation = &*request.operation,
        key = %request.id,
        attempt = hold.attempt,
        last_error,
        "idempotency"
    );
}

pub(crate) fn not_kept(request: &Request, hold: &Hold, error: &dyn Display) {
    tracing::warn!(
        event = "outcome_not_kept",
        operation = &*request.operation,
        key = %request.id,
        attempt = hold.attempt,
        %error,
        "idempotency"
    );
}

pub(crate) fn release_failed(request: &Request, hold: &Hold, error: &dyn Display) {
    request.meter.count(Count::StoreErrors);
    tracing::warn!(
        event = "release_failed",
        operation = &*request.operation,
        key = %request.id,
        attempt = hold.attempt,
        %error,
        "idempotency"
    );
}

pub(crate) fn step(event: &str, operation: &str, key: &RecordId, step: &str) {
    tracing::debug!(event, operation, %key, step, "idempotency");
}

pub(crate) fn step_failed(
    event: &str,
    operation: &str,
    key: &RecordId,
    step: &str,
    error: &dyn Display,
) {
    tracing::warn!(event, operation, %key, step, %error, "idempotency");
}

pub(crate) fn unprotected(operation: &str, reason: &dyn Display) {
    tracing::warn!(event = "unprotected", operation, %reason, "idempotency");
}
