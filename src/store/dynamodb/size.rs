//! How large DynamoDB takes an item to be
//! ([item sizes](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html)).

use aws_sdk_dynamodb::types::AttributeValue;

use super::layout::Item;

/// Names and values, in bytes. A number counts as its digits, which is never less than what DynamoDB makes of it.
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
}
