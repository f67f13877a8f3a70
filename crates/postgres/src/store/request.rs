//! Makes the statement and the values of a group of writes, and reads the answer to each.

use lambda_idempotency::protocol::record::{
    Ended, Found, Intervention, RELEASED, Record, RecordWrite, Status, Takeover, Version,
};
use lambda_idempotency::protocol::stored::OutcomeParts;
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::Answer;
use lambda_idempotency::{RecordId, StoreError};

use crate::columns::{self, decode};
use crate::statement::Statements;
use crate::value::{Cell, Value, arrays};

/// Chooses one of the statements.
pub(crate) type Statement = fn(&Statements) -> &str;

/// Returns the statement that carries out writes of this kind.
pub(crate) fn statement_of(write: &RecordWrite) -> Result<Statement, StoreError> {
    let statement: Statement = match write {
        RecordWrite::Create(_) => |all| &all.insert,
        RecordWrite::TakeOver { .. } => |all| &all.take_over,
        RecordWrite::Renew { .. } => |all| &all.renew,
        RecordWrite::Amend { .. } => |all| &all.amend,
        RecordWrite::Complete(_) => |all| &all.complete,
        RecordWrite::Release(_) => |all| &all.release,
        RecordWrite::Intervene(_) => |all| &all.intervene,
        _ => {
            let words = "a kind of write that this release of the store doesn't know: update lambda-idempotency-postgres";
            return Err(StoreError::Rejected(words.into()));
        }
    };
    Ok(statement)
}

/// The values of writes of one kind.
pub(crate) fn values(writes: &[&RecordWrite]) -> Vec<Value> {
    arrays(writes.iter().filter_map(|write| row(write)))
}

/// The values of one write, in the order of its statement's columns.
fn row(write: &RecordWrite) -> Option<Vec<Value>> {
    let mut row = vec![Value::from(write.id().as_str())];
    match write {
        RecordWrite::Create(claim) => row.extend(columns::encode(&Record::claimed(claim))),
        RecordWrite::TakeOver { seen, mode, claim } => {
            row.extend(columns::encode(&Record::claimed(claim)));
            row.extend([
                seen.owner.as_deref().into(),
                seen.status.as_deref().into(),
                seen.lease.into(),
                seen.expiration.into(),
                (*mode == Takeover::Resume).into(),
                (*mode != Takeover::Fresh).into(),
            ]);
        }
        RecordWrite::Renew {
            owner,
            lease,
            expiration,
            ..
        } => row.extend([owner.as_str().into(), lease.0.into(), expiration.0.into()]),
        RecordWrite::Amend {
            owner, step, entry, ..
        } => row.extend([
            owner.as_str().into(),
            step.as_str().into(),
            columns::entry(entry).into(),
            entry.revision.into(),
        ]),
        RecordWrite::Complete(completion) => {
            let outcome = OutcomeParts::of(Some(&completion.outcome));
            row.extend([
                completion.owner.as_str().into(),
                completion.status.as_str().into(),
                outcome.inline.into(),
                outcome.omitted.into(),
                outcome.packed.into(),
                outcome.content.into(),
                completion.completed_at.0.into(),
                completion.expiration.0.into(),
            ]);
        }
        RecordWrite::Release(release) => row.extend([
            release.owner.as_str().into(),
            release.tombstone.as_str().into(),
            release.last_error.as_deref().into(),
            release.forget_fingerprint.into(),
        ]),
        RecordWrite::Intervene(intervention) => row.extend(intervened(intervention)?),
        _ => return None,
    }
    Some(row)
}

/// The values of an intervention after its id; `None` for an end that this release doesn't know.
fn intervened(intervention: &Intervention) -> Option<Vec<Value>> {
    let Intervention { seen, end, .. } = intervention;
    let (status, lease, outcome, completed_at, last_error) = match end {
        Ended::Released { last_error } => (
            Status::InProgress,
            Some(RELEASED.0),
            None,
            None,
            last_error.as_deref(),
        ),
        Ended::Final {
            status,
            outcome,
            completed_at,
        } => (*status, None, Some(outcome), Some(completed_at.0), None),
        _ => return None,
    };
    let outcome = OutcomeParts::of(outcome);
    Some(vec![
        intervention.owner.as_str().into(),
        seen.owner.as_deref().into(),
        seen.status.as_deref().into(),
        seen.lease.into(),
        seen.expiration.into(),
        status.as_str().into(),
        lease.into(),
        intervention.expiration.0.into(),
        outcome.inline.into(),
        outcome.omitted.into(),
        outcome.packed.into(),
        outcome.content.into(),
        completed_at.into(),
        last_error.into(),
        columns::journal(&intervention.steps).into(),
    ])
}

/// Reads the answer to a write from its row: whether it applied, then the record that it met. `None`
/// where it was refused by a record that the statement couldn't see.
pub(crate) fn answer(write: &RecordWrite, row: &[Cell]) -> Option<Answer> {
    let (applied, met) = row.split_first()?;
    let met = decode(met);
    if *applied != Cell::Bool(true) {
        return match (met, write) {
            (None, RecordWrite::Create(_)) => None,
            (met, _) => Some(Answer::Refused(met)),
        };
    }
    let left = match (write, met) {
        // It keeps nothing of what it met, which nobody need understand.
        (
            RecordWrite::TakeOver {
                mode: Takeover::Fresh,
                claim,
                ..
            },
            Some(_),
        ) => Some(Found::readable(Record::claimed(claim))),
        (RecordWrite::TakeOver { claim, .. }, Some(met)) => Some(match met.content {
            Ok(met) => Found::readable(
                transition(Some(&met), write).unwrap_or_else(|| Record::claimed(claim)),
            ),
            Err(reason) => Found::unreadable(Version::of(&Record::claimed(claim)), reason),
        }),
        _ => None,
    };
    Some(Answer::Applied(left))
}

/// Returns the values of a whole record, its id first.
pub(crate) fn whole(id: &RecordId, record: &Record) -> Vec<Value> {
    let id = [Value::from(id.as_str())];
    id.into_iter().chain(columns::encode(record)).collect()
}
