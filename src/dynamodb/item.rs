//! Converts records to items and back, strictly: an item that can't be understood is unreadable for a
//! stated reason.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::dynamodb::layout::{Attribute, Item, STEP_PREFIX, TableLayout, string};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{Journal, StepEntry, StepState};
use crate::protocol::packed::{PackedOutcome, Place};
use crate::protocol::record::{
    Found, LAYOUT, Omission, Owner, Record, Status, StoredOutcome, Version,
};

#[cfg(test)]
mod tests;

impl TableLayout {
    /// Decodes an item of such a table, from an export or from its stream.
    ///
    /// Never fails: an item that can't be decoded gives an unreadable record with the reason. An
    /// expired record is found, too.
    #[doc(hidden)]
    pub fn read(&self, item: &HashMap<String, AttributeValue>) -> Found {
        let reader = Reader {
            layout: self,
            item,
            members: Members::of_item(item),
        };
        match reader.version() {
            Ok(version) => Found {
                content: reader.record(&version).map(Box::new),
                version,
            },
            // Without a version there is nothing to compare, so it can't be taken over, not even
            // when it has expired.
            Err(reason) => Found::unreadable(Version::default(), reason),
        }
    }
}

struct Reader<'a> {
    layout: &'a TableLayout,
    item: &'a Item,
    members: Members<'a>,
}

impl Reader<'_> {
    fn version(&self) -> Result<Version, String> {
        Ok(Version {
            owner: self.string(Attribute::Owner)?.map(str::to_owned),
            status: self.string(Attribute::Status)?.map(str::to_owned),
            lease: self.number(Attribute::Lease)?,
            expiration: self.number(Attribute::Expiration)?,
        })
    }

    fn record(&self, version: &Version) -> Result<Record, String> {
        let layout = self.number(Attribute::Layout)?;
        if let Some(other) = layout.filter(|layout| *layout != LAYOUT) {
            return Err(format!(
                "layout version {other}, where this release knows {LAYOUT}"
            ));
        }
        let status = self.required(Attribute::Status, version.status.as_deref())?;
        let status = Status::parse(status).ok_or_else(|| self.unknown(Attribute::Status))?;
        let expiration = self.required(Attribute::Expiration, version.expiration)?;
        let mut record = Record::new(status, EpochSeconds(expiration));
        record.layout = layout;
        record.owner = version.owner.as_deref().map(Owner::from_stored);
        record.lease = version.lease.map(EpochMillis);
        let fingerprint = self.string(Attribute::Validation)?;
        record.fingerprint = fingerprint.map(Fingerprint::from_stored);
        record.last_error = self.string(Attribute::LastError)?.map(str::to_owned);
        record.started_at = self.number(Attribute::StartedAt)?.map(EpochMillis);
        record.completed_at = self.number(Attribute::CompletedAt)?.map(EpochMillis);
        record.outcome = self.outcome()?;
        record.journal = decode_journal(self.item)?.checked(status == Status::InProgress)?;
        let attempt = self.number(Attribute::Attempt)?;
        if let Some(attempt) = attempt {
            record.attempt =
                u32::try_from(attempt).map_err(|_| "`attempt` is no count".to_owned())?;
        }
        if layout.is_some() {
            self.required(Attribute::Owner, record.owner.as_ref())?;
            self.required(Attribute::Attempt, attempt)?;
            if status == Status::InProgress {
                self.required(Attribute::Lease, record.lease)?;
            }
        }
        if status != Status::InProgress {
            self.required(Attribute::Data, record.outcome.as_ref())?;
        }
        Ok(record)
    }

    fn outcome(&self) -> Result<Option<StoredOutcome>, String> {
        if let Some(reason) = self.string(Attribute::Omitted)? {
            let reason = Omission::parse(reason).ok_or_else(|| self.unknown(Attribute::Omitted))?;
            return Ok(Some(StoredOutcome::Omitted(reason)));
        }
        if let Some(value) = self.item.get(self.layout.name(Attribute::Packed)) {
            let packed = decode_outcome(value).map_err(|reason| format!("`packed`: {reason}"))?;
            return Ok(Some(StoredOutcome::Packed(packed)));
        }
        let text = self.string(Attribute::Data)?;
        Ok(text.map(|text| StoredOutcome::Inline(text.to_owned())))
    }

    fn string(&self, attribute: Attribute) -> Result<Option<&str>, String> {
        self.members.text(self.layout.name(attribute))
    }

    fn number(&self, attribute: Attribute) -> Result<Option<i64>, String> {
        self.members.optional_number(self.layout.name(attribute))
    }

    fn unknown(&self, attribute: Attribute) -> String {
        unknown(self.layout.name(attribute))
    }

    fn required<T>(&self, attribute: Attribute, value: Option<T>) -> Result<T, String> {
        value.ok_or_else(|| missing(self.layout.name(attribute)))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Members<'a>(&'a Item);

