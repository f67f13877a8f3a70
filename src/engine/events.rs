//! Emits one structured event per decision. An event has hashes and names: never a payload, a token
//! or an outcome.

use std::fmt::Display;
use std::time::Duration;

use crate::engine::Request;
use crate::engine::error::{Error, Obstacle};
use crate::engine::fence::Hold;
use crate::engine::metrics::Count;
use crate::engine::request::{Seen, Subject};
use crate::protocol::Settled;
use crate::protocol::key::{KeyError, RecordId};
use crate::protocol::record::{Completion, Record, RecordWrite, Status, StoredOutcome};
use crate::store::StoreError;

pub(super) fn claimed(request: &Request, hold: &Hold) {
    request.meter.count(Count::Executions);
    let (operation, key, attempt) = (&*request.operation, &request.id, hold.attempt);
    match attempt {
        ..=1 => tracing::debug!(event = "claimed", operation, %key, attempt, "idempotency"),
        _ if request.seen().is_released => {
            request.meter.count(Count::Retries);
            tracing::debug!(event = "retried", operation, %key, attempt, "idempotency");
        }
        _ => {
            request.meter.count(Count::Takeovers);
            // An attempt died, and may have had its effect: an operator looks for it.
            tracing::info!(event = "taken_over", operation, %key, attempt, "idempotency");
        }
    }
}

pub(super) fn replayed(request: &Request, record: &Record) {
    request.meter.count(Count::Replays);
    let (operation, key, attempt) = (&*request.operation, &request.id, record.attempt);
    let status = record.status.as_str();
    tracing::info!(event = "replayed", operation, %key, attempt, age_ms = request.seen().age_ms, status, "idempotency");
}

