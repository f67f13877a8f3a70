//! What a table calls things.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::record::Found;

pub(super) type Item = HashMap<String, AttributeValue>;

/// An item of these attributes.
pub(super) fn as_item<'a>(attributes: impl IntoIterator<Item = (&'a str, AttributeValue)>) -> Item {
    let attributes = attributes.into_iter();
    attributes
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The attributes of a record besides its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Attribute {
    Status,
    Expiration,
    Lease,
    Data,
    Validation,
    Owner,
    Attempt,
    StartedAt,
    CompletedAt,
    LastError,
    Omitted,
    Packed,
    Layout,
}

/// What a table calls its key and its attributes: by default as Powertools for AWS Lambda does.
///
/// ```
/// use lambda_idempotency::store::dynamodb::TableLayout;
///
/// // A table that several services share, with partition key `pk` and sort key `sk`.
/// let layout = TableLayout::default()
///     .composite_key("pk", "idempotency#payments", "sk")
///     .expiration("ttl");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLayout {
    key: KeySchema,
    status: String,
    expiration: String,
    in_progress_expiration: String,
    data: String,
    validation: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeySchema {
    Simple {
        partition: String,
    },
    Composite {
        partition: String,
        value: String,
        sort: String,
    },
}

impl Default for TableLayout {
    fn default() -> Self {
        Self {
            key: KeySchema::Simple {
                partition: "id".into(),
            },
            status: "status".into(),
            expiration: "expiration".into(),
            in_progress_expiration: "in_progress_expiration".into(),
            data: "data".into(),
            validation: "validation".into(),
        }
    }
}

impl TableLayout {
    /// The name of the partition key that holds the id. Default: `id`.
    #[must_use]
    pub fn key(mut self, partition: impl Into<String>) -> Self {
        self.key = KeySchema::Simple {
            partition: partition.into(),
        };
        self
    }

    /// A table with two keys: the partition key has the same value in every record, the sort key holds the id, which then may
    /// have 1,024 bytes.
    #[must_use]
    pub fn composite_key(
        mut self,
        partition: impl Into<String>,
        value: impl Into<String>,
        sort: impl Into<String>,
    ) -> Self {
        self.key = KeySchema::Composite {
            partition: partition.into(),
            value: value.into(),
            sort: sort.into(),
        };
        self
    }

    /// The name of the attribute for the status. Default: `status`.
    #[must_use]
    pub fn status(mut self, name: impl Into<String>) -> Self {
        self.status = name.into();
        self
    }

    /// The name of the table's TTL attribute. Default: `expiration`.
    #[must_use]
    pub fn expiration(mut self, name: impl Into<String>) -> Self {
        self.expiration = name.into();
        self
    }

    /// The name of the attribute for the lease. Default: `in_progress_expiration`.
    #[must_use]
    pub fn in_progress_expiration(mut self, name: impl Into<String>) -> Self {
        self.in_progress_expiration = name.into();
        self
    }

    /// The name of the attribute for the outcome. Default: `data`.
    #[must_use]
    pub fn data(mut self, name: impl Into<String>) -> Self {
        self.data = name.into();
        self
    }

    /// The name of the attribute for the fingerprint. Default: `validation`.
    #[must_use]
    pub fn validation(mut self, name: impl Into<String>) -> Self {
        self.validation = name.into();
        self
    }

    /// What an item of such a table says: for whoever reads an export of it, or its stream.
    ///
    /// Never fails: an item that can't be understood is found, and says why. An expired one is found, too.
    pub fn read(&self, item: &HashMap<String, AttributeValue>) -> Found {
        super::item::decode(self, item)
    }

    pub(super) fn name(&self, attribute: Attribute) -> &str {
        match attribute {
            Attribute::Status => &self.status,
            Attribute::Expiration => &self.expiration,
            Attribute::Lease => &self.in_progress_expiration,
            Attribute::Data => &self.data,
            Attribute::Validation => &self.validation,
            Attribute::Owner => "owner",
            Attribute::Attempt => "attempt",
            Attribute::StartedAt => "started_at",
            Attribute::CompletedAt => "completed_at",
            Attribute::LastError => "last_error",
            Attribute::Omitted => "omitted",
            Attribute::Packed => "packed",
            Attribute::Layout => "v",
        }
    }

    /// The name of the partition key: the attribute that every item has.
    pub(super) fn partition(&self) -> &str {
        match &self.key {
            KeySchema::Simple { partition } | KeySchema::Composite { partition, .. } => partition,
        }
    }

    /// The name of the key that holds the id.
    pub(super) fn id_attribute(&self) -> &str {
        match &self.key {
            KeySchema::Simple { partition } => partition,
            KeySchema::Composite { sort, .. } => sort,
        }
    }

    /// Whether the table has two keys.
    pub(super) fn is_composite(&self) -> bool {
        matches!(self.key, KeySchema::Composite { .. })
    }

    /// The names and values of the key under which this id stands.
    pub(super) fn key_of(&self, id: &str) -> Vec<(&str, AttributeValue)> {
        let id = AttributeValue::S(id.to_owned());
        match &self.key {
            KeySchema::Simple { partition } => vec![(partition, id)],
            KeySchema::Composite {
                partition,
                value,
                sort,
            } => vec![(partition, AttributeValue::S(value.clone())), (sort, id)],
        }
    }

    /// The same, as a request for one item states it.
    pub(super) fn key_item(&self, id: &str) -> Item {
        as_item(self.key_of(id))
    }

    /// The key schema in words, for a person whose table has another.
    pub(super) fn describe(&self) -> String {
        match &self.key {
            KeySchema::Simple { partition } => {
                format!("a string partition key `{partition}` and no sort key")
            }
            KeySchema::Composite {
                partition, sort, ..
            } => {
                format!("a string partition key `{partition}` and a string sort key `{sort}`")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attribute_has_the_name_that_it_is_given() {
        let layout = TableLayout::default()
            .key("pk")
            .status("state")
            .expiration("ttl")
            .in_progress_expiration("lease")
            .data("outcome")
            .validation("payload");
        assert_eq!(layout.partition(), "pk");
        assert_eq!(layout.id_attribute(), "pk");
        for (attribute, name) in [
            (Attribute::Status, "state"),
            (Attribute::Expiration, "ttl"),
            (Attribute::Lease, "lease"),
            (Attribute::Data, "outcome"),
            (Attribute::Validation, "payload"),
        ] {
            assert_eq!(layout.name(attribute), name);
        }
    }

    #[test]
    fn of_two_keys_the_sort_key_holds_the_id() {
        let layout = TableLayout::default().composite_key("pk", "idempotency", "sk");
        assert_eq!(layout.partition(), "pk");
        assert_eq!(layout.id_attribute(), "sk");
        assert!(layout.is_composite());
    }
}
