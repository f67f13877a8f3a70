//! Ends a record in an operator's name: by one conditional write, over exactly what was seen.

use std::time::Duration;

use lambda_idempotency::protocol::journal::{StepEntry, StepNote, StepResult, StepState};
use lambda_idempotency::protocol::packed::{LargeOutcome, Place};
use lambda_idempotency::protocol::record::{
    Ended, Found, Intervention, Omission, Owner, Record, RecordWrite, Status, StoredOutcome,
};
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{EpochMillis, EpochSeconds, RecordId, StoreError};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::records::acts::{Act, OPERATOR_STEP, acts, note};

/// How a record is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The key is given back: the next delivery runs.
    Released,
    /// This outcome is stored, until `expiration`.
    Final {
        /// [`Status::Completed`] or [`Status::Failed`].
        status: Status,
        /// The outcome.
        outcome: StoredOutcome,
        /// From when on the record counts as absent.
        expiration: EpochSeconds,
    },
    /// A step that was pending is confirmed or failed, and the key is given back.
    StepSettled {
        /// The name of the step.
        step: String,
        /// What became of it.
        state: StepState,
    },
    /// The outcome and the results of steps are erased. The record stays final.
    Redacted,
    /// The key of a final record is given back, on purpose: the next delivery is its next attempt.
    RunAgain {
        /// Whether its steps fire again, too.
        repeats_steps: bool,
    },
}

impl Ending {
    /// Tells whether the record is what this ending makes of one.
    fn is_reached(&self, record: &Record) -> bool {
        match self {
            Self::Released => record.is_released(),
            Self::Final {
                status, outcome, ..
            } => record.status == *status && record.outcome.as_ref() == Some(outcome),
            Self::StepSettled { step, state } => {
                let entry = record.journal.get(step);
                entry.is_some_and(|entry| entry.state == *state)
            }
            Self::Redacted => is_redacted(record),
            // It may have run since: once is enough.
            Self::RunAgain { .. } => true,
        }
    }
}

/// An operator's act on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// How the record is to end.
    pub ending: Ending,
    /// What is noted.
    pub act: Act,
}

impl Order {
    /// The act by which this very order was carried out before, where it was: the command was given
    /// again, perhaps because it got no answer, perhaps by a colleague who goes on with it.
    pub(crate) fn carried_out(&self, record: &Record) -> Option<Act> {
        let is_same = |act: &Act| (&act.act, &act.reason) == (&self.act.act, &self.act.reason);
        let mut acts = acts(&record.journal);
        let act = match self.ending {
            Ending::RunAgain { .. } => acts.into_iter().find(is_same),
            _ => acts.pop().filter(is_same),
        };
        act.filter(|_| self.ending.is_reached(record))
    }
}

/// How long a record that is to run again is kept at least.
const KEPT: Duration = Duration::from_hours(7 * 24);
/// How much later than the record an outcome of its own expires.
const LATER: Duration = Duration::from_hours(1);
/// How often a request is sent whose answer doesn't come.
const SENDS: u32 = 4;

/// Tells whether nothing is left of what the handler returned.
pub(crate) fn is_redacted(record: &Record) -> bool {
    let erased = StoredOutcome::Omitted(Omission::Redacted);
    record.outcome.as_ref() == Some(&erased) && results(record).next().is_none()
}

/// The steps that have a result, without what operators did.
fn results(record: &Record) -> impl Iterator<Item = (&str, &StepEntry)> {
    let steps = handlers_steps(record);
    steps.filter(|(_, entry)| matches!(entry.state, StepState::Confirmed(StepResult::Text(_))))
}

/// The steps of the handler: what operators did is none.
pub(crate) fn handlers_steps(record: &Record) -> impl Iterator<Item = (&str, &StepEntry)> {
    let steps = record.journal.iter();
    steps.filter(|(name, _)| *name != OPERATOR_STEP)
}

/// The steps that may wait for a person: a handler that comes again meets them.
pub(crate) fn waiting_steps(record: &Record) -> Vec<&str> {
    // One was settled by an operator, and others may wait beside it.
    let waits = |error: &str| error == "interrupted step" || error.starts_with("settle-step ");
    if !record.is_released() || !record.last_error.as_deref().is_some_and(waits) {
        return Vec::new();
    }
    let pending = handlers_steps(record).filter(|(_, entry)| entry.state == StepState::Pending);
    pending.map(|(name, _)| name).collect()
}

