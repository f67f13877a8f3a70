//! An order as clients send it.

use serde::Deserialize;

/// `{"sku", "quantity", "amount", "currency"}`; nothing else.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) sku: String,
    pub(crate) quantity: u32,
    /// In minor units: cents, not euros.
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
        if order.amount == 0 {
            return Err("amount must be at least 1, in minor units".to_owned());
        }
        if order.currency.len() != 3 || !order.currency.bytes().all(|b| b.is_ascii_uppercase()) {
            return Err("currency must be three capital letters, as in EUR".to_owned());
        }
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
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
    fn each_bad_order_is_refused_in_words() {
        for (body, word) in [
            ("", "not an order"),
            ("[]", "not an order"),
            (r#"{"sku":"tea","quantity":2,"amount":1250}"#, "currency"),
            (
                r#"{"sku":"tea","quantity":-1,"amount":1250,"currency":"EUR"}"#,
                "not an order",
            ),
            (
                r#"{"sku":"tea","quantity":2,"amount":12.5,"currency":"EUR"}"#,
                "not an order",
            ),
            (
                r#"{"sku":"tea","quantity":2,"amount":1250,"currency":"EUR","gift":true}"#,
                "gift",
            ),
            (
                r#"{"sku":"","quantity":2,"amount":1250,"currency":"EUR"}"#,
                "sku",
            ),
            (
                r#"{"sku":"tea","quantity":0,"amount":1250,"currency":"EUR"}"#,
                "quantity",
            ),
            (
                r#"{"sku":"tea","quantity":2,"amount":0,"currency":"EUR"}"#,
                "amount",
            ),
            (
                r#"{"sku":"tea","quantity":2,"amount":1250,"currency":"euro"}"#,
                "currency",
            ),
        ] {
            let reason = Order::parse(body.as_bytes()).unwrap_err();
            assert!(reason.contains(word), "{body}: {reason}");
        }
    }
}
