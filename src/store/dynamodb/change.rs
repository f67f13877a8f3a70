//! Each conditional write: what it sets, what it removes, and under which condition. How it is said to DynamoDB is another
//! matter: as expressions of a single request, or as a statement of a grouped one.

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{number, string};
use super::layout::{Attribute, Item, TableLayout, as_item};
use super::{journal, packed};
use crate::key::RecordId;
use crate::record::{
    Amendment, Completion, LAYOUT, NewClaim, Owner, RELEASED, Release, Renewal, Status,
    StoredOutcome, Takeover, Version,
};
use crate::transaction::{Basis, Final};

/// A value that a write sets, or compares with.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A word of the protocol's own: the same in most writes of a kind.
    Word(&'static str),
    /// A number that is the same in most writes of a kind.
    Count(i64),
    Given(AttributeValue),
}

impl From<Value> for AttributeValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Word(word) => string(word),
            Value::Count(count) => number(count),
            Value::Given(value) => value,
        }
    }
}

impl From<AttributeValue> for Value {
    fn from(value: AttributeValue) -> Self {
        Self::Given(value)
    }
}

impl From<Status> for Value {
    fn from(status: Status) -> Self {
        Self::Word(status.as_str())
    }
}

/// A test that must hold for a write to apply.
#[derive(Debug)]
pub(super) enum Test {
    /// No record stands under the key.
    NoRecord,
    Equals(Attribute, Value),
    Less(Attribute, Value),
    Absent(Attribute),
    /// No entry of this step has this revision or a newer one.
    OlderStep(String, u32),
}

/// A conditional write on one record.
#[derive(Debug)]
pub(super) struct Change<'a> {
    /// The names and values of the table's key.
    pub(super) key: Vec<(&'a str, AttributeValue)>,
    pub(super) sets: Vec<(Attribute, Value)>,
    pub(super) removes: Vec<Attribute>,
    /// A step's entry, by the name of its attribute.
    pub(super) step: Option<(String, AttributeValue)>,
    pub(super) tests: Vec<Test>,
}

impl<'a> Change<'a> {
    fn of(layout: &'a TableLayout, id: &RecordId) -> Self {
        Self {
            key: layout.key_of(id.as_str()),
            // As many as a claim sets.
            sets: Vec::with_capacity(8),
            removes: Vec::new(),
            step: None,
            tests: Vec::with_capacity(2),
        }
    }

    /// The fence.
    fn held_by(mut self, owner: &Owner) -> Self {
        let owner = string(owner.as_str()).into();
        self.tests.push(Test::Equals(Attribute::Owner, owner));
        let in_progress = Status::InProgress.into();
        self.tests
            .push(Test::Equals(Attribute::Status, in_progress));
        self
    }

    /// The version: what was there is still the same, what was absent is still absent.
    fn unchanged(mut self, seen: &Version) -> Self {
        let observed = [
            (Attribute::Owner, seen.owner.as_deref().map(string)),
            (Attribute::Status, seen.status.as_deref().map(string)),
            (Attribute::Lease, seen.lease.map(number)),
            (Attribute::Expiration, seen.expiration.map(number)),
        ];
        for (attribute, value) in observed {
            self.tests.push(match value {
                Some(value) => Test::Equals(attribute, value.into()),
                None => Test::Absent(attribute),
            });
        }
        self
    }

    fn set(mut self, attribute: Attribute, value: impl Into<Value>) -> Self {
        self.sets.push((attribute, value.into()));
        self
    }

    fn set_some(self, attribute: Attribute, value: Option<AttributeValue>) -> Self {
        match value {
            Some(value) => self.set(attribute, value),
            None => self,
        }
    }

    fn remove(mut self, attribute: Attribute) -> Self {
        self.removes.push(attribute);
        self
    }

    fn claim(self, claim: &NewClaim) -> Self {
        let fingerprint = claim
            .fingerprint
            .as_ref()
            .map(|fingerprint| string(fingerprint.as_str()));
        self.set(Attribute::Status, Status::InProgress)
            .set(Attribute::Owner, string(claim.owner.as_str()))
            .set(Attribute::Attempt, Value::Count(claim.attempt.into()))
            .set(Attribute::Lease, number(claim.lease.0))
            .set(Attribute::Expiration, number(claim.expiration.0))
            .set(Attribute::StartedAt, number(claim.started_at.0))
            .set(Attribute::Layout, Value::Count(LAYOUT))
            .set_some(Attribute::Validation, fingerprint)
    }

    /// The item that the write leaves where none was, or where nothing of the old one stays.
    pub(super) fn item(&self, layout: &TableLayout) -> Item {
        let mut item = as_item(self.key.iter().cloned());
        for (attribute, value) in &self.sets {
            item.insert(layout.name(*attribute).to_owned(), value.clone().into());
        }
        item
    }
}

