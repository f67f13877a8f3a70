//! Ends a record in an operator's name: takes it over at the version that was seen, notes the act,
//! and ends it as its owner.

use std::time::Duration;

use lambda_idempotency::protocol::journal::{StepEntry, StepNote, StepState};
use lambda_idempotency::protocol::record::{
    Amendment, Completion, Found, NewClaim, Owner, Record, RecordWrite, Release, Status,
    StoredOutcome, Takeover,
};
use lambda_idempotency::protocol::{Settled, settle};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{EpochMillis, EpochSeconds, RecordId, StoreError};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::records::acts::{Act, note};

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
}

/// An operator's act on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// How the record is to end.
    pub ending: Ending,
    /// What is noted.
    pub act: Act,
}

/// The time for which an operator holds a record that goes on to deliveries.
const HELD: Duration = Duration::from_mins(1);
/// How often a write is sent whose answer doesn't come.
const SENDS: u32 = 4;

/// The writes that carry an order out, in their order: a takeover at the version that was seen, the
/// note, and the end. A record that is to be final is held until it expires, so that an end of this
/// process in between leaves no record that runs.
pub(crate) fn writes(
    id: &RecordId,
    found: &Found,
    record: &Record,
    order: &Order,
    [owner, tombstone]: [Owner; 2],
    now: EpochMillis,
) -> Vec<RecordWrite> {
    let expiration = record.expiration.max((now + HELD).ceil_seconds());
    let (lease, expiration) = match &order.ending {
        Ending::Final {
            expiration: until, ..
        } => {
            let until = expiration.max(*until);
            (until.to_millis(), until)
        }
        _ => (now + HELD, expiration),
    };
    let started_at = record.started_at.unwrap_or(now);
    let mut claim = NewClaim::new(id.clone(), owner.clone(), started_at, lease, expiration);
    claim.fingerprint.clone_from(&record.fingerprint);
    claim.attempt = record.attempt;
    let mut writes = vec![RecordWrite::TakeOver {
        seen: found.version.clone(),
        mode: Takeover::Resume,
        claim,
    }];
    if let Ending::StepSettled { step, state } = &order.ending {
        let before = record.journal.get(step);
        let begun = before
            .cloned()
            .unwrap_or_else(|| StepEntry::begun(None, now));
        let entry = begun.ended(state.clone(), None, now);
        let step = StepNote::new(step, entry);
        writes.push(Amendment::new(id.clone(), owner.clone(), step).into());
    }
    let act = note(&record.journal, order.act.clone(), now);
    writes.push(Amendment::new(id.clone(), owner.clone(), act).into());
    let end = if let Ending::Final {
        status,
        outcome,
        expiration,
    } = &order.ending
    {
        let mut completion = Completion::new(id.clone(), owner, outcome.clone(), now, *expiration);
        completion.status = *status;
        completion.into()
    } else {
        let mut release = Release::new(id.clone(), owner, tombstone);
        release.last_error = Some(format!("{} by an operator", order.act.act));
        release.into()
    };
    writes.push(end);
    writes
}

/// Carries an order out, over exactly the record that was seen.
///
/// A write whose answer doesn't come is sent again: its owner shows whether it has applied.
///
/// # Errors
///
/// [`Failure::Moved`] when the record is no longer what was seen: nothing was written. When the
/// store fails: the words say how the record was left.
pub async fn carry_out<S: Store>(
    store: &S,
    id: &RecordId,
    found: &Found,
    order: &Order,
    now: EpochMillis,
    timeout: Duration,
) -> Result<(), Failure> {
    let record = found.content.as_deref().map_err(|reason| {
        Failure::usage(format!(
            "the record can't be understood, so it is left alone: {reason}"
        ))
    })?;
    let entropy = |error: lambda_idempotency::protocol::record::EntropyError| {
        Failure::usage(error.to_string())
    };
    let owners = [
        Owner::random().map_err(entropy)?,
        Owner::random().map_err(entropy)?,
    ];
    let writes = writes(id, found, record, order, owners, now);
    for (number, write) in writes.iter().enumerate() {
        match send(store, write, timeout).await {
            Ok(true) => {}
            Ok(false) if number == 0 => {
                return Err(Failure::Moved(
                    "the record moved after it was looked at, and was left alone: explain it again"
                        .to_owned(),
                ));
            }
            Ok(false) => {
                return Err(Failure::Moved(
                    "another operator took the record over in between: explain it again".to_owned(),
                ));
            }
            Err(error) if number == 0 => return Err(error.into()),
            Err(error) => {
                return Err(Failure::Service {
                    doing: format!("{} the record", order.act.act),
                    reason: format!(
                        "{error}. The record is held in your name and not ended: give the same command again, with --while-live"
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Sends a write, again where no answer comes. Tells whether it has applied.
async fn send<S: Store>(
    store: &S,
    write: &RecordWrite,
    timeout: Duration,
) -> Result<bool, StoreError> {
    let mut sends = 0;
    loop {
        sends += 1;
        match store.write(write, Instant::now() + timeout).await {
            Ok(Answer::Applied(_)) => return Ok(true),
            // An earlier send may be what it met.
            Ok(Answer::Refused(met)) => return Ok(sends > 1 && has_applied(write, met.as_ref())),
            Err(error) if error.is_transient() && sends < SENDS => {
                tokio::time::sleep(Duration::from_millis(100 * u64::from(sends))).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Tells whether the record that a write met is what the write itself had made of it.
fn has_applied(write: &RecordWrite, met: Option<&Found>) -> bool {
    let Some(record) = met.and_then(|found| found.content.as_deref().ok()) else {
        return false;
    };
    let held_by = |owner: &Owner| {
        record.owner.as_ref() == Some(owner)
            && record.status == Status::InProgress
            && !record.is_released()
    };
    match write {
        RecordWrite::TakeOver { claim, .. } => held_by(&claim.owner),
        RecordWrite::Amend(amendment) => {
            let step = &amendment.step;
            held_by(&amendment.owner) && record.journal.get(&step.name) == Some(&step.entry)
        }
        RecordWrite::Complete(completion) => settle(met, completion, None) == Settled::Recorded,
        RecordWrite::Release(release) => record.owner.as_ref() == Some(&release.tombstone),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
