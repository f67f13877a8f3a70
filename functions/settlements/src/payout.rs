//! A settlement, as its request asks for it, and the payout that is made for it.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use lambda_idempotency::invoke::Invocation;
use lambda_runtime::Diagnostic;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Deserialize)]
pub(crate) struct Settlement {
    pub(crate) settlement_id: String,
    merchant: String,
    /// In minor units: cents, say.
    amount: u64,
}

#[derive(Serialize)]
pub(crate) struct Payout {
    payout_id: String,
    settlement_id: String,
    amount: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the payout was not written: {0}")]
pub(crate) struct PayoutError(#[from] aws_sdk_dynamodb::Error);

/// The caller matches it by this type.
impl From<PayoutError> for Diagnostic {
    fn from(error: PayoutError) -> Self {
        Self {
            error_type: "Settlements.PayoutFailed".to_owned(),
            error_message: error.to_string(),
        }
    }
}

/// The table of the payouts.
#[derive(Clone)]
pub(crate) struct Payouts {
    pub(crate) client: Client,
    pub(crate) table: String,
    pub(crate) delay: Duration,
}

impl Payouts {
    pub(crate) async fn pay(self, event: Invocation<Settlement>) -> Result<Payout, PayoutError> {
        tokio::time::sleep(self.delay).await;
        let Settlement {
            settlement_id,
            merchant,
            amount,
        } = event.payload;
        // Deliberately not idempotent: a payout under a new id each time.
        let payout_id = Uuid::new_v4().to_string();
        let written = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("payout_id", S(payout_id.clone()))
            .item("settlement_id", S(settlement_id.clone()))
            .item("merchant", S(merchant))
            .item("amount", N(amount.to_string()))
            .send()
            .await;
        written
            .inspect_err(|error| {
                tracing::error!(error = %DisplayErrorContext(error), "the payout was refused");
            })
            .map_err(aws_sdk_dynamodb::Error::from)?;
        tracing::info!(payout_id, "settlement paid out");
        Ok(Payout {
            payout_id,
            settlement_id,
            amount,
        })
    }
}
