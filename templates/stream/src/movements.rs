//! The movements, and the function that books each of them once.

use lambda_idempotency::Idempotency;
use lambda_idempotency::kinesis::{BatchError, BatchLayer, ItemFailures, KinesisEvent, Message};
use lambda_runtime::{Error, LambdaEvent};
use serde::Deserialize;
use tower::Service;

/// The data of a record: `{"movement_id": "m-1", "sku": "tea", "delta": -2}`. The partition key is the `sku`, so that the movements
/// of an article are booked in their order.
#[derive(Deserialize)]
pub(crate) struct Movement {
    pub(crate) movement_id: String,
    pub(crate) sku: String,
    pub(crate) delta: i64,
}

/// Where movements are entered. `journal.rs` has the function's, `tests.rs` a double.
pub(crate) trait Journal: Clone + Send + Sync + 'static {
    fn enter(
        &self,
        entry_id: String,
        movement: Movement,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Serves a batch: runs `book` for each record whose movement is not booked yet, and replies with the first record that must come
/// again.
pub(crate) fn worker<J: Journal>(
    once: Idempotency,
    journal: J,
) -> impl Service<
    LambdaEvent<KinesisEvent>,
    Response = ItemFailures,
    Error = BatchError,
    Future: Send + 'static,
> {
    BatchLayer::new(once)
        .operation("book")
        .key(|movement: &Movement| movement.movement_id.clone())
        .on_error(|record, error: &Error| tracing::warn!(record.event_id, %error, "not booked"))
        .handler(move |message| book(journal.clone(), message))
}

/// Your work. An error makes Lambda deliver the record and those after it again.
async fn book<J: Journal>(journal: J, message: Message<Movement>) -> Result<(), Error> {
    // The same id in each attempt: an attempt that takes over from a process that died writes the same entry.
    let entry_id = message.claim.derive_key("entry");
    journal.enter(entry_id, message.body).await
}
