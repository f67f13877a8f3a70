//! The ledger: a table of entries.

use std::time::Duration;

use aws_sdk_dynamodb::error::DisplayErrorContext;
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
        let mut entry = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("entry_id", S(entry_id.clone()))
            .item("payment_id", S(payment.payment_id.clone()))
            .item("order_id", S(payment.order_id.clone()))
            .item("amount", N(payment.amount.to_string()))
            .item("currency", S(payment.currency.clone()));
        if let Some(receipt) = receipt {
            entry = entry.item("charge_id", S(receipt.charge_id.clone()));
        }
        entry.send().await.inspect_err(|error| {
            tracing::error!(error = %DisplayErrorContext(error), "the ledger refused the entry");
        })?;
        tracing::info!(entry_id, "payment entered");
        Ok(())
    }
}
