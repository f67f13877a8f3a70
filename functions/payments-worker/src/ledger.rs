//! The ledger: a table of entries.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::{Client, Error as LedgerError};

use crate::payment::Payment;
use crate::provider::Receipt;

#[derive(Clone)]
pub(crate) struct Ledger {
    pub(crate) client: Client,
    pub(crate) table: String,
    pub(crate) delay: Duration,
}

impl Ledger {
    pub(crate) async fn enter(
        &self,
        entry_id: String,
        payment: &Payment,
        receipt: Option<&Receipt>,
    ) -> Result<(), LedgerError> {
        tokio::time::sleep(self.delay).await;
        let mut values = vec![
            ("payment_id", S(payment.payment_id.clone())),
            ("order_id", S(payment.order_id.clone())),
            ("amount", N(payment.amount.to_string())),
            ("currency", S(payment.currency.clone())),
        ];
        values.extend(receipt.map(|receipt| ("charge_id", S(receipt.charge_id.clone()))));
        let is_same: Vec<_> = values
            .iter()
            .map(|(name, _)| format!("{name} = :{name}"))
            .collect();
        // When the record has expired, a payment with the same id has the same entry. Another
        // payment, or another charge, fails: the entry that is there stays, and the message ends in
        // the dead-letter queue. A worker whose messages may be sent again after the provider has
        // forgotten its key reads the entry before it charges.
        let condition = format!(
            "attribute_not_exists(entry_id) OR ({})",
            is_same.join(" AND ")
        );
        let mut entry = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("entry_id", S(entry_id.clone()))
            .condition_expression(condition);
        for (name, value) in values {
            entry = entry
                .item(name, value.clone())
                .expression_attribute_values(format!(":{name}"), value);
        }
        entry.send().await?;
        tracing::info!(entry_id, "payment entered");
        Ok(())
    }
}
