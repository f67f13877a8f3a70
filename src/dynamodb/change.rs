//! Translates each conditional write into a change: the attributes that it sets and removes, and
//! its condition. A single request states it in expressions, a grouped one in a statement.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::dynamodb::item;
use crate::dynamodb::item::number;
use crate::dynamodb::layout::string;
use crate::dynamodb::layout::{Attribute, Item, TableLayout, as_item};
use crate::protocol::journal::StepEntry;
use crate::protocol::key::RecordId;
use crate::protocol::record::{
    Completion, Ended, Final, Intervention, LAYOUT, NewClaim, Owner, RELEASED, RecordWrite,
    Release, Status, StoredOutcome, Takeover, Version,
};

#[cfg(test)]
mod tests;

/// A value that a change sets, or compares with.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A word of the protocol: the same in most writes of a kind.
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
    /// The key has no record.
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
    /// Steps' entries, by the names of their attributes.
    pub(super) steps: Vec<(String, AttributeValue)>,
    pub(super) tests: Vec<Test>,
    /// The write is a PutItem, since nothing of an old item stays; else an UpdateItem.
    pub(super) is_whole: bool,
}

impl<'a> Change<'a> {
    fn of(layout: &'a TableLayout, id: &RecordId) -> Self {
        Self {
            key: layout.key_of(id.as_str()),
            // As many as a claim sets.
            sets: Vec::with_capacity(8),
            removes: Vec::new(),
            steps: Vec::new(),
            tests: Vec::with_capacity(2),
            is_whole: false,
        }
    }

    /// Applies only while this owner holds the record: the fence.
    fn held_by(mut self, owner: &Owner) -> Self {
        let owner = string(owner.as_str()).into();
        self.tests.push(Test::Equals(Attribute::Owner, owner));
        let in_progress = Status::InProgress.into();
        self.tests
            .push(Test::Equals(Attribute::Status, in_progress));
        self
    }

    /// Applies only over this version: each attribute has the same value, or is still absent.
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

    /// Writes a step's entry, over an older one alone.
    fn note(mut self, (step, entry): (&str, &StepEntry)) -> Self {
        let attribute = item::attribute(step);
        let newer = Test::OlderStep(attribute.clone(), entry.revision);
        self.tests.push(newer);
        self.steps.push((attribute, item::encode_step(entry)));
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

    /// The item that the change leaves where no record was, or where nothing of the old one stays.
    pub(super) fn item(&self, layout: &TableLayout) -> Item {
        let mut item = as_item(self.key.iter().cloned());
        for (attribute, value) in &self.sets {
            item.insert(layout.name(*attribute).to_owned(), value.clone().into());
        }
        item
    }
}

/// The change that a write makes.
pub(super) fn of<'a>(layout: &'a TableLayout, write: &RecordWrite) -> Change<'a> {
    match write {
        RecordWrite::Create(claim) => create(layout, claim),
        RecordWrite::TakeOver { seen, mode, claim } => take_over(layout, seen, *mode, claim),
        RecordWrite::Renew {
            id,
            owner,
            lease,
            expiration,
        } => {
            let lease = number(lease.0);
            let mut change = Change::of(layout, id)
                .held_by(owner)
                .set(Attribute::Lease, lease.clone())
                .set(Attribute::Expiration, number(expiration.0));
            let shorter = Test::Less(Attribute::Lease, lease.into());
            change.tests.push(shorter);
            change
        }
        RecordWrite::Amend {
            id,
            owner,
            step,
            entry,
        } => Change::of(layout, id).held_by(owner).note((step, entry)),
        RecordWrite::Complete(completion) => complete(layout, completion),
        RecordWrite::Release(release) => self::release(layout, release),
        RecordWrite::Intervene(intervention) => intervene(layout, intervention),
    }
}

/// In a table with two keys a claim is an UpdateItem: DynamoDB refuses it unless the key is exactly
/// the table's. A table that has the first key only would take a PutItem with both keys, and every
/// request would meet in one record.
fn create<'a>(layout: &'a TableLayout, claim: &NewClaim) -> Change<'a> {
    let mut change = Change::of(layout, &claim.id).claim(claim);
    change.tests.push(Test::NoRecord);
    change.is_whole = !layout.is_composite();
    change
}

