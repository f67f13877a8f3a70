//! The table of the orders.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use lambda_http::Error;

use crate::orders::{Order, Orders};

#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl Orders for Table {
    async fn place(&self, order_id: String, order: Order) -> Result<(), Error> {
        let (sku, quantity) = (S(order.sku), N(order.quantity.to_string()));
        let item = self.client.put_item().table_name(&self.name);
        let item = item
            .item("order_id", S(order_id))
            .item("sku", sku.clone())
            .item("quantity", quantity.clone())
            // When the record has expired, another order under the same key has the same id: it fails, and this one stays.
            .condition_expression(
                "attribute_not_exists(order_id) OR (sku = :sku AND quantity = :quantity)",
            )
            .expression_attribute_values(":sku", sku)
            .expression_attribute_values(":quantity", quantity);
        // The SDK's own text is "service error".
        item.send()
            .await
            .map_err(|error| DisplayErrorContext(error).to_string())?;
        Ok(())
    }
}
