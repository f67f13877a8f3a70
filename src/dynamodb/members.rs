//! Reads the members of an item or of a map attribute, strictly: an error says what can't be
//! understood.

use aws_sdk_dynamodb::types::AttributeValue;

use super::layout::Item;

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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_member_that_is_missing_or_of_another_type_is_named() {
        let value = AttributeValue::M(HashMap::from([(
            "odd".to_owned(),
            AttributeValue::Bool(true),
        )]));
        let members = Members::of(&value).unwrap();
        let missing = Err("`none` is missing".to_owned());
        assert_eq!(members.text("none"), Ok(None));
        assert_eq!(members.required_text("none").map(drop), missing);
        assert_eq!(members.number("none").map(drop), missing);
        assert_eq!(members.bytes("none").map(drop), missing);
        let odd = |kind: &str| Err(format!("`odd` is not {kind}"));
        assert_eq!(members.text("odd").map(drop), odd("a string"));
        assert_eq!(members.number("odd").map(drop), odd("a whole number"));
        assert_eq!(members.bytes("odd").map(drop), odd("binary"));
    }
}
