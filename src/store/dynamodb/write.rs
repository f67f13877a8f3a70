//! Each conditional write, as expressions. Every attribute name is aliased: several are reserved words.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{encode_claim, number, string};
use super::layout::{Attribute, Item, TableLayout};
use crate::record::{
    Amendment, Completion, LAYOUT, NewClaim, Owner, RELEASED, Release, Renewal, Status,
    StoredOutcome, Version,
};

/// A conditional write, ready to be sent.
#[derive(Debug)]
pub(super) struct Write {
    /// The whole item for a PutItem, its key for an UpdateItem.
    pub(super) item: Item,
    /// DynamoDB refuses an empty expression.
    pub(super) update: Option<String>,
    pub(super) condition: String,
    pub(super) names: HashMap<String, String>,
    /// DynamoDB refuses an empty map.
    pub(super) values: Option<HashMap<String, AttributeValue>>,
}

pub(super) fn create(layout: &TableLayout, claim: &NewClaim) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.absent();
    expressions.finish(encode_claim(layout, claim))
}

/// The same as an UpdateItem, which DynamoDB refuses unless the key is exactly the table's.
///
/// A PutItem with both keys would be taken by a table that has the first key only, and every request would meet in one record.
pub(super) fn create_exact(layout: &TableLayout, claim: &NewClaim) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.absent();
    expressions.claim(claim);
    expressions.finish(layout.key_of(&claim.id))
}

/// Over an expired record: nothing of it stays.
pub(super) fn replace(layout: &TableLayout, seen: &Version, claim: &NewClaim) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.unchanged(seen);
    expressions.finish(encode_claim(layout, claim))
}

/// Over a released or crashed one: what isn't set here stays.
pub(super) fn resume(layout: &TableLayout, seen: &Version, claim: &NewClaim) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.unchanged(seen);
    expressions.claim(claim);
    expressions.finish(layout.key_of(&claim.id))
}

pub(super) fn complete(layout: &TableLayout, completion: &Completion) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.held_by(&completion.owner);
    expressions.set(Attribute::Status, string(completion.status.as_str()));
    expressions.set(Attribute::CompletedAt, number(completion.completed_at.0));
    expressions.set(Attribute::Expiration, number(completion.expiration.0));
    expressions.remove(Attribute::Lease);
    match &completion.outcome {
        StoredOutcome::Inline(text) => expressions.set(Attribute::Data, string(text)),
        StoredOutcome::Omitted(reason) => {
            expressions.set(Attribute::Omitted, string(reason.as_str()));
        }
    }
    expressions.finish(layout.key_of(&completion.id))
}

pub(super) fn renew(layout: &TableLayout, renewal: &Renewal) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.held_by(&renewal.owner);
    let lease = expressions.name(Attribute::Lease);
    let new = expressions.value(number(renewal.lease.0));
    expressions.conditions.push(format!("{lease} < {new}"));
    expressions.sets.push(format!("{lease} = {new}"));
    expressions.set(Attribute::Expiration, number(renewal.expiration.0));
    expressions.finish(layout.key_of(&renewal.id))
}

pub(super) fn amend(layout: &TableLayout, amendment: &Amendment) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.held_by(&amendment.owner);
    if let Some(kind) = &amendment.last_error {
        expressions.set(Attribute::LastError, string(kind));
    }
    expressions.finish(layout.key_of(&amendment.id))
}

pub(super) fn release(layout: &TableLayout, release: &Release) -> Write {
    let mut expressions = Expressions::new(layout);
    expressions.held_by(&release.owner);
    expressions.set(Attribute::Owner, string(release.tombstone.as_str()));
    expressions.set(Attribute::Lease, number(RELEASED.0));
    if let Some(kind) = &release.last_error {
        expressions.set(Attribute::LastError, string(kind));
    }
    if release.forget_fingerprint {
        expressions.remove(Attribute::Validation);
    }
    expressions.finish(layout.key_of(&release.id))
}

