//! Makes a payment: the charge, then its entry in the ledger.

use aws_sdk_dynamodb::Error as LedgerError;
use lambda_idempotency::sqs::Message;
use lambda_idempotency::{OnCrash, Step, StepError};
use uuid::Uuid;

use crate::ledger::Ledger;
use crate::payment::Payment;
use crate::provider::{Provider, ProviderError};

/// The provider that takes the money, and the ledger that it is entered into.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) provider: Option<Provider>,
    pub(crate) ledger: Ledger,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PaymentError {
    #[error("the payment was not entered: {0}")]
    Ledger(#[from] LedgerError),
    #[error("the charge: {0}")]
    Charge(#[from] StepError<ProviderError>),
    #[error("the entry: {0}")]
    Entry(#[from] StepError<LedgerError>),
}

impl Shop {
    pub(crate) async fn pay(self, message: Message<Payment>) -> Result<(), PaymentError> {
        let Message { body, claim, .. } = message;
        let Some(provider) = &self.provider else {
            // Deliberately not idempotent: an entry under a new id each time, so that a payment made twice would show.
            let entry_id = Uuid::new_v4().to_string();
            return Ok(self.ledger.enter(entry_id, &body, None).await?);
        };
        // Without an answer it may have been taken: the record says so.
        let charge = Step::named("charge").unsure_after(ProviderError::may_have_charged);
        let charge = if provider.honours_keys {
            // A charge that was under way is asked for again, and the provider recognises its key.
            charge
        } else {
            // It would be taken twice. An operator looks.
            charge.on_crash(OnCrash::Interrupt)
        };
        let receipt = claim
            .step(charge, |key| provider.charge(&body, key))
            .await?;
        // The key is the entry's id: entered again, it is the same entry.
        let entry = |key| self.ledger.enter(key, &body, Some(&receipt));
        claim.step("enter", entry).await?;
        Ok(())
    }
}