pub(super) fn create<'a>(layout: &'a TableLayout, claim: &NewClaim) -> Change<'a> {
    let mut change = Change::of(layout, &claim.id).claim(claim);
    change.tests.push(Test::NoRecord);
    change
}

/// Over an expired record: nothing of it stays.
pub(super) fn replace<'a>(layout: &'a TableLayout, seen: &Version, claim: &NewClaim) -> Change<'a> {
    Change::of(layout, &claim.id).unchanged(seen).claim(claim)
}

/// Over a released or crashed one: what isn't set or removed here stays. No outcome does, which a record in progress shouldn't
/// have: one of another kind than the new one would be read in its place.
pub(super) fn resume<'a>(layout: &'a TableLayout, seen: &Version, claim: &NewClaim) -> Change<'a> {
    let change = Change::of(layout, &claim.id)
        .unchanged(seen)
        .claim(claim)
        .remove(Attribute::Data)
        .remove(Attribute::Packed)
        .remove(Attribute::Omitted);
    match claim.fingerprint {
        Some(_) => change,
        None => change.remove(Attribute::Validation),
    }
}

pub(super) fn complete<'a>(layout: &'a TableLayout, completion: &Completion) -> Change<'a> {
    let (attribute, outcome) = match &completion.outcome {
        StoredOutcome::Inline(text) => (Attribute::Data, string(text)),
        StoredOutcome::Packed(packed) => (Attribute::Packed, packed::encode(packed)),
        StoredOutcome::Omitted(reason) => (Attribute::Omitted, string(reason.as_str())),
    };
    Change::of(layout, &completion.id)
        .held_by(&completion.owner)
        .set(Attribute::Status, completion.status)
        .set(Attribute::CompletedAt, number(completion.completed_at.0))
        .set(Attribute::Expiration, number(completion.expiration.0))
        .set(attribute, outcome)
        .remove(Attribute::Lease)
}

/// Whether nothing of an old item stays when this record becomes final: then it is a PutItem. In a table with two keys an update
/// takes its place, as it does for a claim.
pub(super) fn is_whole(layout: &TableLayout, record: &Final) -> bool {
    match &record.basis {
        Basis::Claimed => false,
        Basis::Absent(_) => !layout.is_composite(),
        Basis::Version { mode, .. } => *mode == Takeover::Fresh,
    }
}

/// A record that becomes final in a commit.
pub(super) fn finish<'a>(layout: &'a TableLayout, record: &Final) -> Change<'a> {
    let completed = complete(layout, &record.completion);
    let mut change = match &record.basis {
        Basis::Claimed => return completed,
        Basis::Absent(claim) => create(layout, claim),
        Basis::Version { seen, mode, claim } => match mode {
            Takeover::Fresh => replace(layout, seen, claim),
            Takeover::Resume => resume(layout, seen, claim),
        },
    };
    // No claim came before: the record is as one would have left it, then completed.
    change.sets.retain(|(attribute, _)| {
        let is_said = completed.sets.iter().any(|(said, _)| said == attribute);
        *attribute != Attribute::Lease && !is_said
    });
    change.removes.extend(completed.removes);
    let sets = &completed.sets;
    change
        .removes
        .retain(|attribute| !sets.iter().any(|(set, _)| set == attribute));
    change.sets.extend(completed.sets);
    change
}

pub(super) fn renew<'a>(layout: &'a TableLayout, renewal: &Renewal) -> Change<'a> {
    let mut change = Change::of(layout, &renewal.id)
        .held_by(&renewal.owner)
        .set(Attribute::Lease, number(renewal.lease.0))
        .set(Attribute::Expiration, number(renewal.expiration.0));
    change
        .tests
        .push(Test::Less(Attribute::Lease, number(renewal.lease.0).into()));
    change
}

pub(super) fn amend<'a>(layout: &'a TableLayout, amendment: &Amendment) -> Change<'a> {
    let mut change = Change::of(layout, &amendment.id)
        .held_by(&amendment.owner)
        .set_some(
            Attribute::LastError,
            amendment.last_error.as_deref().map(string),
        );
    if let Some(note) = &amendment.step {
        let attribute = journal::attribute(&note.name);
        let newer = Test::OlderStep(attribute.clone(), note.entry.revision);
        change.tests.push(newer);
        change.step = Some((attribute, journal::encode(&note.entry)));
    }
    change
}

pub(super) fn release<'a>(layout: &'a TableLayout, release: &Release) -> Change<'a> {
    let change = Change::of(layout, &release.id)
        .held_by(&release.owner)
        .set(Attribute::Owner, string(release.tombstone.as_str()))
        .set(Attribute::Lease, number(RELEASED.0))
        .set_some(
            Attribute::LastError,
            release.last_error.as_deref().map(string),
        );
    if release.forget_fingerprint {
        change.remove(Attribute::Validation)
    } else {
        change
    }
}