/// Collects the parts of a write; each name and each value is stated once.
struct Expressions<'a> {
    layout: &'a TableLayout,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
    sets: Vec<String>,
    removes: Vec<String>,
    conditions: Vec<String>,
}

impl<'a> Expressions<'a> {
    fn new(layout: &'a TableLayout) -> Self {
        Self {
            layout,
            names: HashMap::new(),
            values: HashMap::new(),
            sets: Vec::new(),
            removes: Vec::new(),
            conditions: Vec::new(),
        }
    }

    fn alias(&mut self, name: &str) -> String {
        let known = self.names.iter().find(|(_, known)| *known == name);
        if let Some((alias, _)) = known {
            return alias.clone();
        }
        let alias = format!("#n{}", self.names.len());
        self.names.insert(alias.clone(), name.to_owned());
        alias
    }

    fn name(&mut self, attribute: Attribute) -> String {
        let layout = self.layout;
        self.alias(layout.name(attribute))
    }

    fn value(&mut self, value: AttributeValue) -> String {
        let alias = format!(":v{}", self.values.len());
        self.values.insert(alias.clone(), value);
        alias
    }

    fn set(&mut self, attribute: Attribute, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.sets.push(format!("{name} = {value}"));
    }

    fn remove(&mut self, attribute: Attribute) {
        let name = self.name(attribute);
        self.removes.push(name);
    }

    fn equals(&mut self, attribute: Attribute, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.conditions.push(format!("{name} = {value}"));
    }

    /// No record stands under the key.
    fn absent(&mut self) {
        let partition = self.alias(self.layout.partition());
        self.conditions
            .push(format!("attribute_not_exists({partition})"));
    }

    /// The claim's attributes, one by one.
    fn claim(&mut self, claim: &NewClaim) {
        self.set(Attribute::Status, string(Status::InProgress.as_str()));
        self.set(Attribute::Owner, string(claim.owner.as_str()));
        self.set(Attribute::Attempt, number(claim.attempt));
        self.set(Attribute::Lease, number(claim.lease.0));
        self.set(Attribute::Expiration, number(claim.expiration.0));
        self.set(Attribute::StartedAt, number(claim.started_at.0));
        self.set(Attribute::Layout, number(LAYOUT));
        match &claim.fingerprint {
            Some(fingerprint) => self.set(Attribute::Validation, string(fingerprint.as_str())),
            None => self.remove(Attribute::Validation),
        }
    }

    /// The fence.
    fn held_by(&mut self, owner: &Owner) {
        self.equals(Attribute::Owner, string(owner.as_str()));
        self.equals(Attribute::Status, string(Status::InProgress.as_str()));
    }

    /// The version: what was there is still the same, what was absent is still absent.
    fn unchanged(&mut self, seen: &Version) {
        let observed = [
            (Attribute::Owner, seen.owner.as_deref().map(string)),
            (Attribute::Status, seen.status.as_deref().map(string)),
            (Attribute::Lease, seen.lease.map(number)),
            (Attribute::Expiration, seen.expiration.map(number)),
        ];
        for (attribute, value) in observed {
            if let Some(value) = value {
                self.equals(attribute, value);
            } else {
                let name = self.name(attribute);
                self.conditions
                    .push(format!("attribute_not_exists({name})"));
            }
        }
    }

    fn finish(self, item: Item) -> Write {
        let mut update = Vec::new();
        if !self.sets.is_empty() {
            update.push(format!("SET {}", self.sets.join(", ")));
        }
        if !self.removes.is_empty() {
            update.push(format!("REMOVE {}", self.removes.join(", ")));
        }
        Write {
            item,
            update: (!update.is_empty()).then(|| update.join(" ")),
            condition: self.conditions.join(" AND "),
            names: self.names,
            values: (!self.values.is_empty()).then_some(self.values),
        }
    }
}