/// The write that carries an order out.
pub(crate) fn intervention(
    id: &RecordId,
    found: &Found,
    record: &Record,
    order: &Order,
    owner: Owner,
    now: EpochMillis,
) -> Intervention {
    let released = || Ended::Released {
        last_error: Some(format!("{} by an operator", order.act.act)),
    };
    let mut steps = Vec::new();
    let (end, expiration) = match &order.ending {
        Ending::Released => (released(), record.expiration),
        Ending::Final {
            status,
            outcome,
            expiration,
        } => {
            let end = Ended::Final {
                status: *status,
                outcome: outcome.clone(),
                completed_at: now,
            };
            (end, record.expiration.max(*expiration))
        }
        Ending::StepSettled { step, state } => {
            let before = record.journal.get(step).cloned();
            let begun = before.unwrap_or_else(|| StepEntry::begun(None, now));
            steps.push(StepNote::new(step, begun.ended(state.clone(), None, now)));
            (released(), record.expiration)
        }
        Ending::Redacted => {
            let erased = StepState::Confirmed(StepResult::Omitted(Omission::Redacted));
            let erase = |(name, entry): (&str, &StepEntry)| {
                StepNote::new(name, entry.ended(erased.clone(), None, entry.at))
            };
            steps.extend(results(record).map(erase));
            let end = Ended::Final {
                status: record.status,
                outcome: StoredOutcome::Omitted(Omission::Redacted),
                completed_at: record.completed_at.unwrap_or(now),
            };
            (end, record.expiration)
        }
        Ending::RunAgain { repeats_steps } => {
            let again = handlers_steps(record).filter(|(_, entry)| {
                *repeats_steps && matches!(entry.state, StepState::Confirmed(_))
            });
            let again = again.map(|(name, entry)| {
                let entry = entry.ended(StepState::Failed, Some("rerun by an operator"), now);
                StepNote::new(name, entry)
            });
            steps.extend(again);
            (
                released(),
                record.expiration.max((now + KEPT).ceil_seconds()),
            )
        }
    };
    steps.push(note(&record.journal, order.act.clone(), now));
    let mut write = Intervention::new(id.clone(), found.version.clone(), owner, expiration, end);
    write.steps = steps;
    write
}

/// Carries an order out, over exactly the record that was seen, and returns the record that it left.
///
/// What is changed is changed by one write, so that an end of this process in between leaves the
/// record as it was, or as it is to be. A large outcome is erased before that.
///
/// # Errors
///
/// [`Failure::Moved`] when the record is no longer what was seen: it was left alone. When the store
/// fails: the same command goes on from what the record is.
pub async fn carry_out<S: Store>(
    store: &S,
    id: &RecordId,
    found: &Found,
    order: &Order,
    now: EpochMillis,
    timeout: Duration,
) -> Result<Found, Failure> {
    let record = found.content.as_deref().map_err(|reason| {
        Failure::usage(format!(
            "the record can't be understood, so it is left alone: {reason}"
        ))
    })?;
    let owner = Owner::random().map_err(|error| Failure::usage(error.to_string()))?;
    let unanswered = |error: StoreError| {
        if !error.is_transient() {
            return error.into();
        }
        Failure::Service {
            doing: format!("{} the record", order.act.act),
            reason: format!(
                "{error}. It isn't known whether it was written: give the same command again, and it goes on from what the record is"
            ),
        }
    };
    if order.ending == Ending::Redacted {
        erase(store, id, record, timeout)
            .await
            .map_err(unanswered)?;
    }
    let write = intervention(id, found, record, order, owner, now);
    let write = RecordWrite::Intervene(write);
    let answer = again(|| store.write(&write, Instant::now() + timeout))
        .await
        .map_err(unanswered)?;
    let is_own = |met: &Found| met.version.owner.as_deref() == Some(write.owner().as_str());
    match answer {
        Answer::Refused(met) if !met.as_ref().is_some_and(is_own) => Err(Failure::Moved(
            "the record moved after it was looked at, and was left alone: explain it again"
                .to_owned(),
        )),
        // It applied, or an earlier send of it had: nobody else has its owner.
        Answer::Refused(Some(met)) => Ok(met),
        _ => Ok(transition(Some(record), &write).map_or_else(|| found.clone(), Found::readable)),
    }
}

/// Erases an outcome that is kept in an item of its own.
async fn erase<S: Store>(
    store: &S,
    id: &RecordId,
    record: &Record,
    timeout: Duration,
) -> Result<(), StoreError> {
    let Some(StoredOutcome::Packed(packed)) = &record.outcome else {
        return Ok(());
    };
    let Place::Entry(owner) = &packed.place else {
        return Ok(());
    };
    let expiration = (record.expiration.to_millis() + LATER).ceil_seconds();
    let nothing = LargeOutcome::new(id.clone(), owner.clone(), Vec::new(), expiration);
    again(|| store.keep(&nothing, Instant::now() + timeout)).await?;
    Ok(())
}

/// What a redaction can't erase: the object of an outcome that is kept in a bucket.
pub(crate) fn left_by_redaction(id: &RecordId, record: &Record) -> Option<String> {
    match &record.outcome {
        Some(StoredOutcome::Packed(packed)) => match &packed.place {
            Place::Object(owner) => Some(format!(
                "the object PREFIX{}/{} in the bucket of outcomes",
                id.hash(),
                owner.as_str()
            )),
            _ => None,
        },
        _ => None,
    }
}

/// Sends a request, again where no answer comes.
async fn again<T, F: Future<Output = Result<T, StoreError>>>(
    send: impl Fn() -> F,
) -> Result<T, StoreError> {
    let mut sends = 0;
    loop {
        sends += 1;
        match send().await {
            Err(error) if error.is_transient() && sends < SENDS => {
                tokio::time::sleep(Duration::from_millis(100 * u64::from(sends))).await;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests;
