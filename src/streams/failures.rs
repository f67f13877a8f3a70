//! Defines the reply that has records delivered again.

use serde::{Deserialize, Serialize};

/// The reply of a function whose event source mapping has `ReportBatchItemFailures`. An empty list
/// says that the whole batch is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ItemFailures {
    /// The records that must come again.
    pub batch_item_failures: Vec<ItemFailure>,
}

/// Names one record that must come again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ItemFailure {
    /// The id by which the source knows the record.
    pub item_identifier: String,
}

impl ItemFailures {
    /// Names the lowest of these sequence numbers: Lambda goes back to it, and delivers it and all
    /// after it again.
    pub(crate) fn lowest(failed: Vec<String>) -> Self {
        let lowest = failed
            .into_iter()
            .min_by(|one, other| by_number(one, other));
        Self::of(lowest)
    }

    /// Names each of these ids.
    pub(crate) fn of(failed: impl IntoIterator<Item = String>) -> Self {
        let item = |item_identifier| ItemFailure { item_identifier };
        Self {
            batch_item_failures: failed.into_iter().map(item).collect(),
        }
    }
}

/// Compares decimal numbers of any length.
fn by_number(one: &str, other: &str) -> std::cmp::Ordering {
    let significant = |text: &str| text.trim_start_matches('0').to_owned();
    let (one, other) = (significant(one), significant(other));
    one.len().cmp(&other.len()).then_with(|| one.cmp(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_is_named_whatever_the_order() {
        let failed = ["1000", "999", "00998", "9999"].map(str::to_owned).to_vec();
        let reply = serde_json::to_string(&ItemFailures::lowest(failed)).unwrap();
        assert_eq!(
            reply,
            r#"{"batchItemFailures":[{"itemIdentifier":"00998"}]}"#
        );
    }

    #[test]
    fn numbers_are_compared_by_value_and_not_as_text() {
        let failed = ["1000", "999"].map(str::to_owned).to_vec();
        let lowest = ItemFailures::lowest(failed).batch_item_failures;
        assert_eq!(lowest[0].item_identifier, "999");
    }

    #[test]
    fn nothing_failed_is_an_empty_list() {
        let reply = serde_json::to_string(&ItemFailures::lowest(Vec::new())).unwrap();
        assert_eq!(reply, r#"{"batchItemFailures":[]}"#);
    }
}
