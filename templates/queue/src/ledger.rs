//! The ledger: a table of entries.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use lambda_runtime::Error;

use crate::payments::{Ledger, Payment};

#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl Ledger for Table {
    async fn enter(&self, entry_id: String, payment: Payment) -> Result<(), Error> {
        let amount = N(payment.amount.to_string());
        let entry = self.client.put_item().table_name(&self.name);
        let entry = entry
            .item("entry_id", S(entry_id))
            .item("payment_id", S(payment.payment_id))
            .item("amount", amount.clone())
            // When the record has expired, the same payment has the same id: with another amount it fails, and this entry stays.
            .condition_expression("attribute_not_exists(entry_id) OR amount = :amount")
            .expression_attribute_values(":amount", amount);
        // The SDK's own text is "service error".
        entry
            .send()
            .await
            .map_err(|error| DisplayErrorContext(error).to_string())?;
        Ok(())
    }
}
