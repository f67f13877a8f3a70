//! Names a table's key and attributes.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU16;

use aws_sdk_dynamodb::types::AttributeValue;

pub(super) type Item = HashMap<String, AttributeValue>;

/// Prefixes the names of steps' attributes, and of no other attribute.
pub(super) const STEP_PREFIX: &str = "step:";

/// Names the attribute that holds the outcome.
pub(super) const CONTENT: &str = "content";

/// Ends the part of a record's id in the id of its outcome's own item.
pub(super) const OUTCOME: &str = "#outcome#";

/// Makes an item of these attributes.
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

/// The second key of a table, and the value of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sort {
    name: String,
    partition_value: String,
}

impl Attribute {
    const ALL: [Self; 13] = [
        Self::Status,
        Self::Expiration,
        Self::Lease,
        Self::Data,
        Self::Validation,
        Self::Owner,
        Self::Attempt,
        Self::StartedAt,
        Self::CompletedAt,
        Self::LastError,
        Self::Omitted,
        Self::Packed,
        Self::Layout,
    ];
}

/// Names a table's key and attributes: by default as Powertools for AWS Lambda does.
/// [`DynamoDbStore::layout`](super::DynamoDbStore::layout) gives it to its closure.
///
/// Set it before the table goes live: under another name of an attribute, older records are unreadable,
/// after another name of the TTL attribute for ever; under another key or partition value they aren't
/// found, and their duplicates run again.
///
/// ```
/// # use lambda_idempotency::dynamodb::DynamoDbStore;
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// // A table that several services share, with partition key `pk` and sort key `sk`.
/// let store = DynamoDbStore::from_env().await?.layout(|layout| {
///     layout.composite_key("pk", "idempotency#payments", "sk");
///     layout.expiration = "ttl".into();
/// });
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLayout {
    partition: String,
    /// In a table with two keys.
    sort: Option<Sort>,
    /// The number of partition values that the records of a table with
    /// [two keys](TableLayout::composite_key) are spread over: the value, `#`, and a number from 0 to
    /// `spread` - 1 that follows from the record's id. Default: 1, which leaves the value as it is.
    ///
    /// Choose it before the table goes live. If you change it later, older records aren't found,
    /// and their duplicates run again. Powertools for AWS Lambda has one value alone, so a table
    /// that it shares can't be spread. Without [two keys](TableLayout::composite_key) it changes
    /// nothing: the id is the partition key then.
    ///
    /// ```
    /// use std::num::NonZeroU16;
    /// # use lambda_idempotency::dynamodb::DynamoDbStore;
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = DynamoDbStore::from_env().await?.layout(|layout| {
    ///     layout.composite_key("pk", "idempotency#payments", "sk");
    ///     layout.spread = NonZeroU16::new(16).unwrap_or(NonZeroU16::MIN);
    /// });
    /// # Ok(()) }
    /// ```
    pub spread: NonZeroU16,
    /// The attribute for the status. Default: `status`. Name it before the table goes live.
    pub status: String,
    /// The table's TTL attribute. Default: `expiration`. Name it before the table goes live.
    pub expiration: String,
    /// The attribute for the lease. Default: `in_progress_expiration`. Name it before the table goes live.
    pub in_progress_expiration: String,
    /// The attribute for the outcome. Default: `data`. Name it before the table goes live.
    pub data: String,
    /// The attribute for the fingerprint. Default: `validation`. Name it before the table goes live.
    pub validation: String,
}

impl Default for TableLayout {
    fn default() -> Self {
        Self {
            partition: "id".into(),
            sort: None,
            spread: NonZeroU16::MIN,
            status: "status".into(),
            expiration: "expiration".into(),
            in_progress_expiration: "in_progress_expiration".into(),
            data: "data".into(),
            validation: "validation".into(),
        }
    }
}

impl Sort {
    fn partition_of(&self, id: &str, spread: NonZeroU16) -> AttributeValue {
        let value = &self.partition_value;
        if spread == NonZeroU16::MIN {
            return string(value);
        }
        // FNV-1a: the value is part of the table's format, so it must never change.
        let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        string(&format!("{value}#{}", hash % u32::from(spread.get())))
    }
}

impl TableLayout {
    /// Names the partition key that holds the id. Default: `id`. Name it before the table goes live.
    pub fn key(&mut self, partition: impl Into<String>) {
        self.partition = partition.into();
        self.sort = None;
    }

    /// Takes a table with two keys: the partition key has the same value in every record, the sort
    /// key holds the id, which then may have 1,024 bytes. Choose it before the table goes live.
    ///
    /// DynamoDB serves one partition value with at most
    /// [1,000 write units a second](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html)
    /// unless it can split the item collection, and a new request takes two: for more than some
    /// hundreds of requests a second, [spread](TableLayout::spread) the records.
    pub fn composite_key(
        &mut self,
        partition: impl Into<String>,
        value: impl Into<String>,
        sort: impl Into<String>,
    ) {
        self.partition = partition.into();
        self.sort = Some(Sort {
            name: sort.into(),
            partition_value: value.into(),
        });
    }

    /// Checks that no two attributes have one name: one would overwrite the other in each record.
    pub(super) fn check(&self) -> Result<(), String> {
        let sort = self.sort.iter().map(|sort| sort.name.as_str());
        let keys = std::iter::once(self.partition.as_str()).chain(sort);
        let others = Attribute::ALL.map(|attribute| self.name(attribute));
        // An outcome's own item, which is in the same table.
        let all = keys.chain(others).chain([CONTENT]);
        let mut seen = HashSet::new();
        for name in all {
            if name.is_empty() {
                return Err("the table layout has an attribute without a name".to_owned());
            }
            if name.starts_with(STEP_PREFIX) {
                return Err(format!(
                    "the table layout has an attribute `{name}`: names that begin with `{STEP_PREFIX}` are those of steps"
                ));
            }
            if !seen.insert(name) {
                return Err(format!(
                    "the table layout has two attributes `{name}`: one would overwrite the other"
                ));
            }
        }
        Ok(())
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
        &self.partition
    }

    /// The name of the key that holds the id.
    pub(super) fn id_attribute(&self) -> &str {
        self.sort
            .as_ref()
            .map_or(&self.partition, |sort| &sort.name)
    }

    /// Returns whether the table has two keys.
    pub(super) fn is_composite(&self) -> bool {
        self.sort.is_some()
    }

    /// The most bytes of an id: DynamoDB takes
    /// [2,048 in a partition key, 1,024 in a sort key](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html).
    pub(super) fn max_id_bytes(&self) -> usize {
        if self.is_composite() { 1_024 } else { 2_048 }
    }

    /// The names and values of the key of the record with this id.
    pub(super) fn key_of(&self, id: &str) -> Vec<(&str, AttributeValue)> {
        match &self.sort {
            None => vec![(&self.partition, string(id))],
            Some(sort) => vec![
                (&self.partition, sort.partition_of(id, self.spread)),
                (&sort.name, string(id)),
            ],
        }
    }

    /// The same as an item, for a request.
    pub(super) fn key_item(&self, id: &str) -> Item {
        as_item(self.key_of(id))
    }

    /// Returns the id of the record that an item holds, for a tool that scans the table. `None` of an
    /// item whose key isn't the one that this layout gives the id, such as another service's under
    /// another partition value, and of a large outcome's own item.
    #[doc(hidden)]
    pub fn id_of<'a>(&self, item: &'a HashMap<String, AttributeValue>) -> Option<&'a str> {
        let is_outcome = |id: &str| item.contains_key(CONTENT) && id.contains(OUTCOME);
        self.placed_id(item).filter(|id| !is_outcome(id))
    }

    /// Returns whether an item's key isn't the one that this layout gives the id in it: the item is
    /// another service's, or the layout isn't that of the table.
    #[doc(hidden)]
    pub fn is_elsewhere(&self, item: &HashMap<String, AttributeValue>) -> bool {
        self.placed_id(item).is_none()
    }

    /// Returns the id in an item's key; `None` where this layout gives that id another key.
    fn placed_id<'a>(&self, item: &'a Item) -> Option<&'a str> {
        let id = item.get(self.id_attribute())?.as_s().ok()?.as_str();
        let is_in = |(name, value): (&str, AttributeValue)| item.get(name) == Some(&value);
        self.key_of(id).into_iter().all(is_in).then_some(id)
    }

    /// Describes the key schema, for an error about a table that has another.
    pub(super) fn describe(&self) -> String {
        let sort = match &self.sort {
            None => "no sort key".to_owned(),
            Some(sort) => format!("a string sort key `{}`", sort.name),
        };
        let partition = &self.partition;
        format!("a string partition key `{partition}` and {sort}")
    }
}

