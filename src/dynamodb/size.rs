//! Computes the size that DynamoDB gives an item
//! ([item sizes](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html)).

use aws_sdk_dynamodb::types::AttributeValue;

use super::layout::Item;

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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn names_and_values_are_counted_in_bytes() {
        let item = HashMap::from([
            ("id".to_owned(), AttributeValue::S("ü".to_owned())),
            ("on".to_owned(), AttributeValue::Bool(true)),
            (
                "tags".to_owned(),
                AttributeValue::L(vec![AttributeValue::N("12".to_owned())]),
            ),
        ]);
        assert_eq!(of_item(&item), (2 + 2) + (2 + 1) + (4 + 3 + 1 + 3));
    }

    #[test]
    fn a_set_counts_as_its_members() {
        let texts = ["ab", "c"].map(str::to_owned).to_vec();
        assert_eq!(of_value(&AttributeValue::Ss(texts)), 3);
        let numbers = ["12", "3"].map(str::to_owned).to_vec();
        assert_eq!(of_value(&AttributeValue::Ns(numbers)), 3 + 2);
        let bytes = [vec![1, 2], vec![3]].map(Into::into).to_vec();
        assert_eq!(of_value(&AttributeValue::Bs(bytes)), 3);
    }

    #[test]
    fn a_map_counts_as_its_members_and_a_container() {
        let member = ("name".to_owned(), AttributeValue::B(vec![1, 2].into()));
        let map = AttributeValue::M(HashMap::from([member]));
        assert_eq!(of_value(&map), 3 + 1 + 4 + 2);
    }
}
