//! An order as clients send it.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// 2^53 - 1: a larger number changes on its way through a reader that knows only doubles (RFC 8259, 6).
const MAX_AMOUNT: u64 = 9_007_199_254_740_991;

/// `{"sku", "quantity", "amount", "currency"}`; nothing else.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) sku: String,
    #[serde(deserialize_with = "whole")]
    pub(crate) quantity: u32,
    /// In minor units: cents, not euros.
    #[serde(deserialize_with = "whole")]
    pub(crate) amount: u64,
    /// ISO 4217: three capital letters.
    pub(crate) currency: String,
}

impl Order {
    /// The order, or in words what is wrong with it.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let order: Self = serde_json::from_slice(body)
            .map_err(|error| format!("the body is not an order: {error}"))?;
        if order.sku.is_empty() || order.sku.chars().count() > 64 {
            return Err("sku must have 1 to 64 characters".to_owned());
        }
        if order.quantity == 0 {
            return Err("quantity must be at least 1".to_owned());
        }
        if !(1..=MAX_AMOUNT).contains(&order.amount) {
            return Err(format!("amount must be 1 to {MAX_AMOUNT}, in minor units"));
        }
        if order.currency.len() != 3 || !order.currency.bytes().all(|b| b.is_ascii_uppercase()) {
            return Err("currency must be three capital letters, as in EUR".to_owned());
        }
        Ok(order)
    }
}

/// A whole number, however it is written: JSON knows one kind of number, and 2.0 is 2.
fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let is_whole = |value: &f64| value.fract() == 0.0;
    let rounded = || {
        number
            .as_f64()
            .filter(is_whole)
            .map(|value| format!("{value:.0}"))
    };
    let whole = number.as_u64().or_else(|| rounded()?.parse().ok());
    whole
        .and_then(|whole| T::try_from(whole).ok())
        .ok_or_else(|| D::Error::custom(format!("{number} is not a whole number of that size")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn a_complete_order_is_accepted() {
        let order = Order::parse(br#"{"sku":"tea","quantity":2,"amount":1250,"currency":"EUR"}"#);
        let expected = Order {
            sku: "tea".to_owned(),
            quantity: 2,
            amount: 1_250,
            currency: "EUR".to_owned(),
        };
        assert_eq!(order, Ok(expected));
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_fraction_of_zero() {
        let one = Order::parse(br#"{"sku":"tea","quantity":2.0,"amount":1.25e3,"currency":"EUR"}"#);
        let other = Order::parse(br#"{"sku":"tea","quantity":2,"amount":1250,"currency":"EUR"}"#);
        assert_eq!(one, other);
        assert!(one.is_ok());
    }

    #[test]
    fn each_bad_order_is_refused_in_words() {
        let with = |field: &str, value: Value| {
            let order = json!({"sku": "tea", "quantity": 2, "amount": 1250, "currency": "EUR"});
            let mut order: Map<String, Value> = serde_json::from_value(order).unwrap();
            order.insert(field.to_owned(), value);
            Value::from(order).to_string()
        };
        let no_currency = r#"{"sku":"tea","quantity":2,"amount":1250}"#;
        for (body, word) in [
            (String::new(), "not an order"),
            ("[]".to_owned(), "not an order"),
            (no_currency.to_owned(), "currency"),
            (with("quantity", json!(-1)), "not an order"),
            (with("amount", json!(12.5)), "not an order"),
            (with("gift", json!(true)), "gift"),
            (with("sku", json!("")), "sku"),
            (with("quantity", json!(0)), "quantity"),
            (with("amount", json!(0)), "amount"),
            (with("amount", json!(9_007_199_254_740_992_u64)), "amount"),
            (with("currency", json!("euro")), "currency"),
        ] {
            let reason = Order::parse(body.as_bytes()).unwrap_err();
            assert!(reason.contains(word), "{body}: {reason}");
        }
    }
}
