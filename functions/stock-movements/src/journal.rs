//! Writes the entries of movements to their table.

use std::time::Duration;

use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::{Client, Error};
use lambda_idempotency::kinesis::Message;
use uuid::Uuid;

use crate::movement::Movement;

#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) client: Client,
    pub(crate) table: String,
    pub(crate) delay: Duration,
}

impl Journal {
    /// Enters a movement under a new id, whether or not it was entered before.
    pub(crate) async fn book(self, message: Message<Movement>) -> Result<(), Error> {
        let entry_id = Uuid::new_v4().to_string();
        let movement = message.body;
        tokio::time::sleep(self.delay).await;
        self.client
            .put_item()
            .table_name(&self.table)
            .item("entry_id", S(entry_id.clone()))
            .item("movement_id", S(movement.movement_id))
            .item("sku", S(movement.sku))
            .item("delta", N(movement.delta.to_string()))
            .send()
            .await
            .inspect_err(|error| {
                tracing::error!(error = %DisplayErrorContext(error), "the table refused the entry");
            })?;
        tracing::info!(entry_id, "movement booked");
        Ok(())
    }
}
