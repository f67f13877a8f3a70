//! Makes the statement and the values of a group of writes, and reads the answer to each.

use lambda_idempotency::protocol::record::{
    Found, NewClaim, Record, RecordWrite, StoredOutcome, Takeover, Version,
};
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::Answer;
use lambda_idempotency::{RecordId, StoreError};

use crate::columns::{self, decode};
use crate::statement::Statements;
use crate::value::{Cell, Content, Value};

/// The kinds of conditional writes: each is one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    TakeOver,
    Renew,
    Amend,
    Complete,
    Release,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Create,
        Self::TakeOver,
        Self::Renew,
        Self::Amend,
        Self::Complete,
        Self::Release,
    ];

    pub(crate) fn of(write: &RecordWrite) -> Result<Self, StoreError> {
        Ok(match write {
            RecordWrite::Create(_) => Self::Create,
            RecordWrite::TakeOver { .. } => Self::TakeOver,
            RecordWrite::Renew(_) => Self::Renew,
            RecordWrite::Amend(_) => Self::Amend,
            RecordWrite::Complete(_) => Self::Complete,
            RecordWrite::Release(_) => Self::Release,
            _ => {
                let words = "a kind of write that this release of the store doesn't know: update lambda-idempotency-postgres";
                return Err(StoreError::Rejected(words.into()));
            }
        })
    }

    /// Returns the statement of this kind and its values for these writes, each of this kind.
    pub(crate) fn request<'a>(
        self,
        statements: &'a Statements,
        writes: &[&RecordWrite],
    ) -> (&'a str, Vec<Value>) {
        let writes = writes.iter().copied();
        let ids = texts(writes.clone().map(|write| Some(write.id().as_str())));
        let (statement, columns) = match self {
            Self::Create => {
                let records: Vec<_> = writes.filter_map(claim).map(Record::claimed).collect();
                (&statements.insert, columns::encode(&records))
            }
            Self::TakeOver => (&statements.take_over, take_overs(writes)),
            Self::Renew => (&statements.renew, renewals(writes)),
            Self::Amend => (&statements.amend, amendments(writes)),
            Self::Complete => (&statements.complete, completions(writes)),
            Self::Release => (&statements.release, releases(writes)),
        };
        let mut values = Vec::with_capacity(1 + columns.len());
        values.push(ids);
        values.extend(columns);
        (statement, values)
    }
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

/// Returns the values that insert whole records.
pub(crate) fn whole(id: &RecordId, record: &Record) -> Vec<Value> {
    let mut values = vec![texts([Some(id.as_str())])];
    values.extend(columns::encode(std::slice::from_ref(record)));
    values
}

pub(crate) fn texts<'a>(texts: impl IntoIterator<Item = Option<&'a str>>) -> Value {
    let texts = texts.into_iter().map(|text| text.map(str::to_owned));
    Value(Content::Texts(texts.collect()))
}

fn ints(ints: impl Iterator<Item = Option<i64>>) -> Value {
    Value(Content::Ints(ints.collect()))
}

fn bools(bools: impl Iterator<Item = bool>) -> Value {
    Value(Content::Bools(bools.collect()))
}

type Writes<'a> = std::iter::Copied<std::slice::Iter<'a, &'a RecordWrite>>;

fn claim(write: &RecordWrite) -> Option<&NewClaim> {
    match write {
        RecordWrite::Create(claim) | RecordWrite::TakeOver { claim, .. } => Some(claim),
        _ => None,
    }
}

fn take_overs(writes: Writes<'_>) -> Vec<Value> {
    let over = writes.filter_map(|write| match write {
        RecordWrite::TakeOver { seen, mode, claim } => Some((seen, *mode, claim)),
        _ => None,
    });
    let records: Vec<_> = over
        .clone()
        .map(|(.., claim)| Record::claimed(claim))
        .collect();
    let mut values = columns::encode(&records);
    values.extend([
        texts(over.clone().map(|(seen, ..)| seen.owner.as_deref())),
        texts(over.clone().map(|(seen, ..)| seen.status.as_deref())),
        ints(over.clone().map(|(seen, ..)| seen.lease)),
        ints(over.clone().map(|(seen, ..)| seen.expiration)),
        bools(over.clone().map(|(_, mode, _)| mode == Takeover::Resume)),
        bools(over.map(|(_, mode, _)| mode != Takeover::Fresh)),
    ]);
    values
}

fn renewals(writes: Writes<'_>) -> Vec<Value> {
    let renewals = writes.filter_map(|write| match write {
        RecordWrite::Renew(renewal) => Some(renewal),
        _ => None,
    });
    vec![
        texts(renewals.clone().map(|renewal| Some(renewal.owner.as_str()))),
        ints(renewals.clone().map(|renewal| Some(renewal.lease.0))),
        ints(renewals.map(|renewal| Some(renewal.expiration.0))),
    ]
}

fn amendments(writes: Writes<'_>) -> Vec<Value> {
    let amendments = writes.filter_map(|write| match write {
        RecordWrite::Amend(amendment) => Some(amendment),
        _ => None,
    });
    let entries: Vec<_> = amendments
        .clone()
        .map(|amendment| columns::entry(&amendment.step.entry))
        .collect();
    vec![
        texts(
            amendments
                .clone()
                .map(|amendment| Some(amendment.owner.as_str())),
        ),
        texts(
            amendments
                .clone()
                .map(|amendment| Some(amendment.step.name.as_str())),
        ),
        texts(entries.iter().map(|entry| Some(entry.as_str()))),
        ints(amendments.map(|amendment| Some(amendment.step.entry.revision.into()))),
    ]
}

fn completions(writes: Writes<'_>) -> Vec<Value> {
    let completions = writes.filter_map(|write| match write {
        RecordWrite::Complete(completion) => Some(completion),
        _ => None,
    });
    let outcome = |outcome: &StoredOutcome| columns::outcome(Some(outcome));
    let outcomes = completions
        .clone()
        .map(|completion| outcome(&completion.outcome));
    let outcomes: Vec<_> = outcomes.collect();
    let text = |of: fn(&columns::Outcome) -> Option<&str>| texts(outcomes.iter().map(of));
    let contents = outcomes
        .iter()
        .map(|outcome| outcome.content.clone())
        .collect();
    vec![
        texts(
            completions
                .clone()
                .map(|completion| Some(completion.owner.as_str())),
        ),
        texts(
            completions
                .clone()
                .map(|completion| Some(completion.status.as_str())),
        ),
        text(|outcome| outcome.inline.as_deref()),
        text(|outcome| outcome.omitted.as_deref()),
        text(|outcome| outcome.packed.as_deref()),
        Value(Content::Blobs(contents)),
        ints(
            completions
                .clone()
                .map(|completion| Some(completion.completed_at.0)),
        ),
        ints(completions.map(|completion| Some(completion.expiration.0))),
    ]
}

fn releases(writes: Writes<'_>) -> Vec<Value> {
    let releases = writes.filter_map(|write| match write {
        RecordWrite::Release(release) => Some(release),
        _ => None,
    });
    vec![
        texts(releases.clone().map(|release| Some(release.owner.as_str()))),
        texts(
            releases
                .clone()
                .map(|release| Some(release.tombstone.as_str())),
        ),
        texts(
            releases
                .clone()
                .map(|release| release.last_error.as_deref()),
        ),
        bools(releases.map(|release| release.forget_fingerprint)),
    ]
}
