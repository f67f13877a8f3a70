//! The journal: a table of entries.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use lambda_runtime::Error;

use crate::movements::{Journal, Movement};

#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl Journal for Table {
    async fn enter(&self, entry_id: String, movement: Movement) -> Result<(), Error> {
        let (sku, delta) = (S(movement.sku), N(movement.delta.to_string()));
        let entry = self.client.put_item().table_name(&self.name);
        let entry = entry
            .item("entry_id", S(entry_id))
            .item("movement_id", S(movement.movement_id))
            .item("sku", sku.clone())
            .item("delta", delta.clone())
            // When the record has expired, another movement with the same id fails, and this entry stays.
            .condition_expression(
                "attribute_not_exists(entry_id) OR (sku = :sku AND delta = :delta)",
            )
            .expression_attribute_values(":sku", sku)
            .expression_attribute_values(":delta", delta);
        // The SDK's own text is "service error".
        entry
            .send()
            .await
            .map_err(|error| DisplayErrorContext(error).to_string())?;
        Ok(())
    }
}
