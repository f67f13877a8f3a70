//! The table of the payouts.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use lambda_runtime::Error;

use crate::settlements::{Payouts, Settlement};

#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl Payouts for Table {
    async fn pay(&self, payout_id: String, settlement: Settlement) -> Result<(), Error> {
        let amount = N(settlement.amount.to_string());
        let payout = self.client.put_item().table_name(&self.name);
        let payout = payout
            .item("payout_id", S(payout_id))
            .item("settlement_id", S(settlement.settlement_id))
            .item("amount", amount.clone())
            // When the record has expired, the same settlement has the same id: with another amount it fails, and this payout stays.
            .condition_expression("attribute_not_exists(payout_id) OR amount = :amount")
            .expression_attribute_values(":amount", amount);
        payout.send().await?;
        Ok(())
    }
}
