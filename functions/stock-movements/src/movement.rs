//! Defines a movement, as the data of its record has it, and books it.

use aws_sdk_dynamodb::Error;
use lambda_idempotency::kinesis::Message;
use serde::Deserialize;
use uuid::Uuid;

use crate::journal::Journal;

#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "the names on the wire")]
pub(crate) struct Movement {
    pub(crate) movement_id: String,
    pub(crate) sku: String,
    /// In pieces: positive where they come in, negative where they leave.
    pub(crate) delta: i64,
}

/// Enters a movement under a new id, whether or not it was entered before.
pub(crate) async fn book(journal: Journal, message: Message<Movement>) -> Result<(), Error> {
    journal
        .enter(Uuid::new_v4().to_string(), &message.body)
        .await
}
