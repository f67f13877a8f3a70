//! Defines the reply that has records delivered again. Pure.

use serde::{Deserialize, Serialize};

/// The reply of a function whose Kafka event source mapping has `ReportBatchItemFailures`. An empty
/// list says that the whole batch is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KafkaItemFailures {
    /// The records that must come again.
    pub batch_item_failures: Vec<KafkaItemFailure>,
}

/// Names one record that must come again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KafkaItemFailure {
    /// The place of the record.
    pub item_identifier: RecordPlace,
}

/// Holds the place of a record in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordPlace {
    /// The topic and the number of the partition, as the event names them: `movements-0`.
    pub partition: String,
    /// The place in the partition.
    pub offset: u64,
}

impl KafkaItemFailures {
    /// Names each of these records: Lambda's page says that only the failed ones come again, so one
    /// that is left out could be lost.
    pub(super) fn of(failed: Vec<String>) -> Self {
        let item = |id: String| KafkaItemFailure {
            item_identifier: RecordPlace::of(&id).unwrap_or(RecordPlace {
                partition: id,
                offset: 0,
            }),
        };
        Self {
            batch_item_failures: failed.into_iter().map(item).collect(),
        }
    }
}

impl RecordPlace {
    /// Reads the id of a record. A topic's name may have hyphens, an offset has none.
    fn of(id: &str) -> Option<Self> {
        let (partition, offset) = id.rsplit_once('-')?;
        Some(Self {
            partition: partition.to_owned(),
            offset: offset.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_record_is_named_by_partition_and_offset() {
        let failed = ["stock-movements-0-15", "stock-movements-0-16", "b-12-7"];
        let reply = KafkaItemFailures::of(failed.map(str::to_owned).to_vec());
        let expected = serde_json::json!({ "batchItemFailures": [
            { "itemIdentifier": { "partition": "stock-movements-0", "offset": 15 } },
            { "itemIdentifier": { "partition": "stock-movements-0", "offset": 16 } },
            { "itemIdentifier": { "partition": "b-12", "offset": 7 } },
        ] });
        assert_eq!(serde_json::to_value(reply).unwrap(), expected);
    }

    #[test]
    fn nothing_failed_is_an_empty_list() {
        let reply = serde_json::to_string(&KafkaItemFailures::of(Vec::new())).unwrap();
        assert_eq!(reply, r#"{"batchItemFailures":[]}"#);
    }
}