pub(super) fn refused(request: &Request, error: &Obstacle) {
    if let Some(what) = refusal(error) {
        request.meter.count(what);
    }
    let event = error.code();
    let (operation, key) = (&*request.operation, &request.id);
    let Seen {
        attempt, age_ms, ..
    } = request.seen();
    match error {
        Error::InFlight { lease, .. } => {
            // Where a claim lost its races, the lease is not known.
            let known = Some(*lease).filter(|lease| !lease.is_zero());
            let lease_ms = known.and_then(|lease| u64::try_from(lease.as_millis()).ok());
            tracing::info!(event, operation, %key, attempt, age_ms, lease_ms, "idempotency");
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

/// Reports a request whose key can't be used, so that no record has its id.
pub(super) fn unusable(operation: &str, error: &KeyError) {
    let event = error.code();
    tracing::warn!(event, operation, "idempotency");
}

/// Names what a refusal is counted as.
pub(super) fn refusal(error: &Obstacle) -> Option<Count> {
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
        Error::Handler(_)
        | Error::Compensating
        | Error::TimedOut
        | Error::Unrecorded(_)
        | Error::Refused(_)
        | Error::NotCommitted(_)
        | Error::OutcomeUnknown(_)
        | Error::Overloaded
        | Error::Write(_)
        | Error::Key(_)
        | Error::Entropy(_) => return None,
    })
}

pub(super) fn finished(
    request: &Request,
    attempt: u32,
    completion: &Completion,
    finished: &Result<Settled, StoreError>,
) {
    match finished {
        Ok(settled) => fenced(request, attempt, completion, settled),
        // Nothing happened that a duplicate could repeat: as where a release fails, the lease runs out.
        Err(error) if completion.status == Status::Failed => {
            release_failed(request, attempt, error);
        }
        Err(error) => {
            request.meter.count(Count::Unrecorded);
            request.meter.count(Count::StoreErrors);
            let (operation, key) = (&*request.operation, &request.id);
            let event = "unrecorded";
            tracing::error!(event, operation, %key, attempt, %error, "idempotency");
        }
    }
}

fn fenced(request: &Request, attempt: u32, completion: &Completion, settled: &Settled) {
    let (operation, key) = (&*request.operation, &request.id);
    let is_omitted =
        request.options.wants_outcome && matches!(completion.outcome, StoredOutcome::Omitted(_));
    match settled {
        Settled::Recorded if is_omitted => {
            request.meter.count(Count::OutcomesOmitted);
            let outcome = &completion.outcome;
            tracing::warn!(event = "outcome_omitted", operation, %key, attempt, ?outcome, "idempotency");
        }
        Settled::Recorded => {
            match &completion.outcome {
                StoredOutcome::Inline(text) => request.meter.stored(text.len() as u64),
                StoredOutcome::Packed(packed) => request.meter.stored(packed.bytes),
                StoredOutcome::Omitted(_) => {}
            }
            let (event, status) = ("completed", completion.status.as_str());
            tracing::debug!(event, operation, %key, attempt, status, outcome = ?completion.outcome, "idempotency");
        }
        Settled::Superseded(_) | Settled::Lost => {
            request.meter.count(Count::LeasesLost);
            tracing::warn!(event = "lease_lost", operation, %key, attempt, "idempotency");
        }
    }
}

/// Reports how a transaction ended.
pub(super) fn committed(
    request: &Request,
    attempt: u32,
    completion: &Completion,
    committed: &Result<Settled, Obstacle>,
) {
    match committed {
        Ok(settled) => fenced(request, attempt, completion, settled),
        Err(error) => {
            if !matches!(error, Error::OutcomeUnknown(_)) {
                request.meter.count(Count::Failures);
            }
            uncommitted(&request.subject(), attempt, error);
        }
    }
}

/// Reports a transaction that didn't commit, or may not have. It may have no record.
pub(super) fn uncommitted(subject: &Subject, attempt: u32, error: &Obstacle) {
    let (operation, key) = (&*subject.operation, &subject.id);
    match error {
        Error::Refused(refusal) => {
            let index = refusal.index;
            tracing::info!(event = "condition_failed", operation, %key, attempt, index, "idempotency");
        }
        Error::NotCommitted(error) => {
            subject.meter.count(Count::StoreErrors);
            tracing::warn!(event = "not_committed", operation, %key, attempt, %error, "idempotency");
        }
        Error::OutcomeUnknown(error) => {
            subject.meter.count(Count::OutcomesUnknown);
            let event = "outcome_unknown";
            tracing::error!(event, operation, %key, attempt, %error, "idempotency");
        }
        // No transaction ends with these.
        Error::Handler(_)
        | Error::Failed(_)
        | Error::InFlight { .. }
        | Error::Compensating
        | Error::Mismatch
        | Error::Interrupted { .. }
        | Error::Exhausted { .. }
        | Error::LeaseLost
        | Error::TooLate
        | Error::TimedOut
        | Error::OutcomeOmitted { .. }
        | Error::Unrecorded(_)
        | Error::Overloaded
        | Error::Write(_)
        | Error::Unreadable(_)
        | Error::Key(_)
        | Error::Store(_)
        | Error::Entropy(_) => {}
    }
}

pub(super) fn released(request: &Request, attempt: u32, last_error: Option<&str>) {
    let (operation, key) = (&*request.operation, &request.id);
    tracing::info!(event = "released", operation, %key, attempt, last_error, "idempotency");
}

/// Reports an ending that the store has not answered: its run was dropped, or has given up.
pub(super) fn ending_left(request: &Request, hold: &Hold, write: &RecordWrite) {
    let (operation, key, attempt) = (&*request.operation, &request.id, hold.attempt);
    let (ending, last_error) = match write {
        RecordWrite::Release(release) => ("RELEASED", release.last_error.as_deref()),
        RecordWrite::Complete(completion) => (completion.status.as_str(), None),
        _ => return,
    };
    tracing::info!(event = "dropped", operation, %key, attempt, ending, last_error, "idempotency");
}

pub(super) fn ending_discarded(request: &Request, hold: &Hold) {
    let (operation, key, attempt) = (&*request.operation, &request.id, hold.attempt);
    tracing::warn!(event = "ending_discarded", operation, %key, attempt, "idempotency");
}

/// Reports the handler's own error, where the setting asks for its text.
pub(crate) fn handler_failed(operation: &str, key: &str, attempt: u32, error: &str) {
    tracing::warn!(
        event = "handler_failed",
        operation,
        key,
        attempt,
        error,
        "idempotency"
    );
}

pub(super) fn not_kept(request: &Request, hold: &Hold, error: &dyn Display) {
    let (operation, key, attempt) = (&*request.operation, &request.id, hold.attempt);
    tracing::warn!(event = "outcome_not_kept", operation, %key, attempt, %error, "idempotency");
}

pub(super) fn release_failed(request: &Request, attempt: u32, error: &dyn Display) {
    request.meter.count(Count::StoreErrors);
    let (operation, key) = (&*request.operation, &request.id);
    tracing::warn!(event = "release_failed", operation, %key, attempt, %error, "idempotency");
}

pub(super) fn renewal_failed(request: &Request, hold: &Hold, error: &dyn Display) {
    request.meter.count(Count::StoreErrors);
    let (operation, key, attempt) = (&*request.operation, &request.id, hold.attempt);
    tracing::warn!(event = "renewal_failed", operation, %key, attempt, %error, "idempotency");
}

/// Reports a renewal that something kept from its turn: a handler that blocks the thread, or a
/// machine that stood still.
pub(super) fn renewal_late(request: &Request, hold: &Hold, late: Duration) {
    let (operation, key, attempt) = (&*request.operation, &request.id, hold.attempt);
    let late_ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
    tracing::warn!(event = "renewal_late", operation, %key, attempt, late_ms, "idempotency");
}

/// Reports work that returned after the deadline of its invocation, whose caller was told meanwhile
/// that it timed out.
pub(super) fn deadline_outlived(request: &Request, attempt: u32, late_ms: i64) {
    let (operation, key) = (&*request.operation, &request.id);
    tracing::warn!(event = "deadline_outlived", operation, %key, attempt, late_ms, "idempotency");
}

/// Reports a lost fence. The end of the attempt counts it.
pub(super) fn renewal_refused(request: &Request, hold: &Hold) {
    let (operation, key, attempt) = (&*request.operation, &request.id, hold.attempt);
    tracing::warn!(event = "renewal_refused", operation, %key, attempt, "idempotency");
}

pub(super) fn step(event: &str, subject: &Subject, step: &str) {
    let (operation, key) = (&*subject.operation, &subject.id);
    tracing::debug!(event, operation, %key, step, "idempotency");
}

pub(super) fn side_effect_duplicate(subject: &Subject, effect: &str) {
    subject.meter.count(Count::SideEffectDuplicates);
    let (operation, key) = (&*subject.operation, &subject.id);
    tracing::warn!(event = "side_effect_duplicate", operation, %key, effect, "idempotency");
}

pub(super) fn saga(event: &str, subject: &Subject) {
    let (operation, key) = (&*subject.operation, &subject.id);
    tracing::warn!(event, operation, %key, "idempotency");
}

pub(super) fn saga_stuck(subject: &Subject, step: &str) {
    let (operation, key) = (&*subject.operation, &subject.id);
    tracing::warn!(event = "saga_stuck", operation, %key, step, "idempotency");
}

pub(super) fn step_failed(event: &str, subject: &Subject, step: &str, error: &dyn Display) {
    let (operation, key) = (&*subject.operation, &subject.id);
    tracing::warn!(event, operation, %key, step, %error, "idempotency");
}

/// `key` is that of a request which would have been claimed; without it, nothing names the request.
pub(super) fn unprotected(operation: &str, key: Option<&RecordId>, reason: &dyn Display) {
    let key = key.map(tracing::field::display);
    tracing::warn!(event = "unprotected", operation, key, %reason, "idempotency");
}

/// Reports why the work of a run didn't begin, or was ended. A run that nothing protects was counted when
/// it began.
pub(super) fn ended(subject: &Subject, attempt: u32, is_protected: bool, error: &Obstacle) {
    if let Some(what) = refusal(error).filter(|_| is_protected) {
        subject.meter.count(what);
    }
    let (event, operation, key) = (error.code(), &*subject.operation, &subject.id);
    tracing::warn!(event, operation, %key, attempt, "idempotency");
}