pub(super) fn string(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn changed(change: impl FnOnce(&mut TableLayout)) -> TableLayout {
        let mut layout = TableLayout::default();
        change(&mut layout);
        layout
    }

    #[test]
    fn each_attribute_has_the_name_that_it_is_given() {
        let layout = changed(|layout| {
            layout.key("pk");
            layout.status = "state".into();
            layout.expiration = "ttl".into();
            layout.in_progress_expiration = "lease".into();
            layout.data = "outcome".into();
            layout.validation = "payload".into();
        });
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
    fn names_that_clash_are_refused() {
        let composite =
            |partition, sort| changed(|layout| layout.composite_key(partition, "records", sort));
        for clashing in [
            changed(|layout| layout.status = "data".into()),
            changed(|layout| layout.key("owner")),
            changed(|layout| layout.expiration = "v".into()),
            changed(|layout| layout.validation = "step:charge".into()),
            changed(|layout| layout.data = "content".into()),
            changed(|layout| layout.status.clear()),
            composite("pk", "pk"),
            composite("pk", "attempt"),
            composite("status", "sk"),
        ] {
            assert!(clashing.check().is_err(), "{clashing:?}");
        }
        let mut other = composite("pk", "sk");
        other.expiration = "ttl".into();
        other.data = "result".into();
        for fine in [TableLayout::default(), composite("id", "sort"), other] {
            assert_eq!(fine.check(), Ok(()));
        }
    }

    #[test]
    fn of_two_keys_the_sort_key_holds_the_id() {
        let layout = changed(|layout| layout.composite_key("pk", "idempotency", "sk"));
        assert_eq!(layout.partition(), "pk");
        assert_eq!(layout.id_attribute(), "sk");
        assert!(layout.is_composite());
    }

    fn partition_values(layout: &TableLayout, ids: u32) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for id in 0..ids {
            let key = layout.key_item(&format!("payments#charge#{id}"));
            *counts.entry(key["pk"].as_s().unwrap().clone()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn records_are_spread_evenly_over_the_partition_values() {
        let layout = changed(|layout| {
            layout.composite_key("pk", "idempotency", "sk");
            layout.spread = NonZeroU16::new(16).unwrap();
        });
        let counts = partition_values(&layout, 16_000);
        assert_eq!(counts.len(), 16);
        assert!(counts.keys().all(|value| value.starts_with("idempotency#")));
        assert!(
            counts.values().all(|count| (800..1_200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn an_item_holds_a_record_where_its_key_is_the_one_of_its_id() {
        let composite = |value| changed(|layout| layout.composite_key("pk", value, "sk"));
        let mut spread = composite("mine");
        spread.spread = NonZeroU16::new(16).unwrap();
        let layouts = [composite("mine"), composite("theirs"), spread];
        let id = "payments#charge#17";
        for (one, layout) in layouts.iter().enumerate() {
            let item = layout.key_item(id);
            for (other, layout) in layouts.iter().enumerate() {
                let expected = (one == other).then_some(id);
                assert_eq!(layout.id_of(&item), expected, "{one}, {other}");
                assert_eq!(layout.is_elsewhere(&item), one != other, "{one}, {other}");
            }
        }
        let simple = TableLayout::default();
        let mut item = simple.key_item("payments#charge#17#outcome#0f");
        assert!(simple.id_of(&item).is_some());
        item.insert(CONTENT.to_owned(), string("large"));
        assert_eq!(simple.id_of(&item), None);
        assert!(!simple.is_elsewhere(&item));
        assert_eq!(simple.id_of(&layouts[0].key_item(id)), None);
        assert!(simple.is_elsewhere(&layouts[0].key_item(id)));
    }

    /// A record is found where a program of another version has put it.
    #[test]
    fn the_place_of_a_record_never_changes() {
        let mut layout = changed(|layout| layout.composite_key("pk", "idempotency", "sk"));
        let place = |layout: &TableLayout| layout.key_item("payments#charge#17")["pk"].clone();
        assert_eq!(place(&layout), string("idempotency"));
        let sixteen = NonZeroU16::new(16).unwrap();
        layout.spread = sixteen;
        assert_eq!(place(&layout), string("idempotency#8"));
        let first = changed(|layout| {
            layout.spread = sixteen;
            layout.composite_key("pk", "idempotency", "sk");
        });
        assert_eq!(place(&first), string("idempotency#8"), "in any order");
    }

    #[test]
    fn an_id_that_the_table_does_not_take_is_the_fault_of_its_key() {
        use crate::protocol::key::{Key, KeyError};

        let store = crate::dynamodb::wire::Wire::default().store();
        let simple = store.clone();
        let composite = store.layout(|layout| layout.composite_key("pk", "records", "sk"));
        for (store, max) in [(simple, 2_048), (composite, 1_024)] {
            let once = crate::Idempotency::builder(store);
            let once = once.namespace("payments").build().unwrap();
            let id = |bytes: usize| once.record_id(&Key::raw("charge", "x".repeat(bytes)));
            assert!(id(max).is_ok());
            let bytes = max + 1;
            assert_eq!(id(bytes), Err(KeyError::IdTooLong { bytes, max }));
        }
    }
}
