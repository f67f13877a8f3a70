//! The table of the orders.

use aws_sdk_dynamodb::Client;
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
        let item = self.client.put_item().table_name(&self.name);
        let item = item
            .item("order_id", S(order_id))
            .item("sku", S(order.sku))
            .item("quantity", N(order.quantity.to_string()));
        item.send().await?;
        Ok(())
    }
}
