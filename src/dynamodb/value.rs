//! Makes the attribute values that records consist of.

use aws_sdk_dynamodb::types::AttributeValue;

pub(super) fn string(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(super) fn number(number: impl Into<i64>) -> AttributeValue {
    AttributeValue::N(number.into().to_string())
}
