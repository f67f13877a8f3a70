//! The settlements, and the function that pays each of them out once.

use aws_sdk_dynamodb::error::DisplayErrorContext;
use lambda_idempotency::Idempotency;
use lambda_idempotency::invoke::{Invocation, InvokeError, InvokeLayer};
use lambda_runtime::{Error, LambdaEvent};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower::Service;

/// The event: `{"settlement_id": "s-1", "amount": 1250}`.
#[derive(Deserialize, Serialize)]
pub(crate) struct Settlement {
    pub(crate) settlement_id: String,
    /// In minor units, such as cents.
    pub(crate) amount: u64,
}

/// The answer: `{"payout_id": "…"}`.
#[derive(Serialize)]
pub(crate) struct Payout {
    payout_id: String,
}

/// Where settlements are paid out. `payouts.rs` has the function's, `tests.rs` a double.
pub(crate) trait Payouts: Clone + Send + Sync + 'static {
    fn pay(
        &self,
        payout_id: String,
        settlement: Settlement,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Serves an event: runs `settle` for a settlement that is not paid out yet, and answers with the stored payout for one that is.
pub(crate) fn function<P: Payouts>(
    once: Idempotency,
    payouts: P,
) -> impl Service<
    LambdaEvent<Box<RawValue>>,
    Response = Box<RawValue>,
    Error = InvokeError<Error>,
    Future: Send + 'static,
> {
    InvokeLayer::new(once)
        .operation("settle")
        .key(|settlement: &Settlement| settlement.settlement_id.clone())
        .on_error(|_, error: &Error| {
            // The SDK's own text is "service error".
            let error = DisplayErrorContext(&**error);
            tracing::warn!(%error, "not settled");
        })
        .handler(move |event| settle(payouts.clone(), event))
}

/// Your work. An error is the caller's answer, and a retry runs again.
async fn settle<P: Payouts>(payouts: P, event: Invocation<Settlement>) -> Result<Payout, Error> {
    // The same id in each attempt: an attempt that takes over from a process that died writes the same payout.
    let payout_id = event.claim.derive_key("payout");
    payouts.pay(payout_id.clone(), event.payload).await?;
    Ok(Payout { payout_id })
}