/// Over an expired record, nothing of it stays. Over a released or crashed one, the attributes stay
/// that aren't set or removed here. No outcome stays, which a record in progress shouldn't have:
/// one of another kind than the new one would be read in its place.
fn take_over<'a>(
    layout: &'a TableLayout,
    seen: &Version,
    mode: Takeover,
    claim: &NewClaim,
) -> Change<'a> {
    let mut change = Change::of(layout, &claim.id).unchanged(seen).claim(claim);
    change.is_whole = mode == Takeover::Fresh;
    if !change.is_whole {
        let outcome = [Attribute::Data, Attribute::Packed, Attribute::Omitted];
        change.removes.extend(outcome);
        if claim.fingerprint.is_none() {
            change.removes.push(Attribute::Validation);
        }
        if mode == Takeover::Unstarted {
            change.removes.push(Attribute::LastError);
        }
    }
    change
}

fn complete<'a>(layout: &'a TableLayout, completion: &Completion) -> Change<'a> {
    let (attribute, outcome) = outcome(&completion.outcome);
    Change::of(layout, &completion.id)
        .held_by(&completion.owner)
        .set(Attribute::Status, completion.status)
        .set(Attribute::CompletedAt, number(completion.completed_at.0))
        .set(Attribute::Expiration, number(completion.expiration.0))
        .set(attribute, outcome)
        .remove(Attribute::Lease)
}

/// The attribute of an outcome, and its value.
fn outcome(outcome: &StoredOutcome) -> (Attribute, AttributeValue) {
    match outcome {
        StoredOutcome::Inline(text) => (Attribute::Data, string(text)),
        StoredOutcome::Packed(packed) => (Attribute::Packed, item::encode_outcome(packed)),
        StoredOutcome::Omitted(reason) => (Attribute::Omitted, string(reason.as_str())),
    }
}

/// The change of a record that becomes final in a commit.
pub(super) fn finish<'a>(layout: &'a TableLayout, record: &Final) -> Change<'a> {
    let completed = complete(layout, &record.completion);
    let Some(claim) = &record.claim else {
        return completed;
    };
    let mut change = of(layout, claim);
    // No claim was written before: the change is that of a claim and of its completion together.
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

fn release<'a>(layout: &'a TableLayout, release: &Release) -> Change<'a> {
    let mut change = Change::of(layout, &release.id)
        .held_by(&release.owner)
        .set(Attribute::Owner, string(release.tombstone.as_str()))
        .set(Attribute::Lease, number(RELEASED.0))
        .set_some(
            Attribute::LastError,
            release.last_error.as_deref().map(string),
        );
    if release.forget_fingerprint {
        change.removes.push(Attribute::Validation);
    }
    change
}

fn intervene<'a>(layout: &'a TableLayout, intervention: &Intervention) -> Change<'a> {
    let mut change = Change::of(layout, &intervention.id)
        .unchanged(&intervention.seen)
        .set(Attribute::Owner, string(intervention.owner.as_str()))
        .set(Attribute::Expiration, number(intervention.expiration.0));
    change = intervention.steps.iter().fold(change, Change::note);
    // Nobody amends a record that isn't held: its steps are as they were seen if its version is. An
    // expression has no room to compare those of a whole saga.
    let seen = &intervention.seen;
    let is_in_progress = seen.status.as_deref() == Some(Status::InProgress.as_str());
    if !is_in_progress || seen.lease == Some(RELEASED.0) {
        change
            .tests
            .retain(|test| !matches!(test, Test::OlderStep(..)));
    }
    let stays = match &intervention.end {
        Ended::Released { last_error } => {
            change = change
                .set(Attribute::Status, Status::InProgress)
                .set(Attribute::Lease, number(RELEASED.0))
                .set_some(Attribute::LastError, last_error.as_deref().map(string))
                .remove(Attribute::CompletedAt);
            None
        }
        Ended::Final {
            status,
            outcome: stored,
            completed_at,
        } => {
            let (attribute, stored) = outcome(stored);
            change = change
                .set(Attribute::Status, *status)
                .set(Attribute::CompletedAt, number(completed_at.0))
                .set(attribute, stored)
                .remove(Attribute::Lease);
            Some(attribute)
        }
    };
    // An outcome of another kind would be read instead of the new one.
    let outcomes = [Attribute::Data, Attribute::Packed, Attribute::Omitted];
    let others = outcomes.into_iter().filter(|other| Some(*other) != stays);
    change.removes.extend(others);
    change
}

