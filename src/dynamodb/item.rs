//! Decodes records from items, strictly: an item that can't be understood is unreadable for a
//! stated reason.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::layout::{Attribute, Item, TableLayout};
use super::members::{Members, missing, unknown};
use super::{journal, packed};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::record::{
    Found, LAYOUT, Omission, Owner, Record, Status, StoredOutcome, Version,
};

impl TableLayout {
    /// Decodes an item of such a table, from an export or from its stream.
    ///
    /// Never fails: an item that can't be decoded gives an unreadable record with the reason. An
    /// expired record is found, too.
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
        record.journal = journal::decode(self.item)?;
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
            let packed = packed::decode(value).map_err(|reason| format!("`packed`: {reason}"))?;
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

#[cfg(test)]
mod tests;
