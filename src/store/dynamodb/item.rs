//! Records as DynamoDB items, and back: what can't be understood is said in words, never guessed.

use aws_sdk_dynamodb::types::AttributeValue;

use super::layout::{Attribute, Item, TableLayout};
use super::{journal, packed};
use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::record::{Found, LAYOUT, Omission, Owner, Record, Status, StoredOutcome, Version};

pub(super) fn string(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(super) fn number(number: impl Into<i64>) -> AttributeValue {
    AttributeValue::N(number.into().to_string())
}

/// What an item says. Never fails: an item that can't be understood is found, and unreadable.
pub(super) fn decode(layout: &TableLayout, item: &Item) -> Found {
    let reader = Reader { layout, item };
    match reader.version() {
        Ok(version) => match reader.record() {
            Ok(record) => Found {
                version,
                content: Ok(Box::new(record)),
            },
            Err(reason) => Found::unreadable(version, reason),
        },
        // Without a version there is nothing to compare, so it can't be taken over, not even when it has expired.
        Err(reason) => Found::unreadable(Version::default(), reason),
    }
}

struct Reader<'a> {
    layout: &'a TableLayout,
    item: &'a Item,
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

    fn record(&self) -> Result<Record, String> {
        let layout = self.number(Attribute::Layout)?;
        if let Some(other) = layout.filter(|layout| *layout != LAYOUT) {
            return Err(format!(
                "layout version {other}, where this release knows {LAYOUT}"
            ));
        }
        let status = self.required(Attribute::Status, self.string(Attribute::Status)?)?;
        let status = Status::parse(status).ok_or_else(|| self.unknown(Attribute::Status))?;
        let expiration =
            self.required(Attribute::Expiration, self.number(Attribute::Expiration)?)?;
        let mut record = Record::new(status, EpochSeconds(expiration));
        record.layout = layout;
        record.owner = self.string(Attribute::Owner)?.map(Owner::from_stored);
        record.lease = self.number(Attribute::Lease)?.map(EpochMillis);
        record.fingerprint = self
            .string(Attribute::Validation)?
            .map(Fingerprint::from_stored);
        record.last_error = self.string(Attribute::LastError)?.map(str::to_owned);
        record.started_at = self.number(Attribute::StartedAt)?.map(EpochMillis);
        record.completed_at = self.number(Attribute::CompletedAt)?.map(EpochMillis);
        record.outcome = self.outcome()?;
        record.journal = journal::decode(self.item)?;
        if let Some(attempt) = self.number(Attribute::Attempt)? {
            record.attempt =
                u32::try_from(attempt).map_err(|_| "`attempt` is no count".to_owned())?;
        }
        if layout.is_some() {
            self.required(Attribute::Owner, record.owner.as_ref())?;
            self.required(Attribute::Attempt, self.number(Attribute::Attempt)?)?;
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
        Ok(self
            .string(Attribute::Data)?
            .map(|text| StoredOutcome::Inline(text.to_owned())))
    }

    fn string(&self, attribute: Attribute) -> Result<Option<&str>, String> {
        match self.item.get(self.layout.name(attribute)) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{}` is not a string", self.layout.name(attribute))),
        }
    }

    /// Whole numbers only: a compare-and-set on a rounded one would never hold.
    fn number(&self, attribute: Attribute) -> Result<Option<i64>, String> {
        let bad = || format!("`{}` is not a whole number", self.layout.name(attribute));
        match self.item.get(self.layout.name(attribute)) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => digits.parse().map(Some).map_err(|_| bad()),
            Some(_) => Err(bad()),
        }
    }

    /// Never what stands there: it may be anything, and this is logged.
    fn unknown(&self, attribute: Attribute) -> String {
        let name = self.layout.name(attribute);
        format!("`{name}` has a value that this release doesn't know")
    }

    fn required<T>(&self, attribute: Attribute, value: Option<T>) -> Result<T, String> {
        value.ok_or_else(|| format!("`{}` is missing", self.layout.name(attribute)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A completed record of this crate's.
    fn item() -> Item {
        let entries = [
            ("status", string("COMPLETED")),
            ("expiration", number(100)),
            ("owner", string("me")),
            ("attempt", number(1)),
            ("data", string("1")),
            ("v", number(1)),
        ];
        entries.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn why(item: &Item) -> String {
        decode(&TableLayout::default(), item).content.unwrap_err()
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(decode(&TableLayout::default(), &item()).content.is_ok());
        for name in ["status", "expiration", "owner", "attempt", "data"] {
            let mut item = item();
            item.remove(name);
            assert_eq!(why(&item), format!("`{name}` is missing"));
        }
        let mut claimed = item();
        claimed.insert("status".to_owned(), string("INPROGRESS"));
        assert_eq!(why(&claimed), "`in_progress_expiration` is missing");
    }

    #[test]
    fn what_cannot_be_understood_is_named_and_not_quoted() {
        for (name, value, reason) in [
            (
                "v",
                number(2),
                "layout version 2, where this release knows 1",
            ),
            (
                "status",
                string("PAUSED"),
                "`status` has a value that this release doesn't know",
            ),
            (
                "omitted",
                string("lazy"),
                "`omitted` has a value that this release doesn't know",
            ),
            ("owner", number(1), "`owner` is not a string"),
            (
                "expiration",
                string("soon"),
                "`expiration` is not a whole number",
            ),
            ("attempt", number(-1), "`attempt` is no count"),
            ("packed", string("?"), "`packed`: it is not a map"),
        ] {
            let mut item = item();
            item.insert(name.to_owned(), value);
            assert_eq!(why(&item), reason);
        }
    }
}
