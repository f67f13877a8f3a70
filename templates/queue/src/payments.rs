//! The payments, and the function that makes each of them once.

use lambda_idempotency::Idempotency;
use lambda_idempotency::sqs::{BatchError, BatchLayer, Message, SqsBatchResponse, SqsEvent};
use lambda_runtime::{Error, LambdaEvent};
use serde::{Deserialize, Serialize};
use tower::Service;

/// The body of a message: `{"payment_id": "p-1", "amount": 1250}`.
#[derive(Deserialize, Serialize)]
pub(crate) struct Payment {
    pub(crate) payment_id: String,
    /// In minor units, such as cents.
    pub(crate) amount: u64,
}

/// Where payments are entered. `ledger.rs` has the function's, `tests.rs` a double.
pub(crate) trait Ledger: Clone + Send + Sync + 'static {
    fn enter(
        &self,
        entry_id: String,
        payment: Payment,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Serves a batch: runs `pay` for each message whose payment is not made yet, and replies with the messages to be delivered again.
pub(crate) fn worker<L: Ledger>(
    once: Idempotency,
    ledger: L,
) -> impl Service<
    LambdaEvent<SqsEvent>,
    Response = SqsBatchResponse,
    Error = BatchError,
    Future: Send + 'static,
> {
    BatchLayer::new(once)
        .operation("pay")
        .key(|payment: &Payment| payment.payment_id.clone())
        .on_error(|message, error: &Error| tracing::warn!(message.message_id, %error, "not paid"))
        .handler(move |message| pay(ledger.clone(), message))
}

/// Your work. An error makes SQS deliver the message again.
async fn pay<L: Ledger>(ledger: L, message: Message<Payment>) -> Result<(), Error> {
    // The same id in each attempt: an attempt that takes over from a process that died writes the same entry.
    let entry_id = message.claim.derive_key("entry");
    ledger.enter(entry_id, message.body).await
}
