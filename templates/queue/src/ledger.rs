//! The ledger: a table of entries.

use aws_sdk_dynamodb::Client;
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
        let entry = self.client.put_item().table_name(&self.name);
        let entry = entry
            .item("entry_id", S(entry_id))
            .item("payment_id", S(payment.payment_id))
            .item("amount", N(payment.amount.to_string()));
        entry.send().await?;
        Ok(())
    }
}