/// The expressions of a PutItem or an UpdateItem.
#[derive(Debug)]
pub(super) struct Expressions {
    /// DynamoDB refuses an empty expression.
    pub(super) update: Option<String>,
    pub(super) condition: String,
    pub(super) names: HashMap<String, String>,
    /// DynamoDB refuses an empty map.
    pub(super) values: Option<HashMap<String, AttributeValue>>,
}

impl Expressions {
    /// The update stays empty for a PutItem, since the item has the values.
    pub(super) fn of(layout: &TableLayout, change: &Change<'_>) -> Self {
        let mut aliases = Aliases {
            layout,
            names: HashMap::new(),
            values: HashMap::new(),
        };
        let tests = change.tests.iter().map(|test| aliases.test(test));
        let condition = tests.collect::<Vec<_>>().join(" AND ");
        let update = (!change.is_whole).then(|| aliases.update(change)).flatten();
        Self {
            update,
            condition,
            names: aliases.names,
            values: (!aliases.values.is_empty()).then_some(aliases.values),
        }
    }
}

/// Collects names and values; each name has one alias.
struct Aliases<'a> {
    layout: &'a TableLayout,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Aliases<'_> {
    fn name(&mut self, name: &str) -> String {
        let known = self.names.iter().find(|(_, known)| *known == name);
        if let Some((alias, _)) = known {
            return alias.clone();
        }
        let alias = format!("#n{}", self.names.len());
        self.names.insert(alias.clone(), name.to_owned());
        alias
    }

    fn attribute(&mut self, attribute: Attribute) -> String {
        let layout = self.layout;
        self.name(layout.name(attribute))
    }

    fn value(&mut self, value: &Value) -> String {
        let alias = format!(":v{}", self.values.len());
        self.values.insert(alias.clone(), value.clone().into());
        alias
    }

    fn test(&mut self, test: &Test) -> String {
        match test {
            Test::NoRecord => {
                let layout = self.layout;
                format!("attribute_not_exists({})", self.name(layout.partition()))
            }
            Test::Equals(attribute, value) => {
                format!("{} = {}", self.attribute(*attribute), self.value(value))
            }
            Test::Less(attribute, value) => {
                format!("{} < {}", self.attribute(*attribute), self.value(value))
            }
            Test::Absent(attribute) => {
                format!("attribute_not_exists({})", self.attribute(*attribute))
            }
            Test::OlderStep(step, revision) => {
                let step = self.name(step);
                let known = format!("{step}.{}", self.name(item::REVISION));
                let revision = self.value(&number(*revision).into());
                format!("(attribute_not_exists({step}) OR {known} < {revision})")
            }
        }
    }

    fn update(&mut self, change: &Change<'_>) -> Option<String> {
        let mut sets: Vec<_> = change
            .sets
            .iter()
            .map(|(attribute, value)| {
                format!("{} = {}", self.attribute(*attribute), self.value(value))
            })
            .collect();
        for (step, entry) in &change.steps {
            sets.push(format!(
                "{} = {}",
                self.name(step),
                self.value(&entry.clone().into())
            ));
        }
        let removes: Vec<_> = change
            .removes
            .iter()
            .map(|attribute| self.attribute(*attribute))
            .collect();
        let clauses = [("SET", sets), ("REMOVE", removes)]
            .into_iter()
            .filter(|(_, parts)| !parts.is_empty())
            .map(|(verb, parts)| format!("{verb} {}", parts.join(", ")));
        let update = clauses.collect::<Vec<_>>().join(" ");
        (!update.is_empty()).then_some(update)
    }
}