impl<'a> Members<'a> {
    pub(super) fn of(value: &'a AttributeValue) -> Result<Self, String> {
        match value {
            AttributeValue::M(members) => Ok(Self(members)),
            _ => Err("it is not a map".to_owned()),
        }
    }

    pub(super) fn of_item(item: &'a Item) -> Self {
        Self(item)
    }

    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>, String> {
        match self.0.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` is not a string")),
        }
    }

    pub(super) fn required_text(self, name: &str) -> Result<&'a str, String> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// Reads a whole number only: a compare-and-set on a rounded one would never hold.
    pub(super) fn optional_number(self, name: &str) -> Result<Option<i64>, String> {
        let bad = || format!("`{name}` is not a whole number");
        match self.0.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => digits.parse().map(Some).map_err(|_| bad()),
            Some(_) => Err(bad()),
        }
    }

    pub(super) fn number(self, name: &str) -> Result<i64, String> {
        self.optional_number(name)?.ok_or_else(|| missing(name))
    }

    pub(super) fn count<T: TryFrom<i64>>(self, name: &str) -> Result<T, String> {
        T::try_from(self.number(name)?).map_err(|_| format!("`{name}` is no count"))
    }

    pub(super) fn bytes(self, name: &str) -> Result<&'a [u8], String> {
        match self.0.get(name) {
            None => Err(missing(name)),
            Some(AttributeValue::B(bytes)) => Ok(bytes.as_ref()),
            Some(_) => Err(format!("`{name}` is not binary")),
        }
    }
}

/// The reason for an unknown value, without the value: it may be anything, and the reason is
/// logged.
pub(super) fn unknown(name: &str) -> String {
    format!("`{name}` has a value that this release doesn't know")
}

pub(super) fn missing(name: &str) -> String {
    format!("`{name}` is missing")
}

pub(super) fn number(number: impl Into<i64>) -> AttributeValue {
    AttributeValue::N(number.into().to_string())
}

/// Names the member of an entry that a store compares.
pub(super) const REVISION: &str = "revision";

const STATE: &str = "state";
const TRIES: &str = "tries";
const AT: &str = "at";
const RESULT: &str = "result";
const OMITTED: &str = "omitted";
const LAST_ERROR: &str = "last_error";

const PENDING: &str = "PENDING";
const CONFIRMED: &str = "CONFIRMED";
const FAILED: &str = "FAILED";

/// Names the attribute that holds a step's entry.
pub(super) fn attribute(step: &str) -> String {
    format!("{STEP_PREFIX}{step}")
}

pub(super) fn encode_step(entry: &StepEntry) -> AttributeValue {
    let state = match entry.state {
        StepState::Pending => PENDING,
        StepState::Confirmed(_) => CONFIRMED,
        StepState::Failed => FAILED,
    };
    let mut members = HashMap::from([
        (STATE.to_owned(), string(state)),
        (REVISION.to_owned(), number(entry.revision)),
        (TRIES.to_owned(), number(entry.tries)),
        (AT.to_owned(), number(entry.at.0)),
    ]);
    let result = match &entry.state {
        StepState::Confirmed(Ok(text)) => Some((RESULT, text.as_str())),
        StepState::Confirmed(Err(reason)) => Some((OMITTED, reason.as_str())),
        StepState::Pending | StepState::Failed => None,
    };
    let error = entry.last_error.as_deref().map(|kind| (LAST_ERROR, kind));
    for (name, text) in result.into_iter().chain(error) {
        members.insert(name.to_owned(), string(text));
    }
    AttributeValue::M(members)
}

/// Decodes the steps of an item, strictly: a step that can't be understood might be one that must
/// not run again.
fn decode_journal(item: &Item) -> Result<Journal, String> {
    let mut journal = Journal::default();
    for (attribute, value) in item {
        let Some(name) = attribute.strip_prefix(STEP_PREFIX) else {
            continue;
        };
        let entry = Members::of(value).and_then(read);
        let entry = entry.map_err(|reason| format!("`{attribute}`: {reason}"))?;
        journal.put(name, entry);
    }
    Ok(journal)
}

fn read(members: Members<'_>) -> Result<StepEntry, String> {
    let state = match members.required_text(STATE)? {
        PENDING => StepState::Pending,
        FAILED => StepState::Failed,
        CONFIRMED => StepState::Confirmed(result(members)?),
        _ => return Err(unknown(STATE)),
    };
    Ok(StepEntry {
        state,
        revision: members.count(REVISION)?,
        tries: members.count(TRIES)?,
        last_error: members.text(LAST_ERROR)?.map(str::to_owned),
        at: EpochMillis(members.number(AT)?),
    })
}

fn result(members: Members<'_>) -> Result<Result<String, Omission>, String> {
    if let Some(text) = members.text(RESULT)? {
        return Ok(Ok(text.to_owned()));
    }
    let reason = members.text(OMITTED)?.ok_or_else(|| missing(RESULT))?;
    let reason = Omission::parse(reason).map(Err);
    reason.ok_or_else(|| unknown(OMITTED))
}

const SHA256: &str = "sha256";
const BYTES: &str = "bytes";
const PLACE: &str = "in";
const CONTENT: &str = "content";
const OWNER: &str = "owner";

const RECORD: &str = "record";
const ITEM: &str = "item";
const OBJECT: &str = "object";

pub(super) fn encode_outcome(packed: &PackedOutcome) -> AttributeValue {
    let (place, (member, value)) = match &packed.place {
        Place::Record(content) => {
            let content = AttributeValue::B(Blob::new(content.clone()));
            (RECORD, (CONTENT, content))
        }
        Place::Entry(owner) => (ITEM, (OWNER, string(owner.as_str()))),
        Place::Object(owner) => (OBJECT, (OWNER, string(owner.as_str()))),
    };
    AttributeValue::M(HashMap::from([
        (SHA256.to_owned(), string(&packed.sha256)),
        (
            BYTES.to_owned(),
            AttributeValue::N(packed.bytes.to_string()),
        ),
        (PLACE.to_owned(), string(place)),
        (member.to_owned(), value),
    ]))
}

fn decode_outcome(value: &AttributeValue) -> Result<PackedOutcome, String> {
    let members = Members::of(value)?;
    let owner = || members.required_text(OWNER).map(Owner::from_stored);
    let place = match members.required_text(PLACE)? {
        RECORD => Place::Record(members.bytes(CONTENT)?.to_vec()),
        ITEM => Place::Entry(owner()?),
        OBJECT => Place::Object(owner()?),
        _ => return Err(unknown(PLACE)),
    };
    let bytes = members.count(BYTES)?;
    let sha256 = members.required_text(SHA256)?;
    Ok(PackedOutcome {
        sha256: sha256.to_owned(),
        bytes,
        place,
    })
}

/// Counts names and values, in bytes. A number counts as its digits, which is never less than
/// DynamoDB counts.
pub(super) fn of_item(item: &Item) -> usize {
    let entry = |(name, value): (&String, &AttributeValue)| name.len() + of_value(value);
    item.iter().map(entry).sum()
}

pub(super) fn of_value(value: &AttributeValue) -> usize {
    /// A list or a map, whatever it holds.
    const CONTAINER: usize = 3;
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len() + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::Ns(numbers) => numbers.iter().map(|digits| digits.len() + 1).sum(),
        AttributeValue::Bs(all) => all.iter().map(|bytes| bytes.as_ref().len()).sum(),
        AttributeValue::L(values) => {
            CONTAINER
                + values
                    .iter()
                    .map(|value| 1 + of_value(value))
                    .sum::<usize>()
        }
        AttributeValue::M(item) => CONTAINER + item.len() + of_item(item),
        _ => 1,
    }
}
